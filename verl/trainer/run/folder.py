"""The run folder: which one a start uses, whether it resumes, and the files that a run leaves in it.

Decision: a run is identified by its resolved config. The same config resumes the unfinished run, a changed one is
refused with the keys that differ, and a finished run is never continued by accident. `run.json` holds the state; it is
replaced atomically. One process at a time has the folder (`run_lock`).

    >>> folder = RunFolder.open(config_dict)             # new, or the unfinished one with the same config
    >>> folder.write_metrics(step=3, metrics={"critic/score/mean": 0.4})
    >>> folder.finish()                                  # or leave(), where it did not come to its end
"""

import contextlib
import datetime
import json
import math
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from verl.classmate.errors import ConfigError
from verl.trainer.run import lock as run_lock
from verl.trainer.run.checkpoints import TRACKER, checkpoint_to_resume, latest_step, remove_after, step_folders
from verl.trainer.run.choices import MEMORY_KEYS

QUIET_MIN = 15
"""Minutes after which a run of another host that writes nothing counts as ended; longer than a step."""

_LONGEST_LINE = 2**20
"""Bytes; a line of `metrics.jsonl` has some ten thousand."""

_IGNORED_KEYS = MEMORY_KEYS | frozenset(
    {
        "debug",
        "trainer.default_local_dir",
        "trainer.logger",
        "trainer.console",
        "trainer.fork_workers",
        "trainer.resume_mode",
        "trainer.resume_from_path",
        "trainer.total_epochs",
        "trainer.total_training_steps",
        "trainer.rollout_data_dir",
        "trainer.validation_data_dir",
        "ray_kwargs.ray_init.num_cpus",
        "reward_model.llm_judge_base_url",
        "reward_model.llm_judge_cache_path",
        "reward_model.llm_judge_max_concurrency",
        "reward_model.llm_judge_max_retries",
        "reward_model.llm_judge_requests_per_minute",
        "reward_model.llm_judge_timeout",
    }
)
"""Keys that may change between a run and its continuation: where it logs, how far it goes, where its judge stands, what
another GPU has memory for."""


_CHAT_DATE = "reward_model.chat_date"


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mapping -> `{"a.b": value}`; lists stay values."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{path}."))
        else:
            flat[path] = value
    return flat


