"""Programs that no service should survive unprotected, by kind; none of them may pass, nor touch anything outside.

Decision: every program either ends by itself without reaching its test, or never ends. So "contained" is one rule for
all: the result is 0, and what the program was after is still there.

    for kind, programs in corpus(Target(pid=pid, outside=folder, port=port)).items(): ...
"""
# ruff: noqa: E501

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TEST = "assert True"
"""Passes if a program comes to its end, which none does unless what it tried has worked."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """What programs go for."""

    pid: int
    """The service's process."""
    outside: Path
    """A folder whose files must be neither read nor changed."""
    port: int
    """A port of this machine that must not be reached."""


_FORKS = "import os, time\n"
_END = "\nraise SystemExit"


_PROGRAMS: dict[str, list[str]] = {
    "fork bomb": [
        "import os\nwhile True:\n    os.fork()",
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        *(
            f"{_FORKS}for _ in range({count}):\n    try: os.fork()\n    except OSError: pass\ntime.sleep({seconds})"
            for count, seconds in ((5, 60), (7, 60), (20, 1), (100, 60))
        ),
        "import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(60,)).start()",
        "import multiprocessing, time\nwhile True:\n    multiprocessing.Process(target=time.sleep, args=(60,)).start()",
        "import subprocess, sys\nwhile True:\n    subprocess.Popen([sys.executable, '-c', 'while True: pass'])",
        "import os, time\nwhile True:\n    if os.fork() == 0:\n        os.setsid()\n        time.sleep(60)",
        *(
            f"import os, time\nfor _ in range({count}):\n    if os.fork() == 0:\n        while True: pass\ntime.sleep(60)"
            for count in (3, 10, 31, 64)
        ),
    ],
    "escape": [
        "import os, time\nif os.fork():\n    os._exit(0)\nos.setsid()\nif os.fork():\n    os._exit(0)\ntime.sleep(600)",
        *(
            f"import os, signal, time\nfor _ in range({depth}):\n    if os.fork():\n        os._exit(0)\n    os.setsid()\n"
            "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)"
            for depth in (1, 2, 5, 20)
        ),
        "import os, time\nos.setpgid(0, 0)\ntime.sleep(600)",
        "import os, time\nif os.fork() == 0:\n    os.setpgid(0, 0)\n    while True: time.sleep(1)\nos._exit(0)",
        *(
            f"import ctypes\nlibc = ctypes.CDLL(None)\nif libc.{call} != 0: raise OSError"
            for call in (
                "unshare(0x10000000)", "unshare(0x20000)", "setuid(0)", "setresuid(0, 0, 0)", "chroot(b'..')",
                "mount(b'none', b'/tmp', b'tmpfs', 0, None)", "umount2(b'/tmp', 2)", "ptrace(16, 1, 0, 0)",
                "swapoff(b'/')", "sethostname(b'x', 1)", "reboot(0)", "syscall(321, 0, 0, 0)",
                "syscall(425, 8, 0)", "syscall(319, b'x', 0)", "prctl(23, 21, 0, 0, 0) - 1", "nice(-10)",
            )
        ),
        "import resource\nresource.setrlimit(resource.RLIMIT_NPROC, (10**6, 10**6))",
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 50, 1 << 50))",
    ],
    "memory": [
        *(f"x = bytearray({size} << 20)" + _END for size in (300, 600, 4000, 100000)),
        *(f"x = []\nwhile True: x.append(bytes({size}))" for size in (100, 10_000, 1 << 20, 50 << 20)),
        "x = [0]\nwhile True: x += x",
        "x = 'a'\nwhile True: x += x",
        "x = {}\nwhile True: x = {0: x, 1: list(range(10**6))}",
        "x = 10 ** 10 ** 8\nprint(x)" + _END,
        *(
            f"import os, time\nfor _ in range({count}):\n    if os.fork() == 0: break\nx = bytearray(b'x' * ({size} << 20))\n"
            "time.sleep(60)"
            for count, size in ((8, 100), (30, 50), (3, 150))
        ),
        "import mmap\nx = [mmap.mmap(-1, 1 << 30) for _ in range(100)]" + _END,
    ],
    "disk": [
        "i = 0\nwhile True:\n    open(f'f{i}', 'wb').write(b'x' * (1 << 20))\n    i += 1",
        "f = open('f', 'wb')\nwhile True:\n    f.write(b'x' * (1 << 20))\n    f.flush()",
        "i = 0\nwhile True:\n    open(f'f{i}', 'w').close()\n    i += 1",
        "import os\ni = 0\nwhile True:\n    os.mkdir(f'd{i}')\n    i += 1",
        "import os\nwhile True:\n    os.mkdir('d')\n    os.chdir('d')",
        "import os\nfor _ in range(1500):\n    os.mkdir('d')\n    os.chmod('.', 0)\n    os.chdir('d')",
        "f = open('f', 'wb')\nf.truncate(1 << 40)",
        "import os\nfd = os.open('f', os.O_CREAT | os.O_RDWR)\nos.posix_fallocate(fd, 0, 1 << 36)",
        "import os\nfd = os.open('f', os.O_CREAT | os.O_RDWR)\nos.unlink('f')\nwhile True: os.write(fd, b'x' * 65536)",
        "import tempfile\nwhile True:\n    with open(tempfile.mkstemp()[1], 'wb') as f: f.write(b'x' * (8 << 20))",
        *(
            f"open('{path}/code_sandbox_left', 'wb').write(b'x')"
            for path in ("/dev/shm/..", "/var/tmp", "/", "/usr/lib", "/proc", "/dev", "<outside>")
        ),
    ],
    "output": [
        "while True: print('x' * 10000)",
        "while True: print('x')",
        "import sys\nwhile True: sys.stderr.write('x' * 10000)",
        "import os\nwhile True: os.write(1, b'x' * 65536)",
        "import os\nwhile True: os.write(2, b'x' * 65536)",
        "import os\nwhile True:\n    for fd in range(3, 64):\n        try: os.write(fd, b'x' * 1000)\n        except OSError: pass",
        "import sys\nwhile True: print(chr(0x10FFFF) * 1000, flush=True)",
    ],
    "signals": [
        *(
            f"import os, signal\ntry: os.kill({pid}, signal.{name})\nexcept OSError: pass" + _END
            for pid in ("os.getppid()", "1", "-1", "<pid>", "0", "-os.getppid()")
            for name in ("SIGKILL", "SIGTERM", "SIGSTOP", "SIGINT", "SIGSEGV")
        ),
        "import os, signal\nfor pid in range(2, 100000):\n    try: os.kill(pid, signal.SIGKILL)\n    except OSError: pass" + _END,
        "import os, signal\nos.killpg(os.getpgid(os.getppid()), signal.SIGKILL)" + _END,
        "import os, signal\nos.killpg(0, signal.SIGSTOP)" + _END,
        "import signal, time\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\ntime.sleep(600)",
        "import ctypes\nctypes.CDLL(None).prctl(1, 0)\nimport time\ntime.sleep(600)",
        "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    ],
    "files": [
        *(
            f"open('{path}', 'rb').read(1)"
            for path in (
                "/etc/passwd", "/etc/shadow", "/etc/hostname", "/proc/1/environ", "/proc/1/mem", "/proc/kcore",
                "/proc/self/../1/root/etc/passwd", "/sys/kernel/notes", "/boot/grub/grub.cfg", "/dev/sda", "/dev/mem",
                "/proc/sys/kernel/hostname", "/var/log/dpkg.log", "<outside>/secret",
            )
        ),
        *(f"import os\nos.listdir('{path}')[0]" for path in ("/home", "/var", "/sys", "/boot", "<outside>")),
        "import os\nos.remove('<outside>/secret')",
        "import os\nos.symlink('<outside>/secret', 's')\nopen('s').read()",
        "import os\nos.link('<outside>/secret', 's')\nopen('s').read()",
        "import shutil\nshutil.rmtree('<outside>')",
        "import shutil\nshutil.rmtree('/', ignore_errors=True)" + _END,
        "import os\nopen(os.__file__, 'a').write('x')",
        "import sys\nopen(sys.executable, 'ab').write(b'x')",
        *(f"import os\nfd = os.open('/proc/{pid}/fd/0', os.O_RDWR)" for pid in (1, "<pid>")),
    ],
    "network": [
        *(
            f"import socket\nsocket.create_connection(('{host}', {port}), timeout=1)"
            for host, port in (("127.0.0.1", "<port>"), ("localhost", "<port>"), ("::1", "<port>"))
        ),
        "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:<port>', timeout=1).read()",
        "import socket\nsocket.getaddrinfo('example.com', 80)[0]",
        "import socket\ns = socket.socket()\ns.bind(('127.0.0.1', 0))",
        *(
            f"import socket\nsocket.socket(socket.{family}, socket.{kind})"
            for family, kind in (
                ("AF_UNIX", "SOCK_STREAM"), ("AF_INET", "SOCK_DGRAM"), ("AF_INET", "SOCK_RAW"),
                ("AF_INET6", "SOCK_STREAM"), ("AF_NETLINK", "SOCK_RAW"), ("AF_PACKET", "SOCK_RAW"),
                ("AF_VSOCK", "SOCK_STREAM"), ("AF_ALG", "SOCK_SEQPACKET"),
            )
        ),
    ],
    "never ends": [
        "while True: pass",
        "import time\ntime.sleep(10**6)",
        "import threading\nthreading.Event().wait()",
        "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
        "import os\nr, w = os.pipe()\nos.read(r, 1)",
        "import os\nos.wait4(-1, 0)\nwhile True: pass",
        "import time\ntry:\n    while True: time.sleep(1)\nfinally:\n    while True: pass",
        "import signal\nsignal.pause()",
        "x = 7\nwhile x: x = x * x + 1 if x < 10**6 else 7",
        "import re\nre.match(r'(a+)+$', 'a' * 64 + 'b')",
        "import itertools\nsum(itertools.repeat(1))",
        "import atexit, time\natexit.register(time.sleep, 600)\nraise SystemExit",
        "class A:\n    def __del__(self):\n        while True: pass\na = A()\ndel a",
    ],
    "descriptors": [
        "import os\nos.closerange(0, 100000)" + _END,
        "import os\nos.closerange(0, 100000)",
        "import os\nfor fd in range(3, 64):\n    try: os.close(fd)\n    except OSError: pass\nos.dup2(0, 3)",
        "import sys\nsys.stdin.close(); sys.stdout.close(); sys.stderr.close()" + _END,
        "import os\nopened = []\nwhile True: opened.append(os.open('/dev/null', 0))",
        "import os\nwhile True: os.pipe()",
        "import os\nfor fd in range(3, 64):\n    try: os.set_blocking(fd, True); os.read(fd, 1)\n    except OSError: pass",
    ],
    "recursion": [
        "def f(): f()\nf()",
        *(f"import sys\nsys.setrecursionlimit({depth})\ndef f(): f()\nf()" for depth in (10**5, 10**7, 2**31 - 1)),
        "import sys\nsys.setrecursionlimit(10**9)\nclass A:\n    def __repr__(self): return repr(self)\nrepr(A())",
        "x = []\nfor _ in range(10**6): x = [x]\nprint(x)",
        "eval('(' * 10**6)",
        "eval('-' * 10**6 + '1')",
        "import ctypes\nctypes.string_at(0)",
        "import ctypes\nctypes.memset(id(None), 0, 4096)",
        "import os\nos.abort()",
    ],
    "forgery": [
        *(f"import os\nos._exit({code})" for code in (0, 1, 255)),
        "import sys\nsys.exit(0)", "exit(0)", "raise SystemExit(0)", "raise KeyboardInterrupt", "quit()",
        *(
            f"import os\nfor fd in range(64):\n    try: os.write(fd, {answer!r})\n    except OSError: pass\nos._exit(0)"
            for answer in (b"1\n", b"pass\n", b'{"results": [1], "runtimes": [0.1]}\n', b"r", b"c", b"cr" + b"0" * 32, b"r\0")
        ),
        "print('{\"results\": [1], \"runtimes\": [0.1], \"protections\": []}')\nimport os\nos._exit(0)",
        "import builtins\nbuiltins.exec = builtins.compile = lambda *a: None\nimport os\nos._exit(0)",
        "import sys\nsys.modules['os'] = None\nsys.exit()",
        "import atexit, os\natexit.register(os._exit, 0)\nraise SystemExit",
        "import sys\nsys._getframe(1).f_globals['_passes_assert'] = lambda *a: True\nraise SystemExit",
        "assert False",
        "def",
        "\0",
    ],
}  # fmt: skip
"""By kind; `<pid>`, `<outside>` and `<port>` stand for what a `Target` says."""


def corpus(target: Target) -> dict[str, list[str]]:
    """At least 200 programs, by kind."""
    places = {"<pid>": str(target.pid), "<outside>": str(target.outside), "<port>": str(target.port)}

    def aimed(program: str) -> str:
        for mark, place in places.items():
            program = program.replace(mark, place)
        return program

    return {kind: [aimed(program) for program in programs] for kind, programs in _PROGRAMS.items()}


def one_of_each(target: Target) -> Iterator[tuple[str, str]]:
    """A short corpus: (kind, program), the first few of each kind."""
    for kind, programs in corpus(target).items():
        for program in programs[:: max(len(programs) // 3, 1)]:
            yield kind, program
