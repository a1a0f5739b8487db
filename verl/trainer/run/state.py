"""The state of a run, `run.json`: whether it runs, has stopped or finished, and which process writes it.

One decision: the file is replaced atomically, and believed only as far as the process that it names lives.

    >>> write_state(folder, "running")
    >>> read_state(folder)["state"]
    'running'
"""

import contextlib
import json
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from verl.classmate.errors import ConfigError
from verl.trainer.run import lock as run_lock

QUIET_MIN = 15
"""Minutes after which a run of another host that writes nothing counts as ended; longer than a step."""


def write_atomically(path: Path, text: str) -> None:
    """Replaces `path` by `text` in one step, so that a killed run leaves the old file or the new one."""
    partial = path.with_suffix(path.suffix + ".partial")
    with partial.open("w") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    partial.replace(path)


def write_state(path: Path, state: str) -> None:
    """Writes `run.json` for this process."""
    text = json.dumps(
        {
            "state": state,
            "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "process_started": psutil.Process().create_time(),
        }
    )
    write_atomically(path / "run.json", text)


def read_state(path: Path) -> dict[str, Any] | None:
    """`run.json`; None for a folder that holds no run, or a file that cannot be read."""
    try:
        state = json.loads((path / "run.json").read_text())
        return state if {"state", "host", "pid", "process_started"} <= state.keys() else None
    except (OSError, ValueError, AttributeError):
        return None


def is_finished(path: Path) -> bool:
    """Whether the folder holds a run that came to its end."""
    state = read_state(path)
    return state is not None and state["state"] == "finished"


def writer_of(path: Path, state: Mapping[str, Any]) -> str | None:
    """The process that writes this run, as far as `run.json` can tell; None if it has ended.

    Raises:
        ConfigError: a run on another host wrote less than `QUIET_MIN` ago. Whether its process lives cannot be seen
            from here.
    """
    if state["state"] != "running":
        return None
    if state["host"] != socket.gethostname():
        files = [file for file in (path / "run.json", path / "metrics.jsonl") if file.exists()]
        quiet_min = (time.time() - max(file.stat().st_mtime for file in files)) / 60
        if quiet_min < QUIET_MIN:
            raise ConfigError(
                f"trainer.default_local_dir={path} is in use by a run on {state['host']}, which wrote there "
                f"{quiet_min:.0f} min ago; if that run has ended, start again {QUIET_MIN} min after its last step, or "
                "name another folder"
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


def take_folder(path: Path, undone_on_error: contextlib.ExitStack) -> str | None:
    """Locks the folder for this process, or says who has it."""
    try:
        is_new = run_lock.take(path)
    except BlockingIOError:
        # Its new owner may not have written run.json yet.
        state = read_state(path)
        return (state and writer_of(path, state)) or "another start"
    if is_new:
        undone_on_error.callback(run_lock.release, path)
    state = read_state(path)
    writer = writer_of(path, state) if state is not None else None
    if is_new and writer is not None:
        run_lock.release(path)
    return writer
