"""What engines that run whole batches through one model have in common: waiting, batches, sleep, a sign of life.

One decision: what waits is sorted by length and run in batches of a bounded number of tokens, so that a short text is
never padded to a long one. The methods that a group of frozen models calls on its engines are here too.

    class Lengths(BatchingEngine[list[int], int]):
        def _length(self, item): return len(item)
        def _run(self, items): return [len(one) for one in items]
"""

import asyncio
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

import torch

from verl.workers.engine_health import Patience
from verl.workers.rollout.hf_rollout_server.engine import EngineConfig

MAX_BATCH_TOKENS = 16384
"""Most tokens of one batch, padding included; a longer text runs alone."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class BatchingEngine(ABC, Generic[Item, Result]):
    """One model, in a Ray actor or in the process that asks."""

    def __init__(self, config: EngineConfig, model: Any, *, frees_memory: bool, patience_s: float | None) -> None:
        """Keeps its parts.

        Args:
            config: the engine; with `deterministic` each item runs alone.
            model: that `sleep` moves.
            frees_memory: whether `sleep` moves the weights to the host's memory.
            patience_s: longest time of a request; None: no limit.
        """
        self.config, self.model = config, model
        self.frees_memory = frees_memory
        self.batches = 0
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._work_under_way: asyncio.Task[None] | None = None
        self._patience = Patience(patience_s)

    @abstractmethod
    def _length(self, item: Item) -> int:
        """Tokens of an item, about."""

    @abstractmethod
    def _run(self, items: list[Item]) -> list[Result]:
        """One batch."""

    async def ready(self) -> int:
        """Returns, once the model is loaded, the most tokens of a text."""
        return self.config.max_model_len or 0

    async def _ask(self, item: Item) -> Result:
        """The result of an item, within a batch.

        Raises:
            TimeoutError: its time is over.
        """
        return await self._patience.wait(self._join(item))

    async def _join(self, item: Item) -> Result:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        # What else is asked in this round of the event loop joins the batch.
        await asyncio.sleep(0)
        if not self._busy:
            # A task of its own: an item whose time is over must not take the others along.
            self._work_under_way = asyncio.create_task(self._work())
        return await future

    @property
    def _busy(self) -> bool:
        return self._work_under_way is not None and not self._work_under_way.done()

    async def _work(self) -> None:
        """Runs batches until nothing waits."""
        while batch := self._take_batch():
            items = [one for one, _ in batch]
            self.batches += 1
            self.config.set_threads()
            try:
                results = await asyncio.to_thread(self._run, items) if self.config.own_thread else self._run(items)
            except Exception as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), result in zip(batch, results, strict=True):
                if not future.done():
                    future.set_result(result)

    def _take_batch(self) -> list[tuple[Item, "asyncio.Future[Result]"]]:
        """The longest that wait, as many as fit; none where nobody waits any more."""
        self._waiting = [(item, future) for item, future in self._waiting if not future.done()]
        if not self._waiting:
            return []
        self._waiting.sort(key=lambda one: self._length(one[0]), reverse=True)
        widest = self._length(self._waiting[0][0])
        rows = min(self.config.max_batch_size, max(1, MAX_BATCH_TOKENS // max(1, widest)))
        rows = 1 if self.config.deterministic else rows
        batch, self._waiting = self._waiting[:rows], self._waiting[rows:]
        return batch

    async def ping(self) -> int:
        """How many requests in a row ran out of time; a living engine answers."""
        return self._patience.unanswered

    async def wait_for_requests_to_drain(self) -> None:
        """Returns when nothing is being scored."""
        while self._busy or self._waiting:
            await asyncio.sleep(0.01)

    async def sleep(self) -> None:
        """Frees the GPU's memory."""
        if self.frees_memory:
            self.model.to("cpu")
            torch.cuda.empty_cache()

    async def wake_up(self) -> None:
        """Undoes `sleep`."""
        if self.frees_memory:
            self.model.to(torch.device(self.config.device))