def changed_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The dotted keys whose values differ between two configs, without those that may change between starts."""
    old_flat, new_flat = flatten(old), flatten(new)
    keys = (old_flat.keys() | new_flat.keys()) - _IGNORED_KEYS
    if new_flat.get(_CHAT_DATE) is None:
        # Null is the day that the run began with.
        keys -= {_CHAT_DATE}
    return sorted(key for key in keys if old_flat.get(key) != new_flat.get(key))


def write_atomically(path: Path, text: str) -> None:
    """Replaces `path` by `text` in one step, so that a killed run leaves the old file or the new one."""
    partial = path.with_suffix(path.suffix + ".partial")
    with partial.open("w") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    partial.replace(path)


def _json_number(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """One run's folder; see the module docstring."""

    path: Path
    """The folder itself: `trainer.default_local_dir`, or a new one below `outputs/`."""

    resumed_from: int | None
    """Step of its own checkpoint that this start continues at; 0 for an unfinished run without one; None for a new run,
    also for one that starts from a checkpoint of another."""

    chat_date: str | None = None
    """`reward_model.chat_date`, or what null stands for in this run: the day of its first start."""

    @classmethod
    def open(cls, config: Mapping[str, Any]) -> "RunFolder":
        """Finds or makes the folder of this start, locks it and writes `config.yaml` and `run.json`.

        Raises:
            ConfigError: when the named folder is in use, holds a finished run, another run's config or no run but
                something else, cannot be written, or has lost its checkpoints; when there is no checkpoint to resume.
        """
        start = checkpoint_to_resume(config["trainer"])
        named = config["trainer"]["default_local_dir"]
        path = Path("outputs") if named is None else Path(named).expanduser()
        try:
            with contextlib.ExitStack() as undone_on_error:
                if named is None:
                    path, state = _unnamed(path.resolve(), config, undone_on_error)
                else:
                    path, state = _named(path.resolve(), config, undone_on_error)
                date = _chat_date(config, {} if state is None else _read_config(path))
                folder = cls(
                    path=path, resumed_from=None if state is None else _resumed_step(path, start), chat_date=date
                )
                folder._prepare(config)
                undone_on_error.pop_all()
        except OSError as error:
            raise ConfigError(
                f"trainer.default_local_dir={path} cannot be written ({error.strerror}); name a folder that can"
            ) from error
        return folder

    def _prepare(self, config: Mapping[str, Any]) -> None:
        (self.path / "logs").mkdir(parents=True, exist_ok=True)
        (self.path / "rollouts").mkdir(exist_ok=True)
        recorded = dict(config)
        if self.chat_date is not None:
            recorded["reward_model"] = {**config["reward_model"], "chat_date": self.chat_date}
        write_atomically(self.path / "config.yaml", yaml.safe_dump(recorded, sort_keys=False))
        self._write_state("running")
        if self.resumed_from is not None:
            self.forget_after(self.resumed_from)

    @property
    def metrics_path(self) -> Path:
        """One JSON object a line: `step` and every metric of that step."""
        return self.path / "metrics.jsonl"

    def rollouts_path(self, step: int, validation: bool = False) -> Path:
        """Where the rows of one step are dumped."""
        return self.path / ("val_preds" if validation else "rollouts") / f"step_{step}.jsonl"

    def write_metrics(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Appends the line of a step, or replaces the last one where it is of the same step.

        A NaN becomes null, since JSON has no NaN.
        """
        line = {"step": step} | {key: _json_number(value) for key, value in metrics.items()}
        kept = self._length_before(step)
        with self.metrics_path.open("r+b" if self.metrics_path.exists() else "wb") as f:
            f.seek(kept)
            f.write(json.dumps(line).encode() + b"\n")
            f.truncate()

    def add_metrics(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Adds to the line of a step if it is the last one, or appends it."""
        self.write_metrics(step, {**self.metrics_of(step), **metrics})

    def metrics_of(self, step: int) -> dict[str, Any]:
        """The line of a step; empty where there is none."""
        return next((line for line in self.read_metrics() if line["step"] == step), {})

    def _length_before(self, step: int) -> int:
        """Bytes of `metrics.jsonl` in front of the line of `step`, if that is the last one; else all of them."""
        if not self.metrics_path.exists():
            return 0
        with self.metrics_path.open("rb") as f:
            size = f.seek(0, os.SEEK_END)
            f.seek(max(0, size - _LONGEST_LINE))
            tail = f.read()
        before, _, last = tail.removesuffix(b"\n").rpartition(b"\n")
        is_same = last.startswith(b'{"step": %d,' % step)
        return size - len(tail) + len(before) + bool(before) if is_same else size

    def read_metrics(self) -> Iterator[dict[str, Any]]:
        """The lines of `metrics.jsonl`, without a last line that a killed run left incomplete."""
        if not self.metrics_path.exists():
            return
        for line in self.metrics_path.read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                yield json.loads(line)

    def forget_after(self, step: int) -> None:
        """Drops what a resumed run does again: metrics, rows and checkpoints of the steps behind `step`.

        When it is 0, also what was measured before the first step; else the tracker, where upstream looks, names it.
        """
        kept = [json.dumps(line) + "\n" for line in self.read_metrics() if 0 <= line["step"] <= step and step > 0]
        write_atomically(self.metrics_path, "".join(kept))
        for dump in [*self.path.glob("rollouts/step_*.jsonl"), *self.path.glob("val_preds/step_*.jsonl")]:
            if step == 0 or int(dump.stem.removeprefix("step_")) > step:
                dump.unlink()
        remove_after(self.path, step)
        if step > 0:
            write_atomically(self.path / TRACKER, str(step))

    def dump_rows(self, step: int, lines: Iterable[str], validation: bool = False) -> None:
        """Writes a line a row, all of them or none."""
        path = self.rollouts_path(step, validation)
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, "".join(f"{line}\n" for line in lines))

    def finish(self) -> None:
        """Marks the run as finished: the next start makes a new one. Others may have the folder."""
        self._write_state("finished")
        run_lock.release(self.path)

    def leave(self) -> None:
        """Lets others have the folder; a run that has not finished is marked as stopped."""
        state = _read_state(self.path)
        if state is not None and state["state"] == "running":
            self._write_state("stopped")
        run_lock.release(self.path)

    def _write_state(self, state: str) -> None:
        text = json.dumps(
            {
                "state": state,
                "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "process_started": psutil.Process().create_time(),
            }
        )
        write_atomically(self.path / "run.json", text)


def _read_state(path: Path) -> dict[str, Any] | None:
    """`run.json`; None for a folder that holds no run, or a file that cannot be read."""
    try:
        state = json.loads((path / "run.json").read_text())
        return state if {"state", "host", "pid", "process_started"} <= state.keys() else None
    except (OSError, ValueError, AttributeError):
        return None


