"""Where a run is written: what the user names, or a folder below `results`, found again when the command is repeated.

One decision: a folder named after the time holds the command that it was made for (`launch.json`), so that the same
command goes on with its unfinished run and any other command gets a new folder.

    >>> run_folder(Path("results/rcl_teacher"), ["python", "-m", ...])
    PosixPath('results/rcl_teacher/20260102-030405')
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from verl.classmate.errors import ConfigError
from verl.trainer.run.checkpoints import step_folders
from verl.trainer.run.model_folders import has_whole_weights
from verl.trainer.run.state import is_finished, read_state, writer_of

RECORD = "launch.json"
"""File of a run folder with the command that it was made for."""

RESULTS = "results"
"""Folder of all results, unless a user names another."""

PRE_RL_MODEL = "pre_rl_model"
"""Folder of the warmed-up teacher below it."""


def run_folder(parent: Path, command: Sequence[str]) -> Path:
    """The newest unfinished run of this command below `parent`, or the name of a new one. Makes nothing."""
    for record in sorted(parent.glob(f"*/{RECORD}"), reverse=True):
        if _recorded(record) == list(command) and not is_finished(record.parent) and not _in_use(record.parent):
            return record.parent
    stamp, suffix = time.strftime("%Y%m%d-%H%M%S"), 1
    while (path := parent / (stamp if suffix == 1 else f"{stamp}-{suffix:03d}")).exists():
        suffix += 1
    return path


def record(folder: Path, command: Sequence[str]) -> None:
    """Makes a run's folder and writes the command that it is for."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RECORD).write_text(json.dumps(list(command), indent=1) + "\n")


def _recorded(file: Path) -> list[str] | None:
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, list) else None


def _in_use(folder: Path) -> bool:
    state = read_state(folder)
    try:
        return state is not None and writer_of(folder, state) is not None
    except ConfigError:
        return True


def weights_in(typed: str) -> str:
    """The folder of a model's weights: of the last checkpoint, where a run's folder was named; else what was typed.

    Raises:
        ConfigError: the run has checkpoints, and none of them holds weights that can be loaded.
    """
    folder = Path(typed).expanduser()
    if not folder.is_dir() or (folder / "config.json").exists():
        return typed
    steps = list(step_folders(folder).values())
    for step in reversed(steps):
        for inner in (step / "actor" / "huggingface", step / "huggingface", step):
            if has_whole_weights(inner):
                return str(inner)
    if steps:
        raise ConfigError(
            f"{typed} has checkpoints, but none with a whole model in huggingface/; run "
            f"`bash my_scripts/merge_fsdp_ckpts.sh {typed}`, or name a model's folder"
        )
    return typed
