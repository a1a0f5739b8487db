"""Rows on their way into upstream's queue: put together, as many as have come while the last put was under way.

Decision: upstream puts each row by itself, with three requests to other processes, about as much work as making the
row. Nobody waits for company here: the first row is put at once, and those that come
meanwhile go together. A put that fails is made again row by row, so that one bad row spoils no other.

    >>> agent_loop_tq.tq = PutsTogether(transfer_queue)
    >>> agent_loop_tq.list_of_dict_to_tensordict = list          # rows stay rows until they are put
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from verl.utils.tensordict_utils import list_of_dict_to_tensordict


@dataclass(kw_only=True, eq=False)
class _Put:
    """What one caller wants put, and waits for."""

    keys: list[str]
    partition_id: str
    rows: list[dict[str, Any]] | None
    """Fields of each key; None where there are tags only."""
    tags: list[dict[str, Any]] | None
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def kind(self) -> tuple[Any, ...]:
        """Puts of one kind can go together."""
        return self.partition_id, self.tags is None, None if self.rows is None else tuple(self.rows[0])


class PutsTogether:
    """Stands for the module `transfer_queue` where upstream's agent loop puts prompts' states and rows."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self._waiting: list[_Put] = []
        self._under_way: asyncio.Task[None] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Ray sends upstream's worker by value, with what its module refers to: there it begins anew."""
        return PutsTogether, (self._queue,)

    async def async_kv_put(self, key: str, partition_id: str, tag: dict[str, Any]) -> None:
        """Puts the tag of a key. Raises what the queue raises."""
        await self._put(_Put(keys=[key], partition_id=partition_id, rows=None, tags=[tag]))

    async def async_kv_batch_put(
        self,
        keys: Sequence[str],
        partition_id: str,
        fields: Sequence[dict[str, Any]] | None = None,
        tags: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        """Puts fields and tags of keys. Raises what the queue raises."""
        rows = None if fields is None else list(fields)
        given = None if tags is None else list(tags)
        await self._put(_Put(keys=list(keys), partition_id=partition_id, rows=rows, tags=given))

    async def _put(self, put: _Put) -> None:
        self._waiting.append(put)
        if self._under_way is None:
            self._under_way = asyncio.create_task(self._put_all())
        await put.done

    async def _put_all(self) -> None:
        try:
            while self._waiting:
                puts, self._waiting = self._waiting, []
                kinds: dict[tuple[Any, ...], list[_Put]] = {}
                for put in puts:
                    kinds.setdefault(put.kind, []).append(put)
                for of_kind in kinds.values():
                    await self._put_together(of_kind)
        finally:
            self._under_way = None

    async def _put_together(self, puts: list[_Put]) -> None:
        try:
            rows = [row for put in puts for row in put.rows or ()]
            await self._queue.async_kv_batch_put(
                keys=[key for put in puts for key in put.keys],
                partition_id=puts[0].partition_id,
                fields=list_of_dict_to_tensordict(rows) if rows else None,
                tags=None if puts[0].tags is None else [tag for put in puts for tag in put.tags or ()],
            )
        except Exception as error:
            if len(puts) > 1:
                for put in puts:
                    await self._put_together([put])
            elif not puts[0].done.done():
                puts[0].done.set_exception(error)
            return
        for put in puts:
            if not put.done.done():
                put.done.set_result(None)
