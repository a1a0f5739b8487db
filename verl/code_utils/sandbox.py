"""Runs untrusted programs, a few at a time, each behind a fresh `jail.py`; knows which protections this machine gives.

Decision: nobody is asked what a kernel allows. At start, a small program is run under the strongest protection; if that
does not work, under the next one. What programs run under is what was seen to work, and `protections` says it.

    with Sandbox(SandboxSettings(concurrency=2)) as sandbox:
        sandbox.run("assert", "def f(): return 1", ["assert f() == 1", "assert f() == 2"], seconds=1.0)
        # Results(results=[1, 0], runtimes=[0.0016, -1.0])
"""

import contextlib
import dataclasses
import json
import math
import os
import queue
import select
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from verl.code_utils import jail

__all__ = ["Results", "Sandbox", "SandboxError", "SandboxSettings", "reply_timeout"]

Mode = Literal["assert", "stdio"]

_START = "import sys; sys.path.append(sys.argv.pop()); from code_utils.jail import main; sys.path.pop(); main()"
"""How a bare interpreter finds these modules and, later, a program does not; compiled as the service has left them."""
_GRACE_S = 10.0
"""What a jail may take beyond its tests' time before it is ended from outside."""
FIRST_UID = 0x70000000
"""From here on user ids are nobody's, 64 for every process id; where a machine has fewer, they start at 20000."""


class SandboxError(Exception):
    """The sandbox could not run a program; says nothing about the program."""


