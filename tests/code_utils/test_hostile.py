"""Hostile programs are contained: nothing passes, nothing outside changes, nothing is left, and the service answers."""

import concurrent.futures
import ctypes
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.code_utils.hostile import TEST, Target, corpus, one_of_each
from tests.code_utils.reach import reaching
from tests.code_utils.services import HealthWatch, ask, programs_running, service
from verl.code_utils.sandbox import _STRONGEST_FIRST, Protection, Sandbox, SandboxError, SandboxSettings

SETTINGS = SandboxSettings(concurrency=4, memory_mb=200, disk_mb=32, processes=24)
GOOD, GOOD_TESTS = "def f(x): return 2 * x", ["assert f(2) == 4", "assert f(2) == 5"]


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    """A port, a folder and a process that no program may reach."""
    (tmp_path / "secret").write_text("kept")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield Target(pid=os.getpid(), outside=tmp_path, port=listener.getsockname()[1])
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]
    assert (tmp_path / "secret").read_text() == "kept"


def traces() -> set[str]:
    """What a program could leave behind: files in folders that all may write to, mounts, shared memory segments."""
    folders = [Path(name) for name in ("/tmp", "/var/tmp", "/dev/shm")]
    files = {str(path) for folder in folders for path in folder.iterdir() if "code_sandbox" in path.name}
    segments = Path("/proc/sysvipc/shm").read_text().splitlines()
    return files | set(Path("/proc/self/mountinfo").read_text().splitlines()) | set(segments)


def contain(url: str, programs: Iterable[tuple[str, str]], *, seconds: float) -> int:
    """Runs them beside good ones, whose results must be right all the while; returns how many were contained."""

    def passed(item: tuple[str, str]) -> list[str]:
        kind, program = item
        problems = [] if ask(url, program, [TEST], seconds=seconds) == [0] else [f"{kind}: {program}"]
        if kind in ("output", "fork bomb") and ask(url, program, [{"input": "", "output": "never"}], seconds=1) != [0]:
            problems.append(f"{kind} as script: {program}")
        if ask(url, GOOD, GOOD_TESTS, seconds=20) != [1, 0]:
            problems.append(f"a good program beside {kind}: {program}")
        return problems

    items = list(programs)
    with concurrent.futures.ThreadPoolExecutor(SETTINGS.concurrency + 2) as pool:
        problems = [problem for found in pool.map(passed, items) for problem in found]
    assert not problems
    return len(items)


@pytest.mark.guards("guard only inside the child")
def test_some_of_each_kind_are_contained(target: Target) -> None:
    before = traces()
    with service(SETTINGS) as url, HealthWatch(url) as health:
        count = contain(url, one_of_each(target), seconds=0.7)
        assert not programs_running()
    assert count >= 36
    assert health.asked > 0
    assert traces() == before


@pytest.mark.guards("blocking async routes")
@pytest.mark.long
def test_two_hundred_are_contained_and_health_answers_in_time(target: Target) -> None:
    """In a process of its own, as the documented command starts it: the clients here cost it no time."""
    before = traces()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = [
        f"--{name.replace('_', '-')}={getattr(SETTINGS, name)}" for name in ("memory_mb", "disk_mb", "processes")
    ]
    command = [sys.executable, "-m", "verl.code_utils.api", "--port", str(port), "--concurrency=4", *options]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as server:
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_for(server, port)
            programs = [(kind, program) for kind, listed in corpus(target).items() for program in listed]
            with HealthWatch(url) as health:
                count = contain(url, programs, seconds=1.0)
                assert not programs_running(server.pid)
            assert ask(url, GOOD, GOOD_TESTS) == [1, 0]
            assert server.poll() is None
        finally:
            server.terminate()
    print(f"{count} hostile programs; slowest of {health.asked} answers of /health: {health.slowest * 1000:.1f} ms")
    assert count >= 200
    assert health.slowest < 0.1
    assert traces() == before


def _wait_for(server: subprocess.Popen[bytes], port: int) -> None:
    while server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
    pytest.fail("the service has ended")


@pytest.mark.guards("guard only inside the child")
@pytest.mark.parametrize("protection", _STRONGEST_FIRST, ids=str)
def test_weaker_protections_contain_what_they_claim_to(protection: Protection, target: Target) -> None:
    """What a machine without namespaces, or without root, still gives: no processes, no network, no changed files."""
    sandbox = Sandbox(SandboxSettings(concurrency=1, memory_mb=200, disk_mb=16, processes=24, allow_weak=True))
    try:
        sandbox.start([protection])
    except SandboxError as error:
        pytest.skip(f"not possible here: {error}")
    before = traces()
    kinds = corpus(target)
    programs = [
        kinds["escape"][0],
        kinds["fork bomb"][-2],
        kinds["disk"][0],
        kinds["disk"][5],
        kinds["memory"][13],
        kinds["network"][0],
        kinds["forgery"][0],
        f"import os\nos.kill({target.pid}, 9)",
        f"open({str(target.outside / 'written')!r}, 'w')",
    ]
    if any("files" in words for words in sandbox.protections):
        programs += [f"open({str(target.outside / 'secret')!r}).read()", "open('/etc/passwd').read()"]
    for program in programs:
        assert sandbox.run("assert", program, [TEST], seconds=1).results == [0], program
        assert not programs_running()
    assert sandbox.run("assert", GOOD, GOOD_TESTS, seconds=10).results == [1, 0]
    assert traces() == before


@pytest.mark.parametrize("protection", _STRONGEST_FIRST, ids=str)
def test_programs_reach_nothing_of_others_of_their_user(protection: Protection, target: Target) -> None:
    """Neither limits, priorities, owners of descriptors nor shared memory of a process, their keeper's least of all:
    without it a program that fails would be one that has no score."""
    sandbox = Sandbox(SandboxSettings(concurrency=1, memory_mb=200, disk_mb=16, processes=24, allow_weak=True))
    try:
        sandbox.start([protection])
    except SandboxError as error:
        pytest.skip(f"not possible here: {error}")
    libc = ctypes.CDLL(None)
    segment = libc.shmget(0, 4096, 0o1600)
    victim = subprocess.Popen(["sleep", "600"])
    try:
        before = _state_of(victim.pid), (target.outside / "secret").stat()
        programs = reaching(victim.pid, segment, target.outside / "secret")
        if protection.namespaces and not protection.own_user and os.getuid() == 0:
            # Root without the right to become another user owns this file of its keeper's.
            del programs["its last rites of the keeper"]
        for what, program in programs.items():
            assert sandbox.run("assert", program, [TEST], seconds=10).results == [0], what
            assert victim.poll() is None, what
        after = (target.outside / "secret").stat()
        assert _state_of(victim.pid) == before[0]
        assert (after.st_mode, after.st_uid, after.st_mtime) == (
            before[1].st_mode,
            before[1].st_uid,
            before[1].st_mtime,
        )
    finally:
        victim.kill()
        victim.wait()
        libc.shmctl(segment, 0, None)
    assert len(programs) >= 40
    assert sandbox.run("assert", GOOD, GOOD_TESTS, seconds=10).results == [1, 0]


def _state_of(pid: int) -> object:
    limits = [resource.prlimit(pid, kind) for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU, resource.RLIMIT_AS)]
    return os.getpriority(os.PRIO_PROCESS, pid), os.sched_getaffinity(pid), os.sched_getscheduler(pid), limits
