"""A test that hangs fails soon, takes its processes along, and the next one runs."""

import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from tests.e2e.world import RUN_TIMEOUT_S
from tests.limits import LONG_S, ORDINARY_S, SLOW_S, TRAINING_S, time_limit
from tests.processes import SECONDS

ROOT = Path(__file__).resolve().parent.parent

HANGS = """
import time
import pytest
from tests.e2e.world import start
from tests.processes import in_processes

STUBBORN = (
    "import signal, subprocess, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "subprocess.Popen(['sleep', '1000']); time.sleep(1000)"
)


@pytest.mark.timeout(5)
def test_processes():
    in_processes(time.sleep, [(1000,), (1000,)])


@pytest.mark.timeout(5)
def test_a_run_that_takes_no_signal(tmp_path):
    with start(["-c", STUBBORN], log=tmp_path / "log.txt") as run:
        run.wait()


def test_the_next():
    pass
"""


def test_a_limit_fits_its_kind(request: pytest.FixtureRequest) -> None:
    assert time_limit("tests/classmate/test_cot.py::test_a", frozenset()) == ORDINARY_S
    assert time_limit("tests/workers/test_a.py::test_a", frozenset({"slow"})) == SLOW_S
    assert time_limit("tests/e2e/test_a.py::test_a", frozenset({"slow"})) == TRAINING_S
    assert time_limit("tests/e2e/test_a.py::test_a", frozenset({"slow", "long"})) == LONG_S
    mark = request.node.get_closest_marker("timeout")
    assert mark.args == (ORDINARY_S,), "every test has the limit of its kind"
    assert SECONDS < ORDINARY_S, "who waits gives up before pytest does, and says for what"
    assert RUN_TIMEOUT_S < TRAINING_S


@pytest.mark.timeout(480)
def test_a_test_that_hangs_fails_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_hangs.py").write_text(HANGS)
    mark = uuid4().hex
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_hangs.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HANGING_TESTS": mark},
        capture_output=True,
        text=True,
    )
    assert "2 failed, 1 passed" in result.stdout, result.stdout + result.stderr
    left = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HANGING_TESTS") == mark:
                left.append(process)
        except psutil.Error:
            continue
    # The fork server and what counts its resources end by themselves, when they see that nobody is left.
    assert psutil.wait_procs(left, timeout=60)[1] == []
