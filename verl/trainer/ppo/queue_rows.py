"""Rows on their way out of upstream's queue: in the order in which their prompts were fetched, each accounted for.

Decision: a row that could not be made is a key of its own in the queue, with the reason in its tag. So it is counted
where the others are taken out, whatever process made it.

    >>> rows = AccountedRows(upstream_buffer)
    >>> batch, _ = upstream_buffer.sample(global_steps=1, partition_id="train", batch_size=8)
    >>> lost, fetched = rows.take_lost()
    >>> lost[0].error, fetched
    ('EngineDeadError: ...', 32)
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta

from verl.classmate.errors import ConfigError
from verl.classmate.seeds import row_key
from verl.experimental.agent_loop.row_worker import LOST
from verl.stepwise.config import this_reasoning
from verl.trainer.ppo.start_up import OpenRun
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

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
    """What happens to the rows that upstream's buffer, or the user's, takes out of the queue."""

    buffer: Any
    """Upstream's, or the user's; its `sample` is called as if nothing were between."""
    wait_for_rows: Callable[[float], None]
    """Waits, so many seconds at most, until the rows under way are made; set where they are made."""

    def __init__(self, buffer: Any, *, most_left_out: int | None = None) -> None:
        """Puts itself between `buffer.sample` and the methods that it calls.

        Args:
            buffer: upstream's, or the user's.
            most_left_out: groups that dynamic sampling may leave out until a batch is full; None: any number.
        """
        self.buffer = buffer
        self._left_out, self._most_left_out = 0, most_left_out
        if most_left_out is not None and hasattr(buffer, "_evict_terminal_groups"):
            self._upstream_evict = buffer._evict_terminal_groups
            buffer._evict_terminal_groups = self._evict
        self._upstream_batch, self._upstream_wait = buffer._materialize_batch, buffer._wait_for_next_poll
        buffer._materialize_batch, buffer._wait_for_next_poll = self._made_batch, self._wait_for_next_poll
        buffer.poll_interval = POLL_INTERVAL_S
        self.wait_for_rows = lambda _: None
        self._lost: list[LostRow] = []
        self._fetched = 0

    def take_lost(self) -> tuple[list[LostRow], int]:
        """The rows that were lost since the last call, and how many were fetched."""
        told = self._lost, self._fetched
        self._lost, self._fetched = [], 0
        return told

    def _made_batch(
        self, partition_id: str, selected_prompt_uids: list[str], partition_snapshot: dict[str, dict]
    ) -> KVBatchMeta:
        """Upstream's batch without lost rows, in the order in which prompts were fetched and sampled.

        Raises:
            ConfigError: a row met a mistake of the user's.
            RuntimeError: not one row could be made.
        """
        batch = self._upstream_batch(partition_id, selected_prompt_uids, partition_snapshot)
        tags = {key: tag for key, tag in zip(batch.keys, batch.tags, strict=True) if tag["status"] == LOST}
        if tags:
            tq.kv_clear(keys=list(tags), partition_id=partition_id)
        for tag in tags.values():
            if tag["is_mistake"]:
                raise ConfigError(tag["error"].removeprefix(f"{ConfigError.__name__}: "))
        self._fetched += len(batch.keys)
        self._left_out = 0
        names = [field.name for field in fields(LostRow)]
        self._lost += [LostRow(**{name: tag[name] for name in names}) for tag in tags.values()]
        if len(tags) == len(batch.keys):
            why = self._lost[-1].error if tags else "logs/ray/worker-*.err of the run folder say why"
            raise RuntimeError(f"no row of this batch could be made ({why})")
        made = [i for i, tag in enumerate(batch.tags) if tag["status"] != LOST]
        order = sorted(made, key=lambda i: _row_order(batch.keys[i]))
        return KVBatchMeta(
            partition_id=partition_id, keys=[batch.keys[i] for i in order], tags=[batch.tags[i] for i in order]
        )

    def _evict(self, *args: Any, **kwargs: Any) -> tuple[set[str], int, int, dict[str, Any]]:
        """Upstream's, which would go on for ever where no group has rewards that differ.

        Raises:
            RuntimeError: too many groups were left out.
        """
        evicted, stale, same, metrics = self._upstream_evict(*args, **kwargs)
        self._left_out += same
        if self._most_left_out is not None and self._left_out > self._most_left_out:
            raise RuntimeError(
                f"{self._left_out} groups in a row were left out, since all rewards of each are the same; look at the "
                "reward, take other problems or a higher temperature, or write algorithm.filter_groups.enable=false"
            )
        return evicted, stale, same, metrics

    def _wait_for_next_poll(self, partition_id: str, last_debug_time: float) -> float:
        """Upstream's wait, which ends when the rows are made, and the run where nobody makes them any more.

        Raises:
            RuntimeError: a process that makes rows has died.
        """
        began = time.monotonic()
        self.wait_for_rows(WAIT_S)
        self.buffer.poll_interval = max(0.0, POLL_INTERVAL_S - (time.monotonic() - began))
        return self._upstream_wait(partition_id, last_debug_time)


class LostRows:
    """Tells of rows that could not be made, and ends a run in which they are too many."""

    def __init__(self, rows: AccountedRows, run: OpenRun) -> None:
        """Takes them out of `rows`, keeps their reasons in the run's logs, and says how many they are."""
        self._rows = rows
        self._run = run

    def count(self, step: int, *, validation: bool = False) -> int:
        """How many of the rows just fetched could not be made.

        Raises:
            RuntimeError: they are too many.
        """
        lost, fetched = self._rows.take_lost()
        if not lost:
            return 0
        told = {"step": step, "validation": validation}
        path = self._run.folder.path / "logs" / "lost_rows.jsonl"
        with path.open("a") as f:
            f.writelines(json.dumps(told | asdict(row)) + "\n" for row in lost)
        last = lost[-1].error[:200]
        message = f"{len(lost)} of {fetched} rows could not be made (last: {last}; all: {path})"
        if fetched - len(lost) < self._run.reward.min_made_fraction * fetched:
            raise RuntimeError(message)
        self._run.console.line(f"warning: {message}; they are left out")
        return len(lost)