def _writer(path: Path, state: Mapping[str, Any]) -> str | None:
    """The process that writes this run, as far as `run.json` can tell; None where it has ended.

    Raises:
        ConfigError: for a run of another host that has not been quiet for `QUIET_MIN`: nobody here can see whether its
            process lives.
    """
    if state["state"] != "running":
        return None
    if state["host"] != socket.gethostname():
        files = [file for file in (path / "run.json", path / "metrics.jsonl") if file.exists()]
        quiet_min = (time.time() - max(file.stat().st_mtime for file in files)) / 60
        if quiet_min < QUIET_MIN:
            raise ConfigError(
                f"trainer.default_local_dir={path} is in use by a process on {state['host']}, or was {quiet_min:.0f} "
                f"min ago; if that has ended, start again {QUIET_MIN} min after its last step, or name another folder"
            )
        return None
    if state["pid"] == os.getpid():
        return None
    try:
        # Process ids are used again, in containers all the time; the time of start tells two apart.
        lives = abs(psutil.Process(state["pid"]).create_time() - state["process_started"]) < 1
    except psutil.NoSuchProcess:
        return None
    return f"process {state['pid']}" if lives else None


def _take(path: Path, undone_on_error: contextlib.ExitStack) -> str | None:
    """Locks the folder for this process, or says who has it."""
    try:
        is_new = run_lock.take(path)
    except BlockingIOError:
        # Its new owner may not have written run.json yet.
        state = _read_state(path)
        return (state and _writer(path, state)) or "another start"
    if is_new:
        undone_on_error.callback(run_lock.release, path)
    state = _read_state(path)
    writer = _writer(path, state) if state is not None else None
    if is_new and writer is not None:
        run_lock.release(path)
    return writer


def _chat_date(config: Mapping[str, Any], recorded: Mapping[str, Any]) -> str | None:
    """The day that a run tells chat templates, given what its folder has recorded; None where it has no such key."""
    if "chat_date" not in (config.get("reward_model") or {}):
        return None
    known = flatten(config).get(_CHAT_DATE) or flatten(recorded).get(_CHAT_DATE)
    return known or datetime.datetime.now().astimezone().date().isoformat()


def _read_config(path: Path) -> dict[str, Any]:
    try:
        return yaml.safe_load((path / "config.yaml").read_text()) or {}
    except FileNotFoundError:
        return {}


def _named(
    path: Path, config: Mapping[str, Any], undone_on_error: contextlib.ExitStack
) -> tuple[Path, dict[str, Any] | None]:
    """The folder that the user names, and the state of the run in it, None where there is none."""
    if _read_state(path) is None:
        names = [TRACKER, "metrics.jsonl", *(folder.name for folder in step_folders(path).values())]
        left = [name for name in names if (path / name).exists()]
        if left:
            raise ConfigError(
                f"trainer.default_local_dir={path} holds {left[0]} but no readable run.json, so that the run cannot be "
                "resumed; name another folder, or put run.json back"
            )
    path.mkdir(parents=True, exist_ok=True)
    writer = _take(path, undone_on_error)
    if writer is not None:
        raise ConfigError(f"trainer.default_local_dir={path} is in use by {writer}; wait for it or name another folder")
    state = _read_state(path)
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
            f"trainer.resume_from_path={start} is of another run than the one in trainer.default_local_dir={path}; "
            "name a new folder for what starts there, or a global_step_N of this one"
        )
    differing = changed_keys(_read_config(path), config)
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


def _resumed_step(path: Path, start: Path | None) -> int:
    """The step at which the run in `path` goes on: that of the checkpoint which the user names, or the latest."""
    if start is None:
        return latest_step(path)
    return int(start.name.removeprefix("global_step_"))


def _unnamed(
    outputs: Path, config: Mapping[str, Any], undone_on_error: contextlib.ExitStack
) -> tuple[Path, dict[str, Any] | None]:
    """The newest run with this config, unless it is finished or in use, and its state; else a new folder, and None."""
    base = outputs / config["trainer"]["project_name"] / config["trainer"]["experiment_name"]
    if config["trainer"]["resume_mode"] == "auto":
        newest_first = (file.parent for file in sorted(base.glob("*/run.json"), reverse=True))
        same = (path for path in newest_first if _read_state(path) and not changed_keys(_read_config(path), config))
        path = next(same, None)
        if path is not None and not _is_finished(path) and _take(path, undone_on_error) is None:
            # It may have finished until it was free.
            if not _is_finished(path):
                return path, _read_state(path)
            run_lock.release(path)
    path = _new_folder(base)
    _take(path, undone_on_error)
    return path, None


def _is_finished(path: Path) -> bool:
    state = _read_state(path)
    return state is not None and state["state"] == "finished"


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