@dataclass(frozen=True, kw_only=True)
class SandboxSettings:
    """What the service takes at once, and what each program may use."""

    concurrency: int = 0
    """Programs that run at once; 0: as many as there are processors."""
    queue: int = 256
    """Requests that may wait for their turn; one more is answered 503."""
    body_mb: int = 4
    """Largest request in MiB; a larger one is answered 413."""
    tests: int = 1000
    """Most tests of one request."""
    memory_mb: int = 512
    """Memory of one program in MiB: address space of each of its processes, and what all of them hold."""
    disk_mb: int = 64
    """Size of the folder of one program in MiB, which is in memory where the kernel allows it."""
    file_mb: int = 16
    """Size of one file in MiB."""
    output_mb: int = 4
    """Most that a program may print in stdio mode, in MiB."""
    processes: int = 32
    """Processes and threads of one program."""
    allow_weak: bool = False
    """Also run where programs could read and change what the service's user can; only for programs that you trust."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in ("concurrency", "queue", "allow_weak") else 1
            if value < least:
                raise ValueError(f"{field.name}={value} is too small; write {least} or more")
        if self.file_mb > self.disk_mb:
            raise ValueError(f"file_mb={self.file_mb} is more than disk_mb={self.disk_mb}; write {self.disk_mb}")
        if self.concurrency == 0:
            object.__setattr__(self, "concurrency", len(os.sched_getaffinity(0)))

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """The defaults, but for what variables like CODE_SANDBOX_MEMORY_MB say.

        Raises:
            ValueError: a variable holds no whole number of 0 or more.
        """
        values: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            name = f"CODE_SANDBOX_{field.name.upper()}"
            text = environment.get(name)
            if text is None:
                continue
            if not text.isascii() or not text.isdigit() or (field.name == "allow_weak" and text not in "01"):
                raise ValueError(f"{name}={text!r} is not a whole number; write for instance {int(field.default)}")  # type: ignore[arg-type]
            values[field.name] = bool(int(text)) if field.name == "allow_weak" else int(text)
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class Results:
    """What became of the tests of one program, in their order."""

    results: list[int]
    """1 for a passed test, else 0."""
    runtimes: list[float]
    """Seconds of a passed test, program included; -1.0 for one that did not pass."""


@dataclass(frozen=True, kw_only=True)
class Protection:
    """One way to run programs, from the strongest to the weakest."""

    namespaces: bool
    """Own processes, mounts and network."""
    own_user: bool
    """A user id of its own for each program."""


_STRONGEST_FIRST = [
    Protection(namespaces=namespaces, own_user=own_user) for namespaces in (True, False) for own_user in (True, False)
]


def reply_timeout(seconds: float) -> float:
    """Seconds after which a client gives up a request whose tests may take `seconds` each."""
    return min(max(10 * seconds, 30.0), 300.0)


def queue_timeout(seconds: float) -> float:
    """The part of it that a request may wait for its turn; then it is refused, and not judged."""
    return reply_timeout(seconds) / 4


def run_timeout(seconds: float) -> float:
    """The part of it that all tests of a request have together; those that it does not reach have failed."""
    return reply_timeout(seconds) * 2 / 3


class Sandbox:
    """Runs programs under the strongest protection that works here. Safe to use from many threads."""

    def __init__(self, settings: SandboxSettings) -> None:
        self.settings = settings
        self.protections: tuple[str, ...] = ()
        """What programs are protected by, in words; empty before the start."""
        self.missing: tuple[str, ...] = ()
        """What they are not, in words."""
        self._protection: Protection | None = None
        self._users: queue.SimpleQueue[int] = queue.SimpleQueue()
        for user in _user_ids(settings.concurrency):
            self._users.put(user)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left to do: what programs used ended with each of them."""

    def start(self, candidates: Sequence[Protection] = _STRONGEST_FIRST) -> None:
        """Finds the strongest protection that works; with it, `run` may be called.

        Raises:
            SandboxError: nothing does, or nothing that keeps programs from the service's files.
        """
        if sys.platform != "linux":
            raise SandboxError("the code sandbox needs Linux")
        failures = []
        for protection in candidates:
            try:
                found = self._try(protection)
            except SandboxError as error:
                failures.append(str(error))
                continue
            machine = os.uname().machine
            filtered = machine in ("x86_64", "aarch64")
            own_user = "own user id"
            files = any("files" in words for words in found)
            self.protections = (
                *found,
                *([own_user] if protection.own_user else []),
                *(["no sockets and no privileges (seccomp)"] if filtered else []),
                "limits of time, memory, disk, output, processes",
            )
            self.missing = (
                *([] if protection.namespaces else ["processes and network of their own"]),
                *([] if files else ["files of others out of reach"]),
                *([] if protection.own_user else [own_user]),
                *([] if jail.WATCHED in found else [jail.WATCHED]),
                *([] if filtered else [f"seccomp (not known on {machine})"]),
            )
            # Without namespaces it is the filter that keeps programs from processes of the same user.
            apart = files and (protection.namespaces or filtered)
            if not (apart or protection.own_user or self.settings.allow_weak):
                break
            self._protection = protection
            return
        if self.protections:
            raise SandboxError(
                "programs could reach files or processes of this service's user; run it as root in a container, "
                "allow user namespaces, or set CODE_SANDBOX_ALLOW_WEAK=1 for programs that you trust"
            )
        raise SandboxError(f"programs cannot be run here: {'; '.join(dict.fromkeys(failures))}")

    def _try(self, protection: Protection) -> tuple[str, ...]:
        """Runs one good and one bad test in each mode; returns what the jail says of itself."""
        if protection.own_user and os.geteuid() != 0:
            raise SandboxError("user ids of their own need root")
        said: tuple[str, ...] = ()
        for mode, program, tests in (
            ("assert", "import random, zlib", ["assert True", "assert False"]),
            ("stdio", "print(input())", [{"input": "1\n", "output": "1"}, {"input": "1\n", "output": "2"}]),
        ):
            reply = self._run(protection, mode, program, tests, seconds=10.0, total=20.0)
            if reply["results"] != [1, 0]:
                raise SandboxError(f"a program that should pass in {mode} mode did not")
            said = tuple(reply["protections"])
        return said

    def run(self, mode: Mode, program: str, tests: Sequence[Any], *, seconds: float) -> Results:
        """Runs a program against its tests, one process for each, one after the other; waits for a free place.

        Args:
            mode: "assert": tests are statements that run after the program; "stdio": each is {"input", "output"}.
            program: Python source.
            tests: of that kind.
            seconds: limit of each test, rounded up to whole seconds in stdio mode.

        Raises:
            SandboxError: the sandbox failed, not the program.
        """
        assert self._protection is not None, "start() comes first"
        limit = math.ceil(seconds) if mode == "stdio" else seconds
        total = run_timeout(seconds)
        reply = self._run(self._protection, mode, program, tests, seconds=limit, total=total)
        return Results(results=reply["results"], runtimes=reply["runtimes"])

    def _run(
        self,
        protection: Protection,
        mode: str,
        program: str,
        tests: Sequence[Any],
        *,
        seconds: float,
        total: float,
    ) -> dict[str, Any]:
        settings = self.settings
        user = self._users.get()
        hidden, places = _hide([json.dumps(test).encode() for test in tests])
        folder = None if protection.namespaces else tempfile.mkdtemp(prefix="code_sandbox_")
        job = {
            "mode": mode,
            "program": program,
            "tests": hidden,
            "places": places,
            "limit": seconds,
            "total": total,
            "namespaces": protection.namespaces,
            "uid": user if protection.own_user else None,
            "folder": folder,
            "visible": _visible_paths(),
            **{name: getattr(settings, name) for name in ("memory_mb", "disk_mb", "file_mb", "output_mb", "processes")},
        }
        try:
            return _ask_jail(json.dumps(job).encode() + b"\n", hidden, total + _GRACE_S + jail.SETUP_S)
        finally:
            os.close(hidden)
            if folder is not None:
                jail.remove_tree(folder)
            self._users.put(user)


