"""Requests that wait and requests that run: which run together, and when.

Decision: one lock for all of it. A batch starts when arrivals have calmed down, and takes the oldest requests that fit
together; later ones join it by the same rule. A hold keeps requests waiting, whatever its reason.

    waiting = Waiting(config)
    waiting.put(request)                       # in any thread
    batch = waiting.next_batch()               # in the one that runs the batches; blocks
    waiting.done()
"""

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

import torch

from verl.workers.rollout.hf_rollout_server.fixed_rows import padded_length
from verl.workers.rollout.hf_rollout_server.request import Request

_MOST_TOLD = 2048
"""Most tokens of one batch whose log-probs are told: each has a row of logits as wide as the vocabulary."""


def _shape(request: Request) -> tuple[int, int]:
    """What requests of one deterministic forward have in common: columns of the prompt, and tokens to tell of."""
    return padded_length(len(request.prompt_ids)), request.told


class Limits(Protocol):
    """What is read of an `EngineConfig`."""

    @property
    def max_batch_size(self) -> int: ...
    @property
    def max_batch_tokens(self) -> int: ...
    @property
    def batch_wait_s(self) -> float: ...
    @property
    def deterministic(self) -> bool: ...
    @property
    def seed(self) -> int: ...


class Waiting:
    """The requests of one engine. Thread-safe, but for `fixed_rows`, which is set before the first request."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.fixed_rows = 0
        """Rows of every batch; 0: as many as fit."""
        self._seeds = torch.Generator().manual_seed(limits.seed)
        self._queue: deque[Request] = deque()
        self._running: list[Request] = []
        self._holds: set[str] = set()
        self._last_arrival = 0.0
        self._closed = False
        self._changed = threading.Condition()

    @property
    def closed(self) -> bool:
        """Whether nothing is taken any more."""
        return self._closed

    def put(self, request: Request) -> None:
        """Adds a request, with a seed if it needs one.

        Raises:
            RuntimeError: the engine is closed.
            ValueError: the seed is missing, and the engine is deterministic.
        """
        with self._changed:
            if self._closed:
                raise RuntimeError("the engine is closed")
            if request.params.seed is None and not request.params.greedy:
                if self.limits.deterministic:
                    raise ValueError(f"request {request.request_id}: deterministic=True needs sampling_params.seed")
                request.params = replace(request.params, seed=int(torch.randint(2**62, (), generator=self._seeds)))
            self._queue.append(request)
            self._last_arrival = time.monotonic()
            self._changed.notify_all()

    def abort(self, request_ids: Iterable[str] | None = None) -> list[str]:
        """Marks requests (None: all) to end at their next token. Returns the ids of those under way."""
        wanted = None if request_ids is None else set(request_ids)
        with self._changed:
            hit = [
                request
                for request in [*self._queue, *self._running]
                if not request.future.done() and (wanted is None or request.request_id in wanted)
            ]
            for request in hit:
                request.aborted = True
            self._changed.notify_all()
        return [request.request_id for request in hit]

    def hold(self, reason: str) -> None:
        """Starts no further batch until `release(reason)`; requests wait. Reasons are independent of each other."""
        with self._changed:
            self._holds.add(reason)

    def release(self, reason: str) -> None:
        """Takes back `hold(reason)`; does nothing when there is no such hold."""
        with self._changed:
            self._holds.discard(reason)
            self._changed.notify_all()

    def wait_idle(self, *, queue: bool = False) -> None:
        """Blocks until no batch runs and, with `queue`, until none will: nothing waits, or only for a hold's end."""
        with self._changed:
            self._changed.wait_for(lambda: not self._running and not (queue and self._queue and not self._holds))

    def close(self) -> None:
        """Takes nothing any more; `next_batch` returns None."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def next_batch(self) -> list[Request] | None:
        """Waits for requests, then for the arrivals to calm down; None when the engine closes."""
        wait = self.limits.batch_wait_s
        first_seen = None
        with self._changed:
            while True:
                self._drop_aborted()
                if self._closed:
                    return None
                if not self._queue or self._holds:
                    first_seen = None
                    self._changed.notify_all()  # wait_idle(queue=True)
                    self._changed.wait()
                    continue
                now = time.monotonic()
                first_seen = first_seen or now
                rest = min(self._last_arrival + wait, first_seen + 10 * wait) - now
                if rest > 0 and len(self._queue) < self.limits.max_batch_size:
                    self._changed.wait(rest)
                    continue
                self._running = self.take()
                return list(self._running)

    def done(self) -> None:
        """The batch has ended, with all that joined it."""
        with self._changed:
            self._running = []
            self._changed.notify_all()

    def late_rows(self, company: Sequence[Request | None]) -> list[Request]:
        """Takes requests that have waited for company long enough and fit beside the rows that run and are left."""
        if self.fixed_rows or not self._queue:
            return []
        with self._changed:
            self._drop_aborted()
            calm = time.monotonic() - self.limits.batch_wait_s
            if self._holds or not self._queue:
                return []
            if min(self._last_arrival, self._queue[0].came + self.limits.batch_wait_s) > calm:
                return []
            taken = self.take([row for row in company if row is not None])
            self._running += taken
            return taken

    def _drop_aborted(self) -> None:
        for request in [request for request in self._queue if request.aborted]:
            self._queue.remove(request)
            request.finish("abort")

    def take(self, company: Sequence[Request] = ()) -> list[Request]:
        """Takes the oldest requests that fit together, and beside those that run already. Requests that only read run
        apart from those that write."""
        if self.fixed_rows:
            shape = _shape(self._queue[0])
            taken = [request for request in self._queue if _shape(request) == shape][: self.fixed_rows]
        else:
            taken, rows, told = [], len(company), 0
            reads = not company and bool(self._queue[0].told)
            # What runs takes its columns along, and writes the rest of its response behind them.
            prompt = max((len(request.prompt_ids) + len(request.token_ids) for request in company), default=0)
            response = max((request.params.max_tokens - len(request.token_ids) for request in company), default=0)
            for request in self._queue:
                if bool(request.told) != reads:
                    continue
                prompt, response = max(prompt, len(request.prompt_ids)), max(response, request.params.max_tokens)
                told = max(told, request.told)
                too_many = (rows + 1) * (prompt + response) > self.limits.max_batch_tokens
                too_many = too_many or (rows + 1) * told > _MOST_TOLD
                if rows and (too_many or rows >= self.limits.max_batch_size):
                    break
                taken.append(request)
                rows += 1
        chosen = set(taken)
        self._queue = deque(request for request in self._queue if request not in chosen)
        return taken
