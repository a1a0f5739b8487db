"""A training as a command of its own, watched from here.

One decision: the run is the one that everybody starts, `python -m verl.trainer.qwen_main_ppo`, with its folder, lock,
resume and console; here its `metrics.jsonl` is read, and it ends when this process does.

    >>> run(arguments, folder, iterations=100, log_interval=10)
"""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from verl.classmate.errors import ConfigError
from verl.trainer.hosting.servers import ending_with_this_process
from verl.trainer.run.state import read_state

logger = logging.getLogger(__name__)

ENTRY = "verl.trainer.qwen_main_ppo"
"""The baseline's entry point: a training on one reward, without classmates."""
LOG = "train.log"
"""Beside the run folder: what the command prints."""
_LOOK_S, _STOP_S = 0.5, 60.0
"""How often the run is looked at, and how long it may take to end."""


class TrainingFailed(RuntimeError):
    """A run that did not end well; its message is the run's own line, and names the log."""


def run(arguments: Sequence[str], folder: Path, *, iterations: int, log_interval: int) -> None:
    """Trains until the run has finished; one that has finished already is left alone.

    Args:
        arguments: settings of the trainer.
        folder: the run folder, which `arguments` name too.
        iterations: steps, for the progress bar.
        log_interval: steps between two lines of the log.

    Raises:
        ConfigError: a setting that is not possible.
        TrainingFailed: the run failed.
        KeyboardInterrupt: it was stopped; the run has been too.
    """
    state = read_state(folder)
    if state is not None and state["state"] == "finished":
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.with_name(f"{folder.name}.{LOG}")
    command = ending_with_this_process([sys.executable, "-m", ENTRY, *arguments])
    with log.open("ab") as sink:
        begin = sink.tell()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        _watch(process, folder, iterations, log_interval)
    except BaseException:
        _stop(process)
        raise
    if process.returncode:
        with log.open("rb") as told:
            told.seek(begin)
            lines = [line for line in told.read().decode(errors="replace").splitlines() if line.strip()]
        error = next((line for line in reversed(lines) if line.startswith("error: ")), (lines or ["no message"])[-1])
        message = f"{error.removeprefix('error: ')} (log: {log})"
        raise ConfigError(message) if process.returncode == 2 else TrainingFailed(message)


def _watch(process: subprocess.Popen, folder: Path, iterations: int, log_interval: int) -> None:
    with tqdm(total=iterations, desc=folder.name, unit="step") as bar:
        seen = 0
        while True:
            code = process.poll()
            for line in steps(folder):
                if line["step"] <= seen:
                    continue
                seen = line["step"]
                bar.n = seen
                reward = line.get("critic/main_model_reward/mean")
                bar.set_postfix_str("" if reward is None else f"reward {reward:.3f}")
                if seen % log_interval == 0 or seen == iterations:
                    logger.info("step %d: reward %s, entropy %s", seen, reward, line.get("actor/entropy"))
            if code is not None:
                return
            time.sleep(_LOOK_S)


def _stop(process: subprocess.Popen) -> None:
    """Politely, then not."""
    for number, patience in ((signal.SIGTERM, _STOP_S), (signal.SIGKILL, _STOP_S)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            return


def lines(folder: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a run's `metrics.jsonl` so far; the last of each step counts."""
    path = folder / "metrics.jsonl"
    text = path.read_text() if path.exists() else ""
    found = {}
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            told = json.loads(line)
            found[told["step"]] = told
    yield from (found[step] for step in sorted(found))


def steps(folder: Path) -> list[dict[str, Any]]:
    """The lines of training steps."""
    return [line for line in lines(folder) if "training/global_step" in line]
