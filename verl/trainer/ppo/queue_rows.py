"""Rows on their way out of upstream's queue: in the order in which their prompts were fetched, each accounted for.

Decision: a row that could not be made is a key of its own in the queue, with the reason in its tag. So it is counted
where the others are taken out, whatever process made it.

    >>> buffer = accounted(upstream_buffer)
    >>> batch, _ = buffer.sample(global_steps=1, partition_id="train", batch_size=8)
    >>> lost, fetched = buffer.take_lost()
    >>> lost[0].error, fetched
    ('EngineDeadError: ...', 32)
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import transfer_queue as tq
from transfer_queue import KVBatchMeta

from verl.classmate.errors import ConfigError
from verl.experimental.agent_loop.row_worker import LOST

POLL_INTERVAL_S = 0.05
"""Seconds between two looks at the queue where nothing is under way. Upstream waits 2 s, most of a step of a small
model."""

WAIT_S = 2.0
"""Seconds until the next look at the queue while rows are made: a look when all are made comes at once."""


@dataclass(frozen=True, kw_only=True)
class LostRow:
    """A row that was fetched and could not be made."""

    data_source: str
    """Of the dataset's row."""
    index: str
    """Of the dataset's row within its source."""
    rollout: int
    """Which of the prompt's n answers it would have been."""
    error: str
    """Type and message of what its agent loop raised."""


class AccountedRows:
    """What is put in front of upstream's buffer, or of the user's; `accounted` does it."""

    lost: list[LostRow]
    """Taken out of the queue and not yet told."""
    fetched: int
    """Rows taken out of the queue since then, lost ones included."""
    wait_for_rows: Callable[[float], None]
    """Waits, so many seconds at most, until the rows under way are made."""

    def take_lost(self) -> tuple[list[LostRow], int]:
        """The rows that were lost since the last call, and how many were fetched."""
        told = self.lost, self.fetched
        self.lost, self.fetched = [], 0
        return told

    def _materialize_batch(
        self, partition_id: str, selected_prompt_uids: list[str], partition_snapshot: dict[str, dict]
    ) -> KVBatchMeta:
        """Upstream's batch without lost rows, in the order in which prompts were fetched and sampled.

        Raises:
            ConfigError: a row met a mistake of the user's.
            RuntimeError: not one row could be made.
        """
        batch = super()._materialize_batch(partition_id, selected_prompt_uids, partition_snapshot)  # type: ignore[misc]
        tags = {key: tag for key, tag in zip(batch.keys, batch.tags, strict=True) if tag["status"] == LOST}
        if tags:
            tq.kv_clear(keys=list(tags), partition_id=partition_id)
        for tag in tags.values():
            if tag["is_mistake"]:
                raise ConfigError(tag["error"].removeprefix(f"{ConfigError.__name__}: "))
        self.fetched += len(batch.keys)
        names = [field.name for field in fields(LostRow)]
        self.lost += [LostRow(**{name: tag[name] for name in names}) for tag in tags.values()]
        if len(tags) == len(batch.keys):
            why = self.lost[-1].error if tags else "logs/ray/worker-*.err of the run folder say why"
            raise RuntimeError(f"no row of this batch could be made ({why})")
        made = [i for i, tag in enumerate(batch.tags) if tag["status"] != LOST]
        order = sorted(made, key=lambda i: _row_order(batch.keys[i]))
        return KVBatchMeta(
            partition_id=partition_id, keys=[batch.keys[i] for i in order], tags=[batch.tags[i] for i in order]
        )

    def _wait_for_next_poll(self, partition_id: str, last_debug_time: float) -> float:
        """Upstream's wait, which ends when the rows are made, and the run where nobody makes them any more.

        Raises:
            RuntimeError: a process that makes rows has died.
        """
        began = time.monotonic()
        self.wait_for_rows(WAIT_S)
        self.poll_interval = max(0.0, POLL_INTERVAL_S - (time.monotonic() - began))
        return super()._wait_for_next_poll(partition_id, last_debug_time)  # type: ignore[misc]


def accounted(buffer: Any) -> Any:
    """Makes `AccountedRows` of a buffer, in place: of upstream's own, or of one that the user has named."""
    kind = type(buffer)
    buffer.__class__ = type(f"Accounted{kind.__name__}", (AccountedRows, kind), {})
    buffer.poll_interval = POLL_INTERVAL_S
    buffer.lost, buffer.fetched, buffer.wait_for_rows = [], 0, lambda _: None
    return buffer


def _row_order(key: str) -> tuple[int, str, int, int]:
    """Sort key of a row `{uid}_{session}_{index}`; our uids start with the position in the run."""
    uid, session, index = key.rsplit("_", 2)
    position = uid.split("-", 1)[0]
    return (int(position) if position.isdigit() else 0, uid, int(session), int(index))
