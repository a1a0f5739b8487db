"""The run folder: which one a start uses, whether it resumes, and the files that a run leaves in it.

Decision: a run is identified by its resolved config. The same config resumes the unfinished run, a changed one is
refused with the keys that differ, and a finished run is never continued by accident. `run.json` holds the state; it is
replaced atomically.

    >>> folder = RunFolder.open(config_dict)             # new, or the unfinished one with the same config
    >>> folder.append_metrics(step=3, metrics={"critic/score/mean": 0.4})
    >>> folder.finish()
"""

import contextlib
import json
import math
import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from verl.classmate.errors import ConfigError

_IGNORED_KEYS = frozenset(
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
"""Keys that may change between a run and its continuation: where it logs, how far it goes, where its judge stands."""


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
    """Step of the checkpoint that this start continues at; 0 for an unfinished run without one; None for a new run."""

    @classmethod
    def open(cls, config: Mapping[str, Any]) -> "RunFolder":
        """Finds or makes the folder of this start and writes `config.yaml` and `run.json`.

        Raises:
            ConfigError: when the named folder holds a finished run, another run's config, or cannot be written.
        """
        trainer = config["trainer"]
        resume = trainer["resume_mode"] != "disable"
        if trainer["default_local_dir"] is not None:
            path = Path(trainer["default_local_dir"]).expanduser().resolve()
            state = _read_state(path)
            if state is not None:
                _refuse_unless_resumable(path, state, config, resume)
        else:
            base = Path("outputs").resolve() / trainer["project_name"] / trainer["experiment_name"]
            path, state = _unfinished(base, config) if resume else (base, None)

        try:
            if state is None and trainer["default_local_dir"] is None:
                path = _new_folder(base)
            folder = cls(path=path, resumed_from=None if state is None else latest_step(path))
            (path / "logs").mkdir(parents=True, exist_ok=True)
            (path / "rollouts").mkdir(exist_ok=True)
            write_atomically(path / "config.yaml", yaml.safe_dump(dict(config), sort_keys=False))
            folder._write_state("running")
        except OSError as error:
            raise ConfigError(
                f"trainer.default_local_dir={path} cannot be written ({error.strerror}); name a folder that can"
            ) from error
        if folder.resumed_from is not None:
            folder.forget_after(folder.resumed_from)
        return folder

    @property
    def metrics_path(self) -> Path:
        """One JSON object a line: `step` and every metric of that step."""
        return self.path / "metrics.jsonl"

    def rollouts_path(self, step: int, validation: bool = False) -> Path:
        """Where the rows of one step are dumped."""
        return self.path / ("val_preds" if validation else "rollouts") / f"step_{step}.jsonl"

    def append_metrics(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Appends one line; a NaN becomes null, since JSON has no NaN."""
        line = {"step": step} | {key: _json_number(value) for key, value in metrics.items()}
        with self.metrics_path.open("a") as f:
            f.write(json.dumps(line) + "\n")

    def read_metrics(self) -> Iterator[dict[str, Any]]:
        """The lines of `metrics.jsonl`, without a last line that a killed run left incomplete."""
        if not self.metrics_path.exists():
            return
        for line in self.metrics_path.read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                yield json.loads(line)

    def forget_after(self, step: int) -> None:
        """Drops metrics and rows of the steps that a resumed run does again: those behind `step`, all when it is 0."""
        kept = [json.dumps(line) + "\n" for line in self.read_metrics() if 0 <= line["step"] <= step and step > 0]
        write_atomically(self.metrics_path, "".join(kept))
        for dump in [*self.path.glob("rollouts/step_*.jsonl"), *self.path.glob("val_preds/step_*.jsonl")]:
            if step == 0 or int(dump.stem.removeprefix("step_")) > step:
                dump.unlink()

    def dump_rows(self, step: int, rows: list[dict[str, Any]], validation: bool = False) -> None:
        """Writes one JSON object a row, whole or not at all."""
        path = self.rollouts_path(step, validation)
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))

    def finish(self) -> None:
        """Marks the run as finished: the next start makes a new one."""
        self._write_state("finished")

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


def latest_step(path: Path) -> int:
    """The step of the newest complete checkpoint in a run folder; 0 without one."""
    tracker = path / "latest_checkpointed_iteration.txt"
    text = tracker.read_text().strip() if tracker.exists() else ""
    step = int(text) if text.isdigit() else 0
    return step if (path / f"global_step_{step}").is_dir() else 0


def _read_state(path: Path) -> dict[str, Any] | None:
    """`run.json`; None for a folder that holds no run."""
    try:
        return json.loads((path / "run.json").read_text())
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError):
        return None


def _is_alive(state: Mapping[str, Any]) -> bool:
    """Whether the process that writes this run still lives on this host."""
    if state["state"] == "finished" or state["host"] != socket.gethostname() or state["pid"] == os.getpid():
        return False
    try:
        # Process ids are used again, in containers all the time; the time of start tells two apart.
        return abs(psutil.Process(state["pid"]).create_time() - state["process_started"]) < 1
    except psutil.NoSuchProcess:
        return False


def _read_config(path: Path) -> dict[str, Any]:
    try:
        return yaml.safe_load((path / "config.yaml").read_text()) or {}
    except FileNotFoundError:
        return {}


def _refuse_unless_resumable(path: Path, state: dict[str, Any], config: Mapping[str, Any], resume: bool) -> None:
    if _is_alive(state):
        raise ConfigError(
            f"trainer.default_local_dir={path} is in use by process {state['pid']}; wait for it or name another folder"
        )
    if not resume:
        raise ConfigError(
            f"trainer.default_local_dir={path} already holds a run; name another folder for a fresh start"
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


def _unfinished(base: Path, config: Mapping[str, Any]) -> tuple[Path, dict[str, Any] | None]:
    """The newest run below `base` with this config, unless it is finished or in use; else (base, None)."""
    for file in sorted(base.glob("*/run.json"), reverse=True):
        path, state = file.parent, _read_state(file.parent)
        if state is not None and not changed_keys(_read_config(path), config):
            return (base, None) if state["state"] == "finished" or _is_alive(state) else (path, state)
    return base, None


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
