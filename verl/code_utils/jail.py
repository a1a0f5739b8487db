"""Runs one program against its tests where it can reach nothing else; started by `sandbox.py`, by nobody else.

Decision: this module is run by a bare interpreter (`python -P -s -S`), standard library only: a program must not
pay for `import verl`, nor find anything of the service in its memory. Processes stand behind one another:

    outer     reads the job from stdin, and ends everything when stdin ends (the service gave up, or died)
    keeper    process 1 of its own namespaces, or the reaper of its descendants; builds the room, keeps the time
    program   one per test: no privileges, limits, system call filter
    test      one per test with statements: confined like the program, which it asks for results (`sides.py`)

    {"mode": "assert", "program": "def f(): return 1", "tests": 3, "places": [[0, 20]], ...}               # line in
    {"results": [1], "runtimes": [0.002], "protections": ["namespaces", ...]}                               # line out

The tests are in a file without a name, whose descriptor is handed down unread. A test's statements are read by its own
process, and by no process that a program's is a copy of. The verdict is that process's word, or for scripts, which
start as new interpreters, the keeper's.
"""

import ctypes
import fcntl
import json
import math
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from .sides import hold_program, run_test

MIB = 1 << 20
TICK_S = 0.05
"""How often memory, processes and disk of a running program are looked at."""
SETUP_S = 30.0
"""Most that the limits of a program may take to be set; on a machine that is busy beyond measure."""
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
"""All that a program sees; the fixed seed gives the same answer the same score."""
INTERPRETER_FLAGS = ("-P", "-s", "-S")
WATCHED = "memory and processes counted together"

_libc = ctypes.CDLL(None, use_errno=True)

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 32, 4096, 16384, 1 << 18
_MNT_DETACH = 2
_NEW_NS, _NEW_CGROUP, _NEW_UTS, _NEW_IPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
_NEW_USER, _NEW_PID, _NEW_NET = 0x10000000, 0x20000000, 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 4, 22, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_MOUNT_SETATTR, _LANDLOCK = 442, 444
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435
# What the filter refuses, (x86_64, aarch64; -1 where there is none): sockets of every kind, other processes' memory,
# descriptors and priorities, what processes share by number, new namespaces, memory that no limit counts, and parts of
# the kernel that no test needs.
_REFUSED = {
    "socket": (41, 198),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "open_by_handle_at": (304, 265),
}
# What is refused but for the caller's own process, which is 0.
_REFUSED_FOR_OTHERS = {
    "prlimit64": (302, 261),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
}
# What would name a process that gets signals for a descriptor, and which: fcntl, ioctl, and their second arguments.
_REFUSED_COMMANDS = (((72, 25), (8, 10, 15)), ((16, 29), (0x8901, 0x8902)))
# Where programs are not in namespaces of their own: signals, and what Landlock does not know of files, or knows only
# from some version on (their length).
_REFUSED_IN_PLAIN_ROOM = {
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    "chmod": (90, -1),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, -1),
    "fchown": (93, 55),
    "lchown": (94, -1),
    "fchownat": (260, 54),
    "utime": (132, -1),
    "utimes": (235, -1),
    "futimesat": (261, -1),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "truncate": (76, 45),
    "openat2": (437, 437),
}
# Those that open, with the place of their flags: to truncate what is opened for reading is refused there, too.
_OPEN = (((2, -1), 1), ((257, 56), 2))


class JailError(Exception):
    """The jail could not be built or has failed; says nothing about the program."""


def _check(result: int, what: str) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise JailError(f"{what}: {os.strerror(error)}")
    return result


def _prctl(option: int, value: int, what: str) -> None:
    _check(_libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)), what)


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    encoded = [None if text is None else text.encode() for text in (source, target, kind, options)]
    result = _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    _check(result, f"mount {target}")


# --- The room: what a program sees -----------------------------------------------------------------------------------


