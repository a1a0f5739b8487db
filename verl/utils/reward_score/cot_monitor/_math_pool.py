"""math-verify in processes of its own, shared by all verifiers of this process.

Decision: a comparison that hangs or crashes costs its worker and has no result (None), which is no score; the next one
gets a new worker. math-verify must not run in threads, and the policy writes what it parses, so that only a process
can be given up safely. Workers are scripts, not forks: they are small, and hold nothing of this process.

    same_value(r"\\frac{1}{2}", "0.5")      # True
    same_value("9^{9^{9^{9}}}", "1")        # None, after `CPU_SECONDS`
"""

import atexit
import json
import logging
import os
import subprocess
import sys
import threading
from multiprocessing import Pipe
from pathlib import Path

logger = logging.getLogger(__name__)

CPU_SECONDS = 3.0
"""Processor time that one comparison may take."""
WALL_SECONDS = 60.0
"""Time after which a worker counts as dead: it may have been stopped, or have waited for a processor."""
WORKERS = min(4, os.cpu_count() or 1)
"""Most workers of one process; one is started when all others are busy."""

_SCRIPT = Path(__file__).with_name("_math_worker.py")


class Worker:
    """One process and the connection to it."""

    def __init__(self) -> None:
        """Starts it; it is ready when it says so."""
        self._connection, theirs = Pipe()
        with theirs:
            # Sets are ordered by hashes; with a fixed seed every run compares in the same order.
            self.process = subprocess.Popen(
                [sys.executable, "-P", str(_SCRIPT), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONHASHSEED": "0"},
            )
        self._ready = False

    def ask(self, answer: str, truth: str) -> bool:
        """Whether both are the same.

        Raises:
            EOFError, OSError: the worker died.
            TimeoutError: it does not answer.
            RuntimeError: it could not start.
        """
        if not self._ready:
            try:
                self._receive()
            except (EOFError, ConnectionError) as error:
                raise RuntimeError("the worker of math-verify does not start: see the log for its error") from error
            self._ready = True
        self._connection.send_bytes(json.dumps([answer, truth, CPU_SECONDS]).encode())
        return json.loads(self._receive())

    def _receive(self) -> bytes:
        if not self._connection.poll(WALL_SECONDS):
            raise TimeoutError(f"no answer for {WALL_SECONDS:g} s")
        return self._connection.recv_bytes()

    def forget(self) -> None:
        """Closes the connection, and leaves the process to whoever else holds it."""
        self._connection.close()

    def end(self) -> None:
        """Ends the process, whatever it does."""
        self.forget()
        self.process.kill()
        self.process.wait()


class MathPool:
    """Up to `WORKERS` workers; any thread may ask."""

    def __init__(self) -> None:
        """Starts nothing yet."""
        self._idle: list[Worker] = []
        self._all: set[Worker] = set()
        self._lock = threading.Lock()
        self._free = threading.Semaphore(WORKERS)

    def same_value(self, answer: str, truth: str) -> bool | None:
        """Whether two LaTeX expressions are the same; None if that cannot be told.

        Raises:
            RuntimeError: no worker can be started.
        """
        with self._free:
            worker = self._take()
            try:
                same = worker.ask(answer, truth)
            except (EOFError, OSError) as error:
                logger.warning("math-verify cannot compare %.80r with %.80r: %s", answer, truth, str(error) or "killed")
                self._give_up(worker)
                return None
            except BaseException:
                # Its answer may still come, and would be taken for that to the next question.
                self._give_up(worker)
                raise
            with self._lock:
                self._idle.append(worker)
            return same

    def _take(self) -> Worker:
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if worker.process.poll() is None:
                    return worker
                self._all.discard(worker)
                worker.end()
        worker = Worker()
        with self._lock:
            self._all.add(worker)
        return worker

    def _give_up(self, worker: Worker) -> None:
        worker.end()
        with self._lock:
            self._all.discard(worker)

    @property
    def pids(self) -> list[int]:
        """Of the processes that there are."""
        with self._lock:
            return sorted(worker.process.pid for worker in self._all)

    def close(self) -> None:
        """Ends all workers."""
        with self._lock:
            workers, self._all, self._idle = self._all, set(), []
        for worker in workers:
            worker.end()

    def forget(self) -> None:
        """Leaves all workers to the process that this one is a forked copy of."""
        for worker in self._all:
            worker.forget()


_pool = MathPool()


def pool() -> MathPool:
    """The pool of this process."""
    return _pool


def _after_fork() -> None:
    """Questions of two processes over one connection would get each other's answers."""
    global _pool
    _pool.forget()
    _pool = MathPool()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(lambda: _pool.close())


def same_value(answer: str, truth: str) -> bool | None:
    """`MathPool.same_value` of this process' pool."""
    return _pool.same_value(answer, truth)
