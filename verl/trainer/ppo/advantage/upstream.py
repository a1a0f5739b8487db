"""Upstream's estimators (`gae`, `rloo`, `remax`, ...) on the fused reward.

One decision: upstream knows neither failed nor padding rows. It is shown the valid rows alone, and its numbers are put
back in place; the others get no advantage. What rounding leaves in a group of equal rewards is taken out
(`algorithm.constant_group`). A row without a classmate score takes part with F = r, and `remax` then compares it with
the greedy response's r.

    >>> compute_advantage(inputs, AdvantageConfig(adv_estimator="rloo"), algorithm_node)

docs/method.md#how-it-becomes-an-advantage-algorithmadv_estimator
"""

from typing import Any

import numpy as np
import torch

from verl.classmate.algorithm_config import AdvantageConfig
from verl.classmate.estimators import ESTIMATORS
from verl.trainer.ppo.advantage.base import AdvantageInputs
from verl.trainer.ppo.advantage.normalise import constant, fused_size, groups_of
from verl.trainer.ppo.core_algos import get_adv_estimator_fn


def upstream_advantage(
    inputs: AdvantageInputs, config: AdvantageConfig, algorithm: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages and returns (B, R) by upstream's function for `config.adv_estimator`.

    Rows that are left out have advantage 0; their returns are the critic's own values, from which it learns nothing.
    """
    centres_batch = ESTIMATORS[config.adv_estimator].centres_batch
    rows = _rows(inputs, config)
    mask_BR = inputs.response_mask_BR[rows]
    reward_B = torch.where(inputs.fused_rows_B, inputs.final_reward_B, inputs.base_reward_B)[rows].float()
    cost_BR = torch.zeros(mask_BR.shape) if inputs.cost_BR is None else inputs.cost_BR[rows] * mask_BR
    constant_B = _constant_rows(inputs, config, algorithm, rows, reward_B - cost_BR.sum(-1))
    if centres_batch:
        # The mean of the batch that they take off every row is no rounding; what a group has in common cancels.
        reward_B = torch.where(constant_B, torch.zeros_like(reward_B), reward_B)
    arguments: dict[str, Any] = {
        "token_level_rewards": _on_last_token(reward_B, mask_BR) - cost_BR,
        "response_mask": mask_BR,
    }
    if config.adv_estimator == "gae":
        assert inputs.values_BR is not None
        arguments |= {"values": inputs.values_BR[rows], "gamma": algorithm["gamma"], "lam": algorithm["lam"]}
    else:
        arguments |= {"index": inputs.group_B[rows.numpy()], "config": algorithm}
    if config.adv_estimator == "remax":
        assert inputs.greedy_base_B is not None
        assert inputs.greedy_final_B is not None
        baseline_B = torch.where(inputs.fused_rows_B, inputs.greedy_final_B, inputs.greedy_base_B)
        arguments["reward_baselines"] = baseline_B[rows]

    advantages_BR = torch.zeros_like(inputs.response_mask_BR, dtype=torch.float32)
    returns_BR = advantages_BR.clone() if inputs.values_BR is None else inputs.values_BR.float().clone()
    if len(rows):
        advantages, returns = get_adv_estimator_fn(config.adv_estimator)(**arguments)
        if not centres_batch:
            advantages = torch.where(constant_B.unsqueeze(-1), torch.zeros_like(advantages), advantages)
        advantages_BR[rows] = (advantages * mask_BR).float()
        returns_BR[rows] = returns.float()
    return advantages_BR, returns_BR


def _rows(inputs: AdvantageInputs, config: AdvantageConfig) -> torch.Tensor:
    """Numbers of the rows that upstream is shown."""
    shown_B = inputs.main_rows_B
    if inputs.greedy_base_B is not None:
        shown_B = shown_B & ~torch.isnan(inputs.greedy_base_B)
    # Upstream's best of k needs two rows; for the other group estimators a single one is what the option says.
    needs_two = config.adv_estimator == "grpo_passk" or config.singleton_group == "zero"
    if ESTIMATORS[config.adv_estimator].compares_group and needs_two:
        groups = [rows for rows in groups_of(inputs.group_B, shown_B) if len(rows) > 1]
        return torch.cat(groups).sort().values if groups else torch.zeros(0, dtype=torch.int64)
    return torch.nonzero(shown_B).flatten()


def _constant_rows(
    inputs: AdvantageInputs, config: AdvantageConfig, algorithm: Any, rows: torch.Tensor, reward_B: torch.Tensor
) -> torch.Tensor:
    """bool, of the rows shown: those that are compared with nothing but rows of the same reward."""
    result_B = torch.zeros(len(rows), dtype=torch.bool)
    group_B = inputs.group_B[rows.numpy()]
    if config.adv_estimator == "reinforce_plus_plus" and algorithm["gamma"] == 1:
        group_B = np.zeros(len(rows), dtype=object)
    elif not ESTIMATORS[config.adv_estimator].compares_group:
        return result_B
    if config.constant_group == "zero":
        fused_B = inputs.fused_rows_B[rows]
        size_B = torch.where(fused_B, fused_size(inputs, config)[rows], reward_B.abs())
        for members in groups_of(group_B, ~result_B):
            result_B[members] = len(members) > 1 and constant(reward_B[members], size_B[members])
    return result_B


def _on_last_token(reward_B: torch.Tensor, mask_BR: torch.Tensor) -> torch.Tensor:
    """A reward on each row's last token, where upstream expects it."""
    position_BR = torch.arange(mask_BR.shape[1]) * mask_BR.bool()
    rewards_BR = torch.zeros(mask_BR.shape, dtype=torch.float32)
    rewards_BR[torch.arange(len(reward_B)), position_BR.max(-1).values if len(reward_B) else 0] = reward_B
    return rewards_BR