def most_left_out(config: Any) -> int | None:
    """Groups of rewards that are all the same which a run may leave out in a row; None where it leaves out none."""
    if not config.algorithm.filter_groups.enable:
        return None
    return int(this_reasoning(config).most_left_out * config.data.train_batch_size)


def row_uids(batch: TensorDict, *, first: int, step: int) -> list[str]:
    """Ids of a batch's prompts that are the same in every run: position, step, row.

    Args:
        batch: prompts as fetched.
        first: position in the run of the first of them.
        step: global step.
    """
    rows = zip(batch["data_source"], batch["extra_info"], strict=True)
    keys = [row_key(str(data_source), extra_info["index"]) for data_source, extra_info in rows]
    return [f"{position}-{step}-{key}" for position, key in enumerate(keys, first)]


def put_fields(batch: KVBatchMeta, fields: dict[str, torch.Tensor]) -> KVBatchMeta:
    """Adds fields to the rows of a batch in the queue, given as columns."""
    return tq.kv_batch_put(
        keys=batch.keys, partition_id=batch.partition_id, fields=TensorDict(fields, batch_size=len(batch))
    )


def put_rows(batch: KVBatchMeta, rows: Sequence[dict[str, Any]]) -> None:
    """Adds fields to the rows of a batch in the queue, given row by row."""
    tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=list_of_dict_to_tensordict(list(rows)))


def put_rewards(batch: KVBatchMeta, rewards: Mapping[str, dict[str, Any]]) -> None:
    """Adds the `reward_fields` of rows, by key, to a batch in the queue."""
    # Rows that only fill the batch have a token and no part in anything; their fields are some row's.
    some = next(iter(rewards.values())) | {"rm_scores": torch.zeros(1)}
    put_rows(batch, [rewards.get(key, some) for key in batch.keys])


def as_list(column: Any) -> list[Any]:
    """A column of one value per row, whatever container the queue has put it in."""
    return column.tolist() if hasattr(column, "tolist") else list(column)


def _row_order(key: str) -> tuple[int, str, int, int]:
    """Sort key of a row `{uid}_{session}_{index}`; our uids start with the position in the run."""
    uid, session, index = key.rsplit("_", 2)
    position = uid.split("-", 1)[0]
    return (int(position) if position.isdigit() else 0, uid, int(session), int(index))
