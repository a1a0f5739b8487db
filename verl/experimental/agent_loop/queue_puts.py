"""Rows on their way into upstream's queue, many in one put.

Decision: upstream puts each row by itself, with three requests to other processes. That is about as much work as making
the row. Here the first row is put at once. Rows that come while a put is under way go together in the next one, as
columns whose values are not wrapped one by one. A put that fails is repeated row by row, so that one bad row spoils no
other.

    >>> agent_loop_tq.tq = PutsTogether(transfer_queue)
    >>> agent_loop_tq.list_of_dict_to_tensordict = list          # rows stay rows until they are put
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch


class Values(Sequence[Any]):
    """A column of the queue that holds no tensors: in a TensorDict each value would be wrapped."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __getitem__(self, at: Any) -> Any:
        """The value at a place, or the column of those at a list of places."""
        return Values([self._values[i] for i in at]) if isinstance(at, list) else self._values[at]

    def __reduce__(self) -> tuple[Any, ...]:
        """What reaches the queue is a list."""
        return list, (self._values,)


class Columns(dict[str, Any]):
    """Rows as the queue takes them, by field: tensors (N, ...), nested where their shapes differ, or `Values`.

    Stands for upstream's `list_of_dict_to_tensordict`, whose result has the same contents.
    """

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        super().__init__({name: _column([row[name] for row in rows]) for name in rows[0]})
        self.batch_size = torch.Size([len(rows)])


def _column(values: list[Any]) -> Any:
    if not all(isinstance(value, torch.Tensor) for value in values):
        return Values(values)
    # Stacked values of several types would all become the widest one; nested they are refused, and put row by row.
    if all((value.shape, value.dtype) == (values[0].shape, values[0].dtype) for value in values):
        return torch.stack(values)
    return torch.nested.as_nested_tensor(values, layout=torch.jagged)


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
        self._waiting: list[tuple[tuple[Any, ...], _Put]] = []
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
        self._waiting.append((put.kind, put))
        if self._under_way is None:
            self._under_way = asyncio.create_task(self._put_all())
        await put.done

    async def _put_all(self) -> None:
        try:
            while self._waiting:
                puts, self._waiting = self._waiting, []
                kinds: dict[tuple[Any, ...], list[_Put]] = {}
                for kind, put in puts:
                    kinds.setdefault(kind, []).append(put)
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
                fields=Columns(rows) if rows else None,
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
