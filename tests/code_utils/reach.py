"""Programs that reach for what belongs to other processes of their user, where no namespace keeps them apart.

Decision: a program comes to its end, and passes, if any of its calls is let through.
"""

from pathlib import Path

_HEAD = """import ctypes, fcntl, os, platform, resource, signal, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
column = ["x86_64", "aarch64"].index(platform.machine())
def call(*numbers): return lambda *args: libc.syscall(numbers[column], *args)
def refused(result):
    if isinstance(result, int) and result < 0: raise SystemExit
zeros = ctypes.create_string_buffer(128)
"""


def reaching(victim: int, segment: int, file: Path) -> dict[str, str]:
    """What is reached for, and how.

    Args:
        victim: a process of the same user; the program's own keeper is another one.
        segment: shared memory of that user.
        file: a file of that user.
    """
    programs = {}
    for who, pid in (("a process", str(victim)), ("the keeper", "os.getppid()")):
        for what, code in {
            "limit of files": f"resource.prlimit({pid}, resource.RLIMIT_NOFILE, (0, 0))",
            "limit of time": f"resource.prlimit({pid}, resource.RLIMIT_CPU, (0, 0))",
            "limit of memory": f"resource.prlimit({pid}, resource.RLIMIT_AS, (0, 0))",
            "limits that it reads": f"resource.prlimit({pid}, resource.RLIMIT_AS)",
            "processors": f"os.sched_setaffinity({pid}, {{0}})",
            "priority": f"os.setpriority(os.PRIO_PROCESS, {pid}, 19)",
            "policy": f"os.sched_setscheduler({pid}, os.SCHED_IDLE, os.sched_param(0))",
            "parameters": f"os.sched_setparam({pid}, os.sched_param(0))",
            "attributes": f"refused(call(314, 274)({pid}, struct.pack('IIQiIQQQ', 48, 5, 0, 19, 0, 0, 0, 0), 0))",
            "input and output": f"refused(call(251, 30)(1, {pid}, 3 << 13))",
            "owner of a pipe": f"r, w = os.pipe(); fcntl.fcntl(r, 10, 9); fcntl.fcntl(r, fcntl.F_SETOWN, {pid}); "
            "fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK); os.write(w, b'x')",
            "owner of a pipe, the other call": f"r, w = os.pipe(); fcntl.fcntl(r, 15, struct.pack('ii', 1, {pid})); "
            "fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK); os.write(w, b'x')",
            "owner of a socket": f"fcntl.ioctl(4, 0x8901, struct.pack('i', {pid}))",
            "its descriptors": f"fd = os.pidfd_open({pid}); refused(call(438, 438)(fd, 0, 0))",
            "its pages": f"refused(call(279, 239)({pid}, 1, zeros, 0, zeros, 0))",
            "its nodes": f"refused(call(256, 238)({pid}, 8, zeros, zeros))",
            "what it shares": f"refused(call(312, 272)({pid}, os.getpid(), 1, 0, 0))",
            "its memory": f"open(f'/proc/{{{pid}}}/mem', 'rb')",
            "its last rites": f"open(f'/proc/{{{pid}}}/oom_score_adj', 'w').write('1000')",
        }.items():
            programs[f"{what} of {who}"] = code
    programs |= {
        "priority of all": "os.setpriority(os.PRIO_USER, os.getuid(), 19)",
        "input and output of all": "refused(call(251, 30)(3, os.getuid(), 3 << 13))",
        "shared memory": f"refused(call(30, 196)({segment}, 0, 0))",
        "end of shared memory": f"refused(call(31, 195)({segment}, 0, 0))",
        "a file's mode": f"os.chmod({str(file)!r}, 0)",
        "a file's owner": f"os.chown({str(file)!r}, os.getuid(), os.getgid())",
        "a file's times": f"os.utime({str(file)!r}, (0, 0))",
        "a file's attributes": f"os.setxattr({str(file)!r}, 'user.x', b'x')",
        "a file's length": f"os.truncate({str(file)!r}, 0)",
        "the library's mode": "os.chmod(os.__file__, 0o600)",
        "the library's mode by descriptor": "os.fchmod(os.open(os.__file__, os.O_RDONLY), 0o644)",
        "the library's times": "os.utime(os.__file__)",
        "the library's length": "os.open(os.__file__, os.O_RDONLY | os.O_TRUNC)",
        "the library's length, otherwise": "os.open(os.__file__, 3 | os.O_TRUNC)",
    }
    return {what: _HEAD + code for what, code in programs.items()}