def _hide(tests: Sequence[bytes]) -> tuple[int, list[tuple[int, int]]]:
    """A file without a name that holds them, and start and size of each: a jail hands it on without reading it."""
    hidden, places, start = os.memfd_create("tests"), [], 0
    with open(hidden, "wb", closefd=False) as file:
        for test in tests:
            places.append((start, file.write(test)))
            start += len(test)
    return hidden, places


def _ask_jail(job: bytes, hidden: int, seconds: float) -> dict[str, Any]:
    """One jail's reply. Its stdin stays open meanwhile: the jail ends, with all that is in it, when that closes."""
    command = [_interpreter(), *jail.INTERPRETER_FLAGS, "-c", _START, str(Path(jail.__file__).resolve().parents[1])]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=jail.ENVIRONMENT,
        cwd="/",
        pass_fds=[hidden],
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(job)
            process.stdin.flush()
            answered, _, _ = select.select([process.stdout], [], [], seconds)
            line = process.stdout.readline() if answered else b""
        except BrokenPipeError:
            answered, line = [process.stdout], b""
        if not answered:
            process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)
            process.kill()
            raise SandboxError(f"a jail did not answer within {seconds:.0f} s")
    try:
        reply = json.loads(line)
    except ValueError:
        raise SandboxError("a jail ended without an answer") from None
    if "error" in reply:
        raise SandboxError(reply["error"])
    return reply


def _interpreter() -> str:
    """The interpreter below the virtual environment, which needs nothing of it."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def _visible_paths() -> list[tuple[str, str]]:
    """(real path, path) of what programs see: an interpreter, its standard library, shared libraries."""
    standard = sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix})
    wanted = [
        "/lib",
        "/lib64",
        "/usr/lib",
        "/usr/lib64",
        "/usr/share/zoneinfo",
        "/etc/ld.so.cache",
        _interpreter(),
        os.path.dirname(standard),
        os.path.join(sys.base_prefix, "lib"),
    ]
    return [(os.path.realpath(path), path) for path in dict.fromkeys(wanted) if os.path.exists(path)]


def _user_ids(count: int) -> list[int]:
    """User ids that neither another user nor another process of this service has."""
    with open("/proc/self/uid_map") as file:
        most = max(int(line.split()[0]) + int(line.split()[2]) for line in file)
    first = FIRST_UID + os.getpid() * 64
    if first + count > min(most, (1 << 32) - 2):
        first = 20000 + os.getpid() * 64 % 30000
    return list(range(first, first + count))