class NamespaceRoom:
    """Own process, mount, network, IPC and host name namespaces; a read-only root that holds Python and no more."""

    folder = "/tmp"

    def __init__(self, job: SimpleNamespace) -> None:
        self._options = f"size={job.disk_mb}m,nr_inodes=4096,mode=700"
        if job.uid is not None:
            self._options += f",uid={job.uid},gid={job.uid}"
        _check(_libc.unshare(_NEW_NS | _NEW_NET | _NEW_IPC | _NEW_UTS), "unshare")
        _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
        # After the pivot the old root, with all that is below its own /tmp, stands in /old until it is let go.
        _mount("tmpfs", "/tmp", "tmpfs", _MS_NOSUID | _MS_NODEV, "size=1m,mode=755")
        os.mkdir("/tmp/old")
        _check(_libc.syscall(_PIVOT_ROOT[os.uname().machine], b"/tmp", b"/tmp/old"), "pivot_root")
        os.chdir("/")
        for real, path in job.visible:
            self._show(f"/old{real}", path)
        for device in ("null", "zero", "full", "random", "urandom"):
            self._show(f"/old/dev/{device}", f"/dev/{device}", read_only=False)
        os.symlink("/tmp", "/dev/shm")
        os.mkdir("/tmp")
        os.mkdir("/proc")
        self._mount_proc()
        _check(_libc.umount2(b"/old", _MNT_DETACH), "umount")
        os.rmdir("/old")
        _mount("none", "/", None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
        self._mounted = False

    def _show(self, source: str, path: str, *, read_only: bool = True) -> None:
        if not os.path.exists(source):
            return
        os.makedirs(path if os.path.isdir(source) else os.path.dirname(path), mode=0o755, exist_ok=True)
        if not os.path.exists(path):
            open(path, "x").close()
        _mount(source, path, None, _MS_BIND | _MS_REC)
        if read_only:
            attributes = struct.pack("QQQQ", _MS_RDONLY | _MS_NOSUID | _MS_NODEV, 0, 0, 0)
            at_cwd, recursive = -100, 0x8000
            result = _libc.syscall(
                _MOUNT_SETATTR, at_cwd, path.encode(), recursive, attributes, ctypes.c_size_t(len(attributes))
            )
            _check(result, f"make {path} read-only")

    def _mount_proc(self) -> None:
        self.watches = True
        flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
        try:
            _mount("proc", "/proc", "proc", flags, "subset=pid")
        except JailError:
            # Containers that mask parts of /proc do not let a user mount another one.
            self.watches = False

    def refresh(self) -> None:
        """An empty folder for the next test; the file system of the last one is gone with what it held."""
        if self._mounted:
            _check(_libc.umount2(b"/tmp", _MNT_DETACH), "umount")
        _mount("tmpfs", "/tmp", "tmpfs", _MS_NOSUID | _MS_NODEV, self._options)
        self._mounted = True

    def clear(self) -> None:
        """Ends every process of the room but the keeper."""
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            return
        try:
            while True:
                os.waitpid(-1, 0)
        except ChildProcessError:
            return

    def restrict(self) -> None:
        """Called in the program's process, while it is still privileged: nothing more to do."""

    def disk_full(self) -> bool:
        """The file system has a size of its own."""
        return False

    @property
    def protections(self) -> tuple[str, ...]:
        """In words; `sandbox.py` names what is missing."""
        return ("own processes, files, network (namespaces)", *((WATCHED,) if self.watches else ()))


class PlainRoom:
    """Where the kernel allows no namespaces: a folder that is watched, and Landlock around it where there is one."""

    watches = True

    def __init__(self, job: SimpleNamespace) -> None:
        self._uid, self._limit, self._visible = job.uid, job.disk_mb * MIB, job.visible
        self.folder = f"{job.folder}/box"
        os.chmod(job.folder, 0o711)
        self._landlock = max(_libc.syscall(_LANDLOCK, None, ctypes.c_size_t(0), 1), 0)
        landlock = ("own files, others out of reach (landlock)",) if self._landlock else ()
        self.protections = (*landlock, WATCHED)

    def refresh(self) -> None:
        """An empty folder for the next test."""
        remove_tree(self.folder)
        os.mkdir(self.folder, 0o700)
        if self._uid is not None:
            os.chown(self.folder, self._uid, self._uid)

    def clear(self) -> None:
        """Ends every process that the tests have left."""
        end_descendants()

    def restrict(self) -> None:
        """Landlock: read Python, write in the folder, nothing else; no signals out of the domain."""
        if not self._landlock:
            return
        version = self._landlock
        everything = 0x1FFF | 0x2000 * (version >= 2) | 0x4000 * (version >= 3) | 0x8000 * (version >= 5)
        execute, write_file, read_file, read_dir = 1, 2, 4, 8
        attributes = struct.pack("Q", everything)
        if version >= 4:
            attributes += struct.pack("Q", 3)
        if version >= 6:
            attributes += struct.pack("Q", 3)
        size = ctypes.c_size_t(len(attributes))
        rules = _check(_libc.syscall(_LANDLOCK, attributes, size, 0), "landlock")
        allowed = [(real, execute | read_file | read_dir) for real, _ in self._visible]
        allowed += [(f"/dev/{name}", read_file | write_file) for name in ("null", "zero", "urandom", "random")]
        allowed += [(self.folder, everything)]
        for path, access in allowed:
            if not os.path.exists(path):
                continue
            if not os.path.isdir(path):
                access &= ~read_dir
            handle = os.open(path, os.O_PATH)
            rule = struct.pack("=Qi", access, handle)
            _check(_libc.syscall(_LANDLOCK + 1, rules, 1, rule, 0), f"landlock {path}")
            os.close(handle)
        _check(_libc.syscall(_LANDLOCK + 2, rules, 0), "landlock")
        os.close(rules)

    def disk_full(self) -> bool:
        """Whether the folder holds more than it may."""
        folders, total, entries = [self.folder], 0, 0
        while folders:
            try:
                with os.scandir(folders.pop()) as listing:
                    for entry in listing:
                        entries += 1
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
            except OSError:
                continue
            if total > self._limit or entries > 4096:
                return True
        return False


Room = NamespaceRoom | PlainRoom


def remove_tree(folder: str) -> None:
    """Removes a folder that a program wrote: of any depth, and without permissions."""
    if not os.path.lexists(folder):
        return
    for command in (["chmod", "-R", "u+rwx", "--", folder], ["rm", "-rf", "--", folder]):
        quiet = [(os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_RDWR, 0) for fd in (0, 1, 2)]
        os.waitpid(os.posix_spawnp(command[0], command, ENVIRONMENT, file_actions=quiet), 0)


def descendants() -> list[tuple[int, int, int]]:
    """(pid, threads, resident bytes) of every process below this one."""
    parents: dict[int, list[tuple[int, int, int]]] = {}
    page = resource.getpagesize()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append((int(name), int(fields[17]), int(fields[21]) * page))
    found, ask = [], [os.getpid()]
    while ask:
        children = parents.pop(ask.pop(), [])
        found += children
        ask += [pid for pid, *_ in children]
    return found


def end_descendants() -> None:
    """Ends every process below this one, in whatever session it hides: orphans come back to their reaper."""
    while True:
        for pid, *_ in descendants():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


# --- The program: what it may do --------------------------------------------------------------------------------------


def _limit_resources(job: SimpleNamespace, others: int) -> None:
    """`others` are threads of the same user that are none of the program's, but counted with them."""
    seconds = math.ceil(job.limit) + 1
    for name, value in (
        ("CPU", seconds),
        ("AS", job.memory_mb * MIB),
        ("FSIZE", job.file_mb * MIB),
        ("NPROC", job.processes + others),
        ("NOFILE", 64),
        ("CORE", 0),
        ("MEMLOCK", 0),
        ("MSGQUEUE", 0),
        ("SIGPENDING", 256),
    ):
        kind = getattr(resource, f"RLIMIT_{name}", None)
        if kind is not None:
            _, most = resource.getrlimit(kind)
            least = value if most == resource.RLIM_INFINITY else min(value, most)
            resource.setrlimit(kind, (least, least))


def _threads_of_user() -> int:
    user, total = os.getuid(), 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == user:
                    total += len(os.listdir(f"/proc/{name}/task"))
            except OSError:
                continue
    return total


def _filter_system_calls(machine: str, *, plain_room: bool) -> None:
    column = list(_AUDIT_ARCH).index(machine)
    allow, errno_of, kill = 0x7FFF0000, 0x00050000, 0x80000000
    load, equal, at_least, any_bit, mask, answer = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
    refuse, permit = (answer, 0, 0, errno_of | 1), (answer, 0, 0, allow)
    refused = {**_REFUSED, **(_REFUSED_IN_PLAIN_ROOM if plain_room else {})}
    program = [(load, 0, 0, 4), (equal, 1, 0, _AUDIT_ARCH[machine]), (answer, 0, 0, kill), (load, 0, 0, 0)]
    # Numbers from here on are those of the x32 interface.
    program += [(at_least, 0, 1, 0x40000000), refuse]
    for numbers in refused.values():
        if numbers[column] >= 0:
            program += [(equal, 0, 1, numbers[column]), refuse]

    def argument(place: int) -> tuple[int, int, int, int]:
        # Its lower half: process numbers, commands and flags have no other.
        return (load, 0, 0, 16 + 8 * place)

    for numbers in _REFUSED_FOR_OTHERS.values():
        program += [(equal, 0, 4, numbers[column]), argument(0), (equal, 0, 1, 0), permit, refuse]
    for numbers, commands in _REFUSED_COMMANDS:
        tests = [line for command in commands for line in ((equal, 0, 1, command), refuse)]
        program += [(equal, 0, len(tests) + 2, numbers[column]), argument(1), *tests, permit]
    read_or_nothing, truncate = (0, 3), 0o1000
    for numbers, place in _OPEN if plain_room else ():
        if numbers[column] >= 0:
            tests = [line for mode in read_or_nothing for line in ((equal, 0, 1, mode | truncate), refuse)]
            program += [(equal, 0, len(tests) + 3, numbers[column]), argument(place), (mask, 0, 0, 3 | truncate)]
            program += [*tests, permit]
    # Its flags are in memory, where a filter cannot look; libraries then take the older call.
    program += [(equal, 0, 1, _CLONE3), (answer, 0, 0, errno_of | 38)]
    new_namespaces = _NEW_NS | _NEW_CGROUP | _NEW_UTS | _NEW_IPC | _NEW_USER | _NEW_PID | _NEW_NET
    program += [(equal, 0, 3, _CLONE[machine]), argument(0), (any_bit, 0, 1, new_namespaces), refuse, permit]
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    result = _libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(2), header, ctypes.c_ulong(0), ctypes.c_ulong(0))
    _check(result, "seccomp")


