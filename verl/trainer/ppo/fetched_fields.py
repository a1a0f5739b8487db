"""What the ranks of the policy, the reference model and the critic fetch of a batch in upstream's queue.

Decision: tensors alone. No model reads the texts beside them (questions, records, columns of the dataset), and fetching
and moving those costs a rank of a small model more than its forward pass.

    >>> fetch_for_models([actor_group, critic_group], without=read_by_no_model(advantage_config))
"""

import dataclasses
import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

from transfer_queue import KVBatchMeta

from verl.classmate.algorithm_config import AdvantageConfig
from verl.trainer.ppo.advantage import row_fields
from verl.utils.transferqueue_utils import kv_batch_meta2batch_meta


def read_by_no_model(config: AdvantageConfig) -> set[str]:
    """Tensors of a row that the trainer makes advantages of; ranks train on those."""
    return {"rm_scores", *row_fields(config)} - {"response_mask", "values"}


def fetch_for_models(groups: Sequence[Any], without: Collection[str]) -> None:
    """Lets the ranks of worker groups fetch a batch's tensors, and the inputs of a multimodal model, which are none.

    Args:
        groups: upstream's worker groups, of the actor, the reference model or the critic; None where there is none.
        without: names of tensors that no model reads.
    """

    def with_tensors(call: Callable[[KVBatchMeta], Any]) -> Callable[[KVBatchMeta], Any]:
        @functools.wraps(call)
        def called(batch: KVBatchMeta) -> Any:
            stored = kv_batch_meta2batch_meta(batch).field_schema
            tensors = [name for name in stored if name == "multi_modal_inputs" or not stored[name]["is_non_tensor"]]
            fields = [name for name in tensors if name not in without]
            return call(dataclasses.replace(batch, fields=fields))

        return called

    done: list[Any] = []
    for group in groups:
        # The reference model may be the actor's own group.
        if group is None or any(group is other for other in done):
            continue
        done.append(group)
        for name in ("compute_log_prob", "compute_ref_log_prob", "update_actor", "infer_batch", "train_mini_batch"):
            if hasattr(group, name):
                setattr(group, name, with_tensors(getattr(group, name)))
