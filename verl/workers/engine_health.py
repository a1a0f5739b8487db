"""Whether an engine still serves: it counts what it leaves unanswered, and says so to whoever pings it.

One decision: there are two ways to hang. A process that stands still answers no ping; one that lives and computes
nothing answers pings and lets request after request run out of time. An engine therefore answers a ping with the
number of requests that it let run out while it answered no other, so that one slow request is told from a hang.

    >>> patience = Patience(600.0)
    >>> await patience.wait(engine.generate(prompt_ids, params, "a"))      # TimeoutError after 600 s
    >>> hangs(patience.unanswered)
    False
"""

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")

CONCURRENT_CALLS = 1_000_000
"""Calls that an engine's actor takes at a time: so many that a ping never waits for a request to end."""

UNANSWERED_LIMIT = 3
"""Requests that an engine lets run out of time, with no other answered meanwhile, before it counts as hanging."""


def hangs(unanswered: int) -> bool:
    """Whether an engine that answers a ping with this number counts as hanging."""
    return unanswered >= UNANSWERED_LIMIT


def why_it_hangs(unanswered: int) -> str | None:
    """Why an engine hangs, by its answer to a ping; None if it serves."""
    return f"it let {unanswered} requests in a row run out of time" if hangs(unanswered) else None


class Patience:
    """How long the requests of one engine may take, and how many in a row took longer."""

    def __init__(self, seconds: float | None = None) -> None:
        """`seconds`: longest time of a request; None: no limit."""
        self.seconds = seconds
        self.unanswered = 0
        """Requests that ran out of time since the last answer."""
        self._answered_at = float("-inf")

    async def wait(self, answer: Awaitable[T]) -> T:
        """What `answer` brings; it is cancelled when its time is over.

        Raises:
            TimeoutError: when it is.
        """
        began = time.monotonic()
        try:
            async with asyncio.timeout(self.seconds):
                found = await answer
        except TimeoutError:
            self.ran_out(began)
            raise
        self.answered()
        return found

    def answered(self) -> None:
        """A request was answered just now."""
        self.unanswered, self._answered_at = 0, time.monotonic()

    def ran_out(self, began: float) -> None:
        """The time of a request is over that came at `began` (`time.monotonic`).

        Where others were answered meanwhile, the engine is slow or busy and does not hang.
        """
        if began >= self._answered_at:
            self.unanswered += 1