def _confine(job: SimpleNamespace, room: Room, descriptors: list[int]) -> None:
    """Gives up everything that a program must not have; `descriptors` become 0 and so on, and there are no others."""
    os.setsid()
    os.nice(5)
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass
    others = 0 if job.uid is not None or isinstance(room, NamespaceRoom) else _threads_of_user()
    above = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, len(descriptors)) for descriptor in descriptors]
    for number, descriptor in enumerate(above):
        os.dup2(descriptor, number, inheritable=number < 3)
    os.closerange(len(descriptors), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    os.chdir(room.folder)
    for capability in range(41):
        _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1, "no_new_privs")
    room.restrict()
    _limit_resources(job, others)
    if job.uid is not None:
        os.setgroups([])
        os.setresgid(job.uid, job.uid, job.uid)
        os.setresuid(job.uid, job.uid, job.uid)
    nothing = ctypes.create_string_buffer(24)
    _check(_libc.capset(struct.pack("II", 0x20080522, 0), nothing), "capset")
    machine = os.uname().machine
    if machine in _AUDIT_ARCH:
        _filter_system_calls(machine, plain_room=isinstance(room, PlainRoom))
    # A change of the user may have set it: neither program nor test is to look into the other.
    _prctl(_PR_SET_DUMPABLE, 0, "dumpable")


