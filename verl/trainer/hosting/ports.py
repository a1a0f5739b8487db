"""Free ports for servers, which no other launcher of this user takes meanwhile."""

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from verl.classmate.errors import ConfigError
from verl.trainer.hosting.options import Options


@contextlib.contextmanager
def reserved_ports(options: Options) -> Iterator[list[int]]:
    """One free port per model, which no other launcher of this user takes meanwhile.

    Raises:
        ConfigError: when a port that was asked for is taken.
    """
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        candidate = options.port or options.first_port
        while len(ports) < len(options.models):
            if candidate > 65535:
                raise ConfigError(f"no {len(options.models)} free ports from {options.port or options.first_port} on")
            if _is_free(options.host, candidate) and _reserve(stack, candidate):
                ports.append(candidate)
            elif options.port is not None:
                raise ConfigError(f"port {candidate} on {options.host} is taken; leave --port out to get free ones")
            candidate += 1
        yield ports


def _is_free(host: str, port: int) -> bool:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ConfigError(f"--host={host} is not an address of this machine ({error})") from error
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind(address)
            return True
    return False


def _reserve(stack: contextlib.ExitStack, port: int) -> bool:
    """A server takes its port only when its model has loaded: until then a lock keeps other launchers away from it."""
    from filelock import FileLock, Timeout

    lock = FileLock(Path(tempfile.gettempdir()) / f"classmate_port_{os.getuid()}_{port}.lock")
    try:
        stack.enter_context(lock.acquire(timeout=0))
    except Timeout:
        return False
    return True
