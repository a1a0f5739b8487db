"""The hosting script for tests: classmates on servers of their own, outside of the run that asks them.

One decision: a server is killed as the machine would kill it, and the launcher is left to do what it does then.

    >>> with hosting(model, mapping=mapping, log=tmp_path / "hosting.txt") as hosted:
    ...     hosted.kill_server()
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.e2e.world import ROOT

START_TIMEOUT_S = 200


class Hosting:
    """A launcher whose servers answer; `hosting` makes it."""

    def __init__(self, process: subprocess.Popen, server: psutil.Process) -> None:
        self._process = process
        self._server = server

    def cpu_seconds(self) -> float:
        """What the server has computed so far."""
        times = self._server.cpu_times()
        return times.user + times.system

    def kill_server(self) -> None:
        """`kill -9` of the server; returns when its launcher has ended over it."""
        self._server.kill()
        assert self._process.wait(60) == 1


@contextlib.contextmanager
def hosting(model: Path, *, mapping: Path, log: Path) -> Iterator[Hosting]:
    """Hosts `model` on the engine hf; what is left of it at the end of the block ends.

    Args:
        model: the model's folder.
        mapping: the mapping file.
        log: gets what the launcher prints.
    """
    command = ["bash", str(ROOT / "my_scripts" / "host_classmate_model.sh"), "--backend", "hf"]
    environment = {**os.environ, "VIRTUAL_ENV": sys.prefix, "OMP_NUM_THREADS": "1"}
    with log.open("w") as sink:
        process = subprocess.Popen(
            [*command, "--mapping", str(mapping), str(model)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while "Ctrl-C ends it" not in log.read_text():
            with contextlib.suppress(subprocess.TimeoutExpired):
                raise AssertionError(f"the launcher ended with {process.wait(0.05)}:\n{log.read_text()}")
            assert time.monotonic() < deadline, log.read_text()
        (server,) = psutil.Process(process.pid).children()
        yield Hosting(process, server)
    finally:
        process.terminate()
        process.wait()
