"""One process at a time in a run folder.

Decision: the kernel's lock on `RUN/.lock`, held until the run has ended or the process has. A process that was killed
thus holds none, and two starts at the same moment cannot both get it.

    >>> take(folder)                      # raises BlockingIOError where another process has it
    >>> release(folder)
"""

import contextlib
import fcntl
import os
from pathlib import Path

_held: dict[Path, int] = {}
"""Folder -> the descriptor of its lock."""


def take(folder: Path) -> bool:
    """Keeps other processes out of `folder`; False when this process does already.

    Raises:
        BlockingIOError: another process has it.
        OSError: the folder cannot be written.
    """
    if folder in _held:
        return False
    # Python's default: a program that is started does not inherit it.
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise
    except OSError:
        # A file system without locks, where the process id in run.json is all there is.
        pass
    _held[folder] = descriptor
    return True


def release(folder: Path) -> None:
    """Lets other processes have `folder`."""
    if folder in _held:
        os.close(_held.pop(folder))


def _forget() -> None:
    """In a fork, such as a data loader's worker: the lock is its parent's, and must not outlive it here."""
    for descriptor in _held.values():
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_forget)
