"""What a launcher starts, signals and leaves: with real processes that stand in for servers and run."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.trainer.launchers.standins import Launched, launched
from verl.trainer.launchers.folders import record, run_folder
from verl.trainer.run.state import write_state


@pytest.fixture
def bystander() -> Iterator[psutil.Process]:
    """A process that looks like a server of ours and is none."""
    code = "import time; print('up', flush=True); time.sleep(600)"
    words = [sys.executable, "-c", code, "verl.trainer.hosting.vllm_serve", "student0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield psutil.Process(process.pid)
        process.kill()


@contextlib.contextmanager
def killed_at_the_end(launcher: Launched) -> Iterator[Launched]:
    try:
        yield launcher
    finally:
        launcher.process.kill()
        launcher.process.join()


def gone(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=30)[1]


@pytest.mark.acceptance("T10")
@pytest.mark.guards("killing every process on the GPUs")
@pytest.mark.parametrize("code", [0, 7])
def test_the_exit_code_is_the_runs_and_only_own_children_end(
    code: int, tmp_path: Path, bystander: psutil.Process
) -> None:
    with killed_at_the_end(launched(tmp_path, run=f"exit {code}")) as launcher:
        seen = launcher.seen()
        assert set(seen.mapping) == {"student0", "student1"}
        assert all(place["port"] >= 8765 for place in seen.mapping.values())
        assert all(place["local_host"] == "127.0.0.1" for place in seen.mapping.values())
        assert seen.gpus == "6,7"
        assert launcher.ends() == code
    assert "waiting until 2 of 2 servers answer, at most 60 s" in launcher.said
    assert "student student1: starting on auto on GPU 1, port" in launcher.said
    assert (tmp_path / "run" / "servers" / "students.json").read_text() == "{}\n", "its entries are gone"
    assert bystander.is_running()
    assert bystander.status() != psutil.STATUS_ZOMBIE


def test_a_run_that_a_signal_ended_has_its_code(tmp_path: Path) -> None:
    with killed_at_the_end(launched(tmp_path, run="killed", students=1)) as launcher:
        assert launcher.ends() == 128 + signal.SIGKILL


@pytest.mark.acceptance("T10")
@pytest.mark.guards("killing every process on the GPUs")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_launcher_ends_run_and_servers(
    number: signal.Signals, tmp_path: Path, bystander: psutil.Process
) -> None:
    with killed_at_the_end(launched(tmp_path)) as launcher:
        run = psutil.Process(launcher.seen().pid)
        servers = launcher.servers(2)
        launcher.signal(number)
        assert launcher.ends() == 128 + number
        assert gone([run, *servers])
    assert (tmp_path / "run" / "signals").read_text() == f"{number.name}\n", "once"
    assert "Traceback" not in launcher.said
    assert bystander.is_running()


def test_a_signal_while_servers_load_ends_them(tmp_path: Path) -> None:
    with killed_at_the_end(launched(tmp_path, server="hangs")) as launcher:
        servers = launcher.servers(2)
        launcher.signal(signal.SIGTERM)
        assert launcher.ends() == 128 + signal.SIGTERM
        assert gone(servers)
    assert "stopped by SIGTERM; what was started has ended" in launcher.said
    assert not (tmp_path / "run" / "seen.json").exists()


def test_nothing_outlives_a_launcher_that_was_killed(tmp_path: Path) -> None:
    with killed_at_the_end(launched(tmp_path)) as launcher:
        run = psutil.Process(launcher.seen().pid)
        servers = launcher.servers(2)
        launcher.process.kill()
        assert gone([run, *servers])


def test_a_server_that_dies_while_it_loads_is_told_with_its_log(tmp_path: Path) -> None:
    with killed_at_the_end(launched(tmp_path, server="dies", students=1)) as launcher:
        assert launcher.ends() == 1
    (log,) = (tmp_path / "run" / "servers" / "logs").glob("student0_*.log")
    (line,) = [line for line in launcher.said.splitlines() if line.startswith("error:")]
    assert f"the server of student0 ended with code 3; {log}" in line
    assert "  | out of memory" in launcher.said
    assert "Traceback" not in launcher.said
    assert not (tmp_path / "run" / "seen.json").exists()


@pytest.mark.guards("fixed 120 s readiness")
def test_a_server_that_never_answers_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    with killed_at_the_end(launched(tmp_path, server="hangs", timeout_s=0.5, students=1)) as launcher:
        assert launcher.ends() == 1
    assert "did not answer within 0.5 s; see" in launcher.said


def test_a_server_that_dies_later_is_told_and_the_run_goes_on(tmp_path: Path) -> None:
    with killed_at_the_end(launched(tmp_path)) as launcher:
        run = psutil.Process(launcher.seen().pid)
        launcher.servers(2)[0].kill()
        while "ended with code -9; see" not in launcher.said:
            launcher.process.join(0.05)
            assert launcher.process.is_alive(), launcher.said
        assert run.is_running()


def test_a_preparation_that_fails_ends_it_with_its_code(tmp_path: Path) -> None:
    with killed_at_the_end(launched(tmp_path, run="step 5")) as launcher:
        assert launcher.ends() == 5
    assert "error: what prepares rows ended with code 5" in launcher.said
    assert not (tmp_path / "run" / "seen.json").exists()


def test_what_the_checks_refuse_starts_no_server(tmp_path: Path) -> None:
    with killed_at_the_end(launched(tmp_path, run="check 2")) as launcher:
        assert launcher.ends() == 2
    assert launcher.said.splitlines() == ["checks the run ...", "error: a wrong key"]
    assert not (tmp_path / "run").exists()


def test_without_servers_the_launcher_becomes_the_run(tmp_path: Path) -> None:
    with killed_at_the_end(launched(tmp_path, students=0)) as launcher:
        assert launcher.seen().pid == launcher.process.pid
        launcher.signal(signal.SIGTERM)
        assert launcher.ends() == 128 + signal.SIGTERM


def test_the_same_command_goes_on_with_its_unfinished_run(tmp_path: Path) -> None:
    parent, mine = tmp_path / "rcl_teacher", ["-m", "x", "a=1"]
    first = run_folder(parent, mine)
    assert not parent.exists(), "looking makes nothing"
    record(first, mine)
    assert run_folder(parent, mine) == first
    assert run_folder(parent, ["-m", "x", "a=2"]) != first
    write_state(first, "stopped")
    assert run_folder(parent, mine) == first
    write_state(first, "finished")
    second = run_folder(parent, mine)
    assert second != first
    (first / "launch.json").write_text("no JSON")
    assert run_folder(parent, mine).parent == parent


def test_a_signal_of_the_terminal_is_not_sent_twice(tmp_path: Path) -> None:
    """The terminal's Ctrl-C reaches launcher and run alike; a second one would break off the run's clean-up."""
    leader, follower = os.openpty()
    code = (
        "import fcntl, os, sys, termios\n"
        "os.setsid()\n"
        f"fcntl.ioctl({follower}, termios.TIOCSCTTY, 0)\n"
        f"os.dup2({follower}, 0)\n"
        "from tests.trainer.launchers.standins import _enter\n"
        f"_enter({str(tmp_path)!r}, 'ok', 'waits', 60, 1)\n"
    )
    root = Path(__file__).resolve().parents[3]
    with subprocess.Popen([sys.executable, "-c", code], cwd=root, pass_fds=[follower]) as process:
        launcher = Launched(tmp_path, _As(process))  # type: ignore[arg-type]
        launcher.seen()
        os.write(leader, b"\x03")
        assert process.wait(60) == 128 + signal.SIGINT
    assert (tmp_path / "run" / "signals").read_text() == "SIGINT\n"
    os.close(leader)
    os.close(follower)


class _As:
    """A `Popen` as `Launched` asks a process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid, self._process = process.pid, process

    def join(self, timeout: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)

    def is_alive(self) -> bool:
        return self._process.poll() is None
