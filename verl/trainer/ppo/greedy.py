"""The greedy rows of `remax`: one answer of each prompt is the baseline of the others, and nothing trains on it.

Decision: they are rows like all others until the policy is trained; here they leave the batch.

    >>> sampled, rewards = split_greedy(rows, config)
    >>> rewards["0-1-key"]
    Greedy(base=1.0, final=1.5)
"""

from collections.abc import Mapping, Sequence
from typing import Any

import transfer_queue as tq
from transfer_queue import KVBatchMeta

from verl.classmate.algorithm_config import AdvantageConfig
from verl.experimental.agent_loop.row_worker import GREEDY_SESSION
from verl.trainer.ppo.advantage.rows import GREEDY_FIELDS, Greedy
from verl.trainer.ppo.queue_rows import as_list

_FIELDS = (GREEDY_SESSION, "session_id", "uid", *GREEDY_FIELDS)
"""Fields of a row that `split_greedy` reads."""


def split_greedy(rows: Sequence[Mapping[str, Any]], config: AdvantageConfig) -> tuple[list[int], dict[str, Greedy]]:
    """The positions of the rows to train on, and the rewards of the greedy ones by prompt.

    A prompt whose greedy row is missing or could not be scored has no entry.
    """
    sampled, rewards = [], dict[str, Greedy]()
    for i, row in enumerate(rows):
        if row["session_id"] != row[GREEDY_SESSION]:
            sampled.append(i)
            continue
        scored = Greedy.of_row(row, config)
        if scored is not None:
            rewards[row["uid"]] = scored
    return sampled, rewards


def take_out_greedy(batch: KVBatchMeta, config: AdvantageConfig) -> tuple[KVBatchMeta, dict[str, Greedy]]:
    """Removes the greedy rows of a batch from it and from the queue.

    Returns:
        The batch of sampled rows, and the rewards as of `split_greedy`.
    """
    fields = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(_FIELDS))
    columns = [as_list(fields[name]) for name in _FIELDS]
    rows = [dict(zip(_FIELDS, values, strict=True)) for values in zip(*columns, strict=True)]
    sampled, rewards = split_greedy(rows, config)
    keys = [batch.keys[i] for i in sampled]
    greedy = set(batch.keys) - set(keys)
    if greedy:
        tq.kv_clear(keys=sorted(greedy), partition_id=batch.partition_id)
    kept = KVBatchMeta(
        partition_id=batch.partition_id,
        keys=keys,
        tags=[batch.tags[i] for i in sampled],
        fields=batch.fields,
        extra_info=batch.extra_info,
    )
    return kept, rewards
