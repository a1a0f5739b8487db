"""Awaits from code that is not async, wherever it is called from: a script, a notebook, a thread of a trainer.

One decision: all that the pipeline awaits runs in one loop in one thread of this process, which lives as long as the
process. So connections and engines stay with their loop, and a caller that has a loop of its own is not in the way.

    >>> await_here(client.complete("classmate/0", ids, params))
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="reasoning-loop", daemon=True)
        self.thread.start()


_lock = threading.Lock()
_current: _Loop | None = None


def await_here(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, or what it raises."""
    loop = _of_this_process()
    if threading.current_thread() is loop.thread:
        # An async function of the user's that calls something of ours which waits: its loop cannot wait for itself.
        loop = _Loop()
        try:
            return asyncio.run_coroutine_threadsafe(work, loop.loop).result()
        finally:
            loop.loop.call_soon_threadsafe(loop.loop.stop)
    future = asyncio.run_coroutine_threadsafe(work, loop.loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _of_this_process() -> _Loop:
    global _current
    with _lock:
        # Threads do not survive a fork.
        if _current is None or _current.pid != os.getpid():
            _current = _Loop()
        return _current