def _read_test(descriptor: int, place: list[int]) -> Any:
    start, size = place
    return json.loads(os.pread(descriptor, size, start))


def _run_script() -> None:
    """The program's process in stdio mode: a fresh interpreter; never returns."""
    environment = {**ENVIRONMENT, "HOME": os.getcwd()}
    try:
        os.execve(sys.executable, [sys.executable, *INTERPRETER_FLAGS, "main.py"], environment)
    except OSError as error:
        os.write(3, f"!{sys.executable}: {error}".encode())
    os._exit(1)


def _run_assert(program: str) -> None:
    """The program's process in assert mode; never returns."""
    os.close(3)
    hold_program(4, program)


def _run_test(place: list[int]) -> None:
    """The process of a test with statements; never returns."""
    try:
        run_test(4, _read_test(5, place))
        os.write(3, b"1")
    finally:
        os._exit(0)


# --- The keeper: starts, watches and ends programs --------------------------------------------------------------------


class Watch:
    """Whether a running program is within its limits, looked at now and then."""

    def __init__(self, job: SimpleNamespace, room: Room, seconds: float, *, apart: int | None = None) -> None:
        """`apart` is a process that is none of the program's."""
        self._job, self._room, self._apart = job, room, apart
        now = time.monotonic()
        self._end, self._next = now + seconds, now + TICK_S

    def left(self) -> float:
        """Seconds until the next look; 0 when the program must end."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + TICK_S
            if self._over():
                self._end = now
        return max(min(self._end, self._next) - now, 0.0) if now < self._end else 0.0

    def _over(self) -> bool:
        if self._room.watches:
            running = [found for found in descendants() if found[0] != self._apart]
            if sum(threads for _, threads, _ in running) > self._job.processes:
                return True
            if sum(size for *_, size in running) > self._job.memory_mb * MIB:
                return True
        return self._room.disk_full()


def _wait_until_confined(report: int) -> None:
    """Returns when the process that reports there is about to start.

    Raises:
        JailError: the limits could not be set.
    """
    if not select.select([report], [], [], SETUP_S)[0]:
        raise JailError("a program's process did not start in time")
    said = os.read(report, 1)
    if said == b"!":
        raise JailError(os.read(report, 1000).decode())
    if said != b"c":
        raise JailError("a program's process ended at its start")


def _check_started(report: int) -> None:
    """Raises JailError if the interpreter of a script could not be started."""
    os.set_blocking(report, False)
    try:
        said = os.read(report, 1000)
    except BlockingIOError:
        return
    if said:
        raise JailError(said[1:].decode())


def _passes_assert(report: int, watch: Watch) -> bool:
    """What the test's process says; False if it ends without a word, or does not end."""
    while left := watch.left():
        if select.select([report], [], [], left)[0]:
            return os.read(report, 1) == b"1"
    return False


