"""Which tokens the actor's loss counts: `token_level_main_reward_mode`.

Decision: upstream counts by two masks of a batch, so these are narrowed while it trains, and nothing else is changed.

    >>> with narrowed_in_queue(batch, config, "cot_only"):
    ...     metrics = update_actor(batch)
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta

from verl.trainer.ppo.queue_rows import put_fields

_MASKS = ("response_mask", "loss_mask")
"""Fields of a batch that upstream's update counts tokens by."""


@contextlib.contextmanager
def narrowed_in_queue(batch: KVBatchMeta, config: Any, mode: str) -> Iterator[None]:
    """Narrows the masks of a batch in the queue, and puts them back at the end: metrics count all tokens.

    Args:
        batch: of the step.
        config: of the run.
        mode: `token_level_main_reward_mode`.
    """
    if mode == "all_tokens":
        yield
        return
    rows = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=[*_MASKS, "actor_mask"])
    put_fields(batch, narrowed_masks(rows, config))
    yield
    put_fields(batch, {name: rows[name] for name in _MASKS})


def narrowed_masks(rows: Mapping[str, torch.Tensor], config: Any) -> dict[str, torch.Tensor]:
    """`response_mask` and `loss_mask` of a batch, nested (B, R), narrowed to the tokens that the loss counts.

    Args:
        rows: `response_mask` and `actor_mask`, nested (B, R).
        config: of the run.
    """
    narrowed = narrow_masks(
        rows["response_mask"].unbind(),
        rows["actor_mask"].unbind(),
        rows_of_update=config.actor_rollout_ref.actor.ppo_mini_batch_size * config.actor_rollout_ref.rollout.n,
    )
    return {name: torch.nested.as_nested_tensor(narrowed[name], layout=torch.jagged) for name in _MASKS}


def narrow_masks(
    response_masks: Sequence[torch.Tensor], actor_masks: Sequence[torch.Tensor], *, rows_of_update: int
) -> dict[str, list[torch.Tensor]]:
    """`response_mask` and `loss_mask` (R,) per row, narrowed to the tokens that the loss counts.

    Upstream takes the loss over `response_mask` and divides it by the number of tokens in `loss_mask`, which must not
    be 0 in any mini-batch. If the rows with nothing to count could fill a mini-batch, each of them keeps one token in
    the divisor. The loss of such rows is 0 either way.

    Args:
        response_masks: 1 on the policy's tokens.
        actor_masks: 1 on the tokens that are to count; a padding row has that of the row it copies.
        rows_of_update: rows of a mini-batch.
    """
    counted = [mask * chosen[: len(mask)] for mask, chosen in zip(response_masks, actor_masks, strict=True)]
    divisors = [mask.clone() for mask in counted]
    empty = [mask for mask in divisors if not mask.any()]
    if len(empty) >= rows_of_update:
        for mask in empty:
            mask[-1] = 1
    return {"response_mask": counted, "loss_mask": divisors}
