"""A list of tasks in processes: order, failures, and what is left of them when they are stopped."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from verl.evaluation.study.work import Task, do_all


def task(folder: Path, name: str, code: str = "pass", **how) -> Task:
    """A process that writes down when it ran, around `code`."""
    wrapped = (
        f"import time; out = open({str(folder / 'times')!r}, 'a')\n"
        f"print('begin {name}', time.time(), file=out, flush=True)\n"
        f"{code}\nprint('end {name}', time.time(), file=out, flush=True)"
    )
    return Task(name=name, log=folder / f"{name}.log", command=("-c", wrapped), **how)


def order(folder: Path) -> list[str]:
    return [line.rpartition(" ")[0] for line in (folder / "times").read_text().splitlines()]


def write_down(file: str, text: str) -> None:
    print("said", text)
    assert os.environ["OMP_NUM_THREADS"] == "1"
    Path(file).write_text(text)


def fail() -> None:
    raise RuntimeError("this one fails")


def test_tasks_wait_for_what_they_need(tmp_path: Path) -> None:
    tasks = [
        task(tmp_path, "b", after=("a",)),
        task(tmp_path, "a", "time.sleep(0.3)"),
        task(tmp_path, "c", after=("b",)),
    ]
    assert do_all(tasks, jobs=4, title="test") == []
    assert order(tmp_path) == ["begin a", "end a", "begin b", "end b", "begin c", "end c"]


def test_no_more_run_at_a_time_than_there_are_jobs(tmp_path: Path) -> None:
    tasks = [
        task(tmp_path, "wide", "time.sleep(0.2)", cores=8),
        *(task(tmp_path, f"n{i}", "time.sleep(0.2)") for i in range(4)),
        *(task(tmp_path, f"w{i}", "time.sleep(0.2)", alone="world") for i in range(2)),
    ]
    assert do_all(tasks, jobs=2, title="test") == []
    seen = order(tmp_path)
    assert seen[:2] == ["begin wide", "end wide"]
    running, most = set(), 0
    for what, name in map(str.split, seen):
        (running.add if what == "begin" else running.discard)(name)
        most = max(most, len(running))
        assert not {"w0", "w1"} <= running
    assert most == 2


def test_a_failure_is_told_once_and_the_others_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = [
        task(tmp_path, "bad", "raise SystemExit('broken')"),
        task(tmp_path, "behind", after=("bad",)),
        task(tmp_path, "far behind", after=("behind",)),
        task(tmp_path, "good"),
    ]
    assert do_all(tasks, jobs=1, title="test") == ["bad"]
    assert order(tmp_path) == ["begin bad", "begin good", "end good"]
    told = [line for line in capsys.readouterr().err.replace("\r", "\n").splitlines() if "failed" in line]
    assert told == [f"failed: bad; see {tmp_path / 'bad.log'}"]
    assert "broken" in (tmp_path / "bad.log").read_text()


@pytest.mark.slow
def test_calls_run_in_processes_of_their_own(tmp_path: Path) -> None:
    here = os.getpid()
    file = tmp_path / "called"
    tasks = [
        Task(name="call", log=tmp_path / "call.log", call=write_down, arguments=(str(file), "text")),
        Task(name="fails", log=tmp_path / "fails.log", call=fail),
    ]
    assert do_all(tasks, jobs=2, title="test") == ["fails"]
    assert os.getpid() == here
    assert file.read_text() == "text"
    assert (tmp_path / "call.log").read_text() == "said text\n"
    assert "this one fails" in (tmp_path / "fails.log").read_text()


_STOPPED = """
import signal, sys
from pathlib import Path
from verl.evaluation.study.work import Task, do_all
signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background jobs ignore it,
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and what nohup starts this one.
do_all([Task(name="slow", log=Path(sys.argv[1]), command=("-c", sys.argv[2]))], jobs=1, title="test")
"""
_SLEEPS = "import os, time; open('sleeps.new', 'w').close(); os.rename('sleeps.new', 'sleeps'); time.sleep(3600)"
"""Says that it has begun; nothing but a signal ends it."""
_SLOW = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_SLEEPS!r}])"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_stopping_leaves_no_task_behind(tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _STOPPED, str(tmp_path / "log"), _SLOW],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=tmp_path,
    )
    started: list[psutil.Process] = []
    try:
        while not (tmp_path / "sleeps").exists():
            assert process.poll() is None, "it ended by itself"
            time.sleep(0.1)
        started = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        process.wait()
        # The kernel tells a task that the command was killed, but not what the task has started. Whoever stays is
        # waited for until the test's own limit.
        psutil.wait_procs(started if number is not signal.SIGKILL else started[:1])
    finally:
        for child in (process, *started):
            if child.is_running() if isinstance(child, psutil.Process) else child.poll() is None:
                child.kill()


def start_another_and_wait(file: str) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        Path(file).write_text(f"{os.getpid()} {other.pid}")


_KILLED = """
import sys
from pathlib import Path
from tests.evaluation.study.test_work import start_another_and_wait
from verl.evaluation.study.work import Task, do_all
log, file = Path(sys.argv[1]), sys.argv[2]
do_all([Task(name="call", log=log, call=start_another_and_wait, arguments=(file,))], jobs=1, title="test")
"""


@pytest.mark.slow
def test_a_killed_command_takes_its_calls_along(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    arguments = [sys.executable, "-c", _KILLED, str(tmp_path / "log"), str(file)]
    with subprocess.Popen(arguments, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        deadline = time.monotonic() + 120
        while not file.exists() or len(file.read_text().split()) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.kill()
    started = [psutil.Process(int(pid)) for pid in file.read_text().split() if psutil.pid_exists(int(pid))]
    _, alive = psutil.wait_procs(started, timeout=30)
    for child in alive:
        child.kill()
    assert not alive