def _output_of(pid: int, output: int, most: int, watch: Watch) -> bytes | None:
    """What a program that ends well printed; None if it fails, is late, or prints more than `most` bytes."""
    ended = os.pidfd_open(pid)
    chunks: list[bytes] = []
    os.set_blocking(output, False)
    try:
        while left := watch.left():
            readable, _, _ = select.select([output, ended], [], [], left)
            over = ended in readable
            while True:
                try:
                    data = os.read(output, 1 << 16)
                except BlockingIOError:
                    break
                chunks.append(data)
                most -= len(data)
                if most < 0:
                    return None
                if not data:
                    break
            if over:
                _, status = os.waitpid(pid, 0)
                return b"".join(chunks) if status == 0 else None
            if chunks and not chunks[-1]:
                # Closed before it ended.
                select.select([ended], [], [], left)
    finally:
        os.close(ended)
    return None


def same_output(printed: str, expected: str) -> bool:
    """Whether two outputs agree: stripped lines, as many of them, each equal as text or number by number."""
    ours, theirs = printed.strip().split("\n"), expected.strip().split("\n")
    return len(ours) == len(theirs) and all(map(_same_line, ours, theirs))


def _same_line(ours: str, theirs: str) -> bool:
    if ours.strip() == theirs.strip():
        return True
    from decimal import Decimal, InvalidOperation

    left, right = ours.split(), theirs.split()
    if len(left) != len(right) or max(map(len, left + right), default=0) > 1000:
        return False
    try:
        return all(a == b or Decimal(a) == Decimal(b) for a, b in zip(left, right, strict=True))
    except InvalidOperation:
        return False


def _memory_file(text: str) -> int:
    descriptor = os.memfd_create("stdin")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(text.encode("utf-8", "surrogatepass"))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


class Started(NamedTuple):
    """A process, as seen from the keeper and from inside."""

    pid: int
    report: int
    """Where it says that it is confined, and what a test has come to."""
    run: Callable[[], None] | None
    """In the process itself, what it runs."""


def _start_process(job: SimpleNamespace, room: Room, descriptors: list[int], run: Callable[[], None]) -> Started:
    """A confined copy of this process, whose descriptor 3 is where it reports; `run` is for it alone."""
    report, said = os.pipe()
    pid = os.fork()
    if pid:
        os.close(said)
        return Started(pid, report, None)
    try:
        _confine(job, room, [*descriptors[:3], said, *descriptors[3:]])
        os.write(3, b"c")
    except BaseException as error:
        os.write(said, f"!{type(error).__name__}: {error}".encode())
        os._exit(1)
    return Started(0, 3, run)


