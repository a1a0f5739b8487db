"""The KL to the reference as a cost of each token's reward, with upstream's controllers of its coefficient.

One decision: it is a cost beside the reward, not part of it, so that what is logged as the reward stays the reward.

    >>> cost_BR = kl_cost(rows, padding_B, "low_var_kl", controller, metrics)

docs/reasoning_rl.md
"""

from collections.abc import Mapping
from typing import Any

import torch

from verl.trainer.ppo.core_algos import kl_penalty


def kl_cost(
    rows: Mapping[str, Any], left_out_B: torch.Tensor, kind: str, controller: Any, metrics: dict[str, Any]
) -> torch.Tensor:
    """What each token costs, (B, R); moves the controller's coefficient for the next step.

    Args:
        rows: padded `old_log_probs`, `ref_log_prob` and `response_mask`, (B, R).
        left_out_B: rows that have no part in the mean, bool.
        kind: which estimate of the KL, `algorithm.kl_penalty`.
        controller: upstream's, `kl_ctrl_in_reward`.
        metrics: get the mean KL of a token, and the coefficient.
    """
    mask_BR = rows["response_mask"]
    estimate: Any = kl_penalty  # Its annotations name a tensor type that nobody makes.
    kl_BR = estimate(rows["old_log_probs"], rows["ref_log_prob"], kl_penalty=kind) * mask_BR
    coefficient = float(controller.value)
    # Upstream's mean: of each row, then over rows; but not of rows that only fill the batch.
    mean_B = (kl_BR.sum(-1) / mask_BR.sum(-1).clamp(min=1))[~left_out_B]
    if len(mean_B):
        mean = float(mean_B.mean())
        controller.update(current_kl=mean, n_steps=len(mean_B))
        metrics["actor/reward_kl_penalty"] = mean
    metrics["actor/reward_kl_penalty_coeff"] = coefficient
    return coefficient * kl_BR
