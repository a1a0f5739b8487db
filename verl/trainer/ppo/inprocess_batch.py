"""A batch of `debug=true`: the fields of upstream's queue as one `TensorDict`, and upstream's metrics of it.

Decision: upstream's own workers and metrics take it, so that both ways write the same numbers.

    >>> batch = as_batch(rows)
    >>> batch["responses"]                                        # nested (B, R)
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from verl.protocol import DataProto
from verl.trainer.ppo.metric_utils import (
    compute_data_metrics,
    compute_throughout_metrics,
    compute_timing_metrics,
    compute_variance_proxy_metrics,
)
from verl.utils import tensordict_utils as tu

_NESTED = frozenset(
    {
        "prompts",
        "responses",
        "response_mask",
        "loss_mask",
        "input_ids",
        "position_ids",
        "rollout_log_probs",
        "rm_scores",
        "classmate_mask",
        "classmate_segments",
        "actor_mask",
    }
)
"""Fields of a row with one number per token: nested (B, R), (B, P) or (B, P + R) in a batch."""

_WORKER_FIELDS = _NESTED | {"old_log_probs", "ref_log_prob", "advantages", "returns", "values", "rollout_is_weights"}
"""What training workers are given."""


def as_batch(rows: list[dict[str, Any]]) -> TensorDict:
    """Rows (B) of fields as upstream's workers take them: nested where a field has one number per token."""
    batch = tu.list_of_dict_to_tensordict(rows)
    for name in _NESTED & rows[0].keys():
        batch[name] = torch.nested.as_nested_tensor([row[name] for row in rows], layout=torch.jagged)
    return batch


def for_worker(batch: TensorDict) -> TensorDict:
    """What training workers are given of a batch."""
    return batch.select(*(_WORKER_FIELDS & set(batch.keys())))


def upstream_metrics(
    batch: TensorDict, metrics: Mapping[str, Any], timing: dict[str, float], *, use_critic: bool
) -> dict[str, Any]:
    """Upstream's metrics of a step: rewards, lengths, times.

    Args:
        batch: of the step.
        metrics: of its update.
        timing: seconds of its parts.
        use_critic: whether there are values.
    """
    names = {"prompts", "responses", "response_mask", "advantages", "returns", "values"} & set(batch.keys())
    prompt_length, response_length = (batch[name].offsets().diff() for name in ("prompts", "responses"))
    data = batch.select(*names, "rm_scores").to_padded_tensor()
    data["token_level_scores"] = data["token_level_rewards"] = data.pop("rm_scores")
    data["prompt_length"], data["response_length"] = prompt_length.float(), response_length.float()
    proto = DataProto(
        batch=data,
        non_tensor_batch={"__num_turns__": np.array(list(batch["num_turns"]), dtype=np.int32)},
        meta_info={"global_token_num": (prompt_length + response_length).tolist()},
    )
    return (
        compute_data_metrics(batch=proto, use_critic=use_critic)
        | compute_timing_metrics(batch=proto, timing_raw=timing)
        | compute_throughout_metrics(batch=proto, timing_raw=timing, n_gpus=1)
        | compute_variance_proxy_metrics(batch=proto, gradient_norm=metrics.get("actor/grad_norm"))  # type: ignore[arg-type]
    )