def _keep(job: SimpleNamespace) -> Callable[[], None]:
    """Runs all tests and writes the reply. Returns only in the processes of programs and tests, with what they run."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, "pdeathsig")
    # Else a program of the same user could look into this process.
    _prctl(_PR_SET_DUMPABLE, 0, "dumpable")
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, "subreaper")
    room = NamespaceRoom(job) if job.namespaces else PlainRoom(job)
    end = time.monotonic() + job.total
    results, runtimes = [], []
    for place in job.places:
        seconds = min(job.limit, end - time.monotonic())
        if seconds <= 0:
            results.append(0)
            runtimes.append(-1.0)
            continue
        room.refresh()
        null = os.open("/dev/null", os.O_RDWR)
        if job.mode == "stdio":
            test = _read_test(job.tests, place)
            source = _memory_file(test["input"])
            output, sink = os.pipe()
            with open(f"{room.folder}/main.py", "wb") as file:
                file.write(job.program.encode("utf-8", "surrogatepass"))
            program = _start_process(job, room, [source, sink, null], _run_script)
            if program.run:
                return program.run
            started, ours = [program], [null, source, sink]
        else:
            ends = [end.detach() for end in socket.socketpair()]
            run = partial(_run_test, place)
            judge = _start_process(job, room, [null, null, null, ends[1], job.tests], run)
            if judge.run:
                return judge.run
            # Before there is a program that could end it: that would look like a failure of the sandbox.
            _wait_until_confined(judge.report)
            run = partial(_run_assert, job.program)
            program = _start_process(job, room, [null, null, null, ends[0]], run)
            if program.run:
                return program.run
            started, ours = [program, judge], [null, *ends]
        for descriptor in ours:
            os.close(descriptor)
        _wait_until_confined(program.report)
        begin = time.monotonic()
        watch = Watch(job, room, seconds, apart=started[-1].pid if job.mode == "assert" else None)
        if job.mode == "stdio":
            printed = _output_of(program.pid, output, job.output_mb * MIB, watch)
            os.close(output)
            _check_started(program.report)
            passed = printed is not None and same_output(printed.decode("utf-8", "replace"), test["output"])
        else:
            passed = _passes_assert(judge.report, watch)
        results.append(int(passed))
        runtimes.append(round(time.monotonic() - begin, 6) if passed else -1.0)
        for process in started:
            os.close(process.report)
        room.clear()
    _reply({"results": results, "runtimes": runtimes, "protections": room.protections})
    os._exit(0)


def _reply(content: dict[str, object]) -> None:
    data = json.dumps(content).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]


# --- The outer process ------------------------------------------------------------------------------------------------


def _own_process_namespace() -> None:
    """The next child is process 1 of a new namespace; users without the privilege get it in a user namespace."""
    if _libc.unshare(_NEW_PID) == 0:
        return
    user, group = os.getuid(), os.getgid()
    _check(_libc.unshare(_NEW_USER | _NEW_PID), "unshare")
    for name, content in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(content)


def _start() -> Callable[[], None]:
    """Reads the job, starts the keeper and outlives it. Returns only in the processes of programs."""
    job = SimpleNamespace(**json.loads(sys.stdin.buffer.readline()))
    # Its descriptors lead to the tests.
    _prctl(_PR_SET_DUMPABLE, 0, "dumpable")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, "subreaper")
    try:
        if job.namespaces:
            _own_process_namespace()
        keeper = os.fork()
    except (JailError, OSError) as error:
        _reply({"error": str(error)})
        os._exit(1)
    if keeper == 0:
        first = os.getpid()
        try:
            return _keep(job)
        except BaseException as error:
            if os.getpid() == first:
                _reply({"error": f"{type(error).__name__}: {error}"})
            os._exit(1)
    ended = os.pidfd_open(keeper)
    select.select([ended, sys.stdin], [], [])
    signal.pidfd_send_signal(ended, signal.SIGKILL)
    os.waitpid(keeper, 0)
    if not job.namespaces:
        end_descendants()
    os._exit(0)


def main() -> None:
    """Never returns."""
    _start()()
