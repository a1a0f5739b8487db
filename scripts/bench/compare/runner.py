"""Starts one run and measures it from outside.

One decision: nothing is measured by what is measured. The run notes when its steps end; CPU seconds are read at the
first and the last step that count, and memory in some steps behind them, which count for nothing else, since reading
memory maps costs what is to be timed.

    >>> measured = measure(start, job, warmup=2, counted=10, say=print)
    >>> statistics.median(measured["step_s"]), measured["cpu_s"], measured["pss_mib"]
"""

import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil

from scripts.bench.compare.start import Job, Start

MEMORY_STEPS = 2
"""Steps behind those that count, in which memory is read."""

SILENCE_S = 900.0
"""A run that has not ended a step for so long hangs."""

_MARK = "COMPARE_RUN"
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TQ_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
    "PYTHONUNBUFFERED": "1",
}
"""One thread for each process, in every peer."""

_LOOK_S, _MEMORY_S = 0.02, 0.2


class RunFailed(Exception):
    """A run that did not come to its end; the message is one line that says why."""


class _Tree:
    """The processes of a run: all that inherited its mark, whoever their parent is now."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._known: dict[int, psutil.Process] = {}
        self._others: set[tuple[int, float]] = set()

    def find(self) -> list[psutil.Process]:
        """Those that live now."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid in self._known or (process.pid, process.create_time()) in self._others:
                    continue
                if process.environ().get(_MARK) == self._mark:
                    self._known[process.pid] = process
                else:
                    self._others.add((process.pid, process.create_time()))
        self._known = {pid: process for pid, process in self._known.items() if _lives(process)}
        return list(self._known.values())

    def cpu_seconds(self) -> float:
        """Computed so far, with what ended children had."""
        total = 0.0
        for process in self.find():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total

    def pss_mib(self) -> float:
        """Memory: pages that several processes share count once in all."""
        total = 0
        for process in self.find():
            with contextlib.suppress(psutil.Error):
                total += process.memory_full_info().pss
        return total / 2**20

    def kill(self) -> None:
        """Ends what is left."""
        while processes := self.find():
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
            psutil.wait_procs(processes, timeout=5)


def _lives(process: psutil.Process) -> bool:
    """Not so when only its parent has yet to hear of its end, which may be never."""
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def measure(start: Start, job: Job, *, warmup: int, counted: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Runs to the end and returns the numbers.

    Args:
        start: the command.
        job: has `warmup + counted + MEMORY_STEPS` steps.
        warmup: steps whose time does not count, at least 1.
        counted: steps after them whose time does.
        say: is told of each step, for a line that is written over.

    Returns:
        `step_s`: seconds of each step that counts, from end to end; `cpu_s`: mean CPU seconds of all processes for one
        of these steps; `pss_mib`: most memory seen behind them; `start_s`: seconds to the end of the first step.

    Raises:
        RunFailed: another exit code than 0, fewer steps, or silence.
    """
    mark = uuid4().hex
    log = job.folder / "terminal.txt"
    began = time.monotonic()
    with log.open("w") as sink:
        process = subprocess.Popen(
            start.command,
            cwd=job.folder,
            env={**os.environ, **_ENVIRONMENT, **start.environment, _MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    tree = _Tree(mark)
    try:
        cpu, peak = _watch(process, tree, job, warmup=warmup, counted=counted, say=say)
        ends = step_ends(job.steps_file)
        if process.returncode or len(ends) != job.steps:
            raise RunFailed(f"{last_words(log)} (exit code {process.returncode}, {len(ends)} steps; see {log})")
    finally:
        tree.kill()
        process.wait()
    times = [after - before for before, after in zip(ends[warmup - 1 :], ends[warmup : warmup + counted], strict=False)]
    # None where a look came too late to tell two steps apart.
    whole = {warmup, warmup + counted} <= cpu.keys()
    return {
        "step_s": [round(value, 4) for value in times],
        "median_s": round(statistics.median(times), 4),
        "cpu_s": round((cpu[warmup + counted] - cpu[warmup]) / counted, 3) if whole else None,
        "pss_mib": round(peak) or None,
        "start_s": round(ends[0] - began, 1),
    }


def _watch(
    process: subprocess.Popen[bytes],
    tree: _Tree,
    job: Job,
    *,
    warmup: int,
    counted: int,
    say: Callable[[str], None],
) -> tuple[dict[int, float], float]:
    """Looks at a run until it ends: step -> CPU seconds by then, of the first and the last that count; most memory.

    Raises:
        RunFailed: silence.
    """
    cpu: dict[int, float] = {}
    ends: list[float] = []
    peak, looked_at, heard = 0.0, 0.0, time.monotonic()
    while process.poll() is None:
        time.sleep(_LOOK_S)
        now = time.monotonic()
        before, ends = len(ends), step_ends(job.steps_file)
        if len(ends) > before:
            heard = now
            say(f"step {len(ends)}/{job.steps}" + (f"  {ends[-1] - ends[-2]:.2f} s" if len(ends) > 1 else ""))
            if len(ends) in (warmup, warmup + counted):
                cpu[len(ends)] = tree.cpu_seconds()
        if warmup + counted <= len(ends) < job.steps and now > looked_at + _MEMORY_S:
            peak, looked_at = max(peak, tree.pss_mib()), now
        if now > heard + SILENCE_S:
            raise RunFailed(f"no step ended for {SILENCE_S:g} s; see {job.folder / 'terminal.txt'}")
    return cpu, peak


def step_ends(file: Path) -> list[float]:
    """Seconds of the clock at which each step ended so far."""
    if not file.exists():
        return []
    return [json.loads(line)["s"] for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]


def last_words(log: Path) -> str:
    """The last line in which a run says what went wrong, else the last one."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"(Error|Exception|^error)\b.*: ", line)]
    return (telling or lines or ["nothing was said"])[-1][:300]


def machine() -> Mapping[str, Any]:
    """Processor, its cores and the memory."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "processor": names[0].partition(":")[2].strip() if names else "unknown",
        "cores": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
    }
