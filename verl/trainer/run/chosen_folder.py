"""Which folder a start uses: the one that the user names, the unfinished run with the same config, or a new one.

>>> with contextlib.ExitStack() as undone_on_error:
...     path, state = unnamed_folder(Path("outputs"), config, undone_on_error)
"""

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl.classmate.errors import ConfigError
from verl.trainer.run import lock as run_lock
from verl.trainer.run.checkpoints import TRACKER, checkpoint_to_resume, latest_step, step_folders
from verl.trainer.run.recorded_config import changed_keys, read_config
from verl.trainer.run.state import is_finished, read_state, take_folder


def named_folder(
    path: Path, config: Mapping[str, Any], undone_on_error: contextlib.ExitStack
) -> tuple[Path, dict[str, Any] | None]:
    """The folder that the user names, and the state of the run in it, None where there is none."""
    if read_state(path) is None:
        names = [TRACKER, "metrics.jsonl", *(folder.name for folder in step_folders(path).values())]
        left = [name for name in names if (path / name).exists()]
        if left:
            raise ConfigError(
                f"trainer.default_local_dir={path} holds {left[0]} but no readable run.json, so the run cannot be "
                "resumed; name another folder, or put run.json back"
            )
    path.mkdir(parents=True, exist_ok=True)
    writer = take_folder(path, undone_on_error)
    if writer is not None:
        raise ConfigError(f"trainer.default_local_dir={path} is in use by {writer}; wait for it or name another folder")
    state = read_state(path)
    if state is not None:
        _refuse_unless_resumable(path, state, config)
    return path, state


def _refuse_unless_resumable(path: Path, state: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    if config["trainer"]["resume_mode"] == "disable":
        raise ConfigError(
            f"trainer.default_local_dir={path} already holds a run; name another folder for a fresh start"
        )
    start = checkpoint_to_resume(config["trainer"])
    if start is not None and start.parent != path:
        raise ConfigError(
            f"trainer.resume_from_path={start} belongs to another run than trainer.default_local_dir={path}; name a "
            "new folder for the run that starts from this checkpoint, or a global_step_N of that folder"
        )
    differing = changed_keys(read_config(path), config)
    if differing:
        shown = ", ".join(differing[:6]) + (f" and {len(differing) - 6} more" if len(differing) > 6 else "")
        raise ConfigError(
            f"trainer.default_local_dir={path} holds a run with another config (differs in {shown}); "
            "name another folder, or give these keys their old values to resume it"
        )
    if state["state"] == "finished" and not _wants_more_steps(path, config):
        raise ConfigError(
            f"trainer.default_local_dir={path} holds a finished run; name another folder, or raise "
            "trainer.total_training_steps to continue it"
        )


def _wants_more_steps(path: Path, config: Mapping[str, Any]) -> bool:
    total = config["trainer"]["total_training_steps"]
    return total is not None and total > latest_step(path) > 0


def unnamed_folder(
    outputs: Path, config: Mapping[str, Any], undone_on_error: contextlib.ExitStack
) -> tuple[Path, dict[str, Any] | None]:
    """The newest run with this config, unless it is finished or in use, and its state; else a new folder, and None."""
    base = outputs / config["trainer"]["project_name"] / config["trainer"]["experiment_name"]
    if config["trainer"]["resume_mode"] == "auto":
        newest_first = (file.parent for file in sorted(base.glob("*/run.json"), reverse=True))
        same = (path for path in newest_first if read_state(path) and not changed_keys(read_config(path), config))
        path = next(same, None)
        if path is not None and not is_finished(path) and take_folder(path, undone_on_error) is None:
            # It may have finished until it was free.
            if not is_finished(path):
                return path, read_state(path)
            run_lock.release(path)
    path = _new_folder(base)
    take_folder(path, undone_on_error)
    return path, None


def _new_folder(base: Path) -> Path:
    """Makes a folder that no other start has: two of them may come in the same second."""
    stamp, suffix = time.strftime("%Y%m%d-%H%M%S"), ""
    while True:
        path = base / f"{stamp}{suffix}"
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            if not path.is_dir():
                raise
            suffix = f"-{int(suffix[1:] or 1) + 1:03d}"


def resumed_step(path: Path, start: Path | None) -> int:
    """The step at which the run in `path` goes on: that of the checkpoint which the user names, or the latest."""
    if start is None:
        return latest_step(path)
    return int(start.name.removeprefix("global_step_"))
