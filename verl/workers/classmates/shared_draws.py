"""Requests that several rows have in common, asked once for all of them.

One decision: shared answers live as long as the block that shares them, such as the making of one prompt's rows, and
all tasks started in the block see them. So nothing has to be cleared. Outside of such a block each row asks for itself,
and gets the same answer with the same seeds.

    >>> with shared_draws():
    ...     rows = await asyncio.gather(*(judge.judge(answer) for answer in answers_to_one_prompt))
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

_T = TypeVar("_T")

_DRAWS: ContextVar[dict[Hashable, asyncio.Task[Any]] | None] = ContextVar("shared_draws", default=None)


@contextmanager
def shared_draws() -> Iterator[None]:
    """Tasks started inside share what `drawn_once` asks; what nobody waits for any more ends with the block."""
    draws: dict[Hashable, asyncio.Task[Any]] = {}
    token = _DRAWS.set(draws)
    try:
        yield
    finally:
        _DRAWS.reset(token)
        for task in draws.values():
            task.cancel()
        # Whatever was started inside, such as a connection, may live on with its context.
        draws.clear()


async def drawn_once(key: Hashable, draw: Callable[[], Awaitable[_T]]) -> _T:
    """What `draw` gives for `key`, asked once in a block of `shared_draws`.

    A row that is cancelled while it waits leaves the request to the others.
    """
    draws = _DRAWS.get()
    if draws is None:
        return await draw()
    if key not in draws:
        draws[key] = asyncio.ensure_future(_awaited(draw))
    return await asyncio.shield(draws[key])


async def _awaited(draw: Callable[[], Awaitable[_T]]) -> _T:
    return await draw()
