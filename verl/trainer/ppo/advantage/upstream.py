"""Upstream's estimators (`gae`, `rloo`, `remax`, ...) on the fused reward.

One decision: upstream knows neither failed nor padding rows, so it is shown the valid rows alone and its numbers are
put back in place; the others get no advantage. A row without classmate score takes part with F = r (spec 3.3), and
`remax` then compares it with the greedy response's r.

    >>> compute_advantage(inputs, AdvantageConfig(adv_estimator="rloo"), algorithm_node)
"""

from typing import Any

import torch

from verl.classmate.algorithm_config import GROUP_ESTIMATORS, AdvantageConfig
from verl.trainer.ppo.advantage.base import AdvantageInputs
from verl.trainer.ppo.advantage.normalise import groups_of
from verl.trainer.ppo.core_algos import get_adv_estimator_fn


def upstream_advantage(
    inputs: AdvantageInputs, config: AdvantageConfig, algorithm: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages and returns (B, R) by upstream's function for `config.adv_estimator`.

    Rows that are left out have advantage 0; their returns are the critic's own values, from which it learns nothing.
    """
    rows = _rows(inputs, config)
    mask_BR = inputs.response_mask_BR[rows]
    arguments: dict[str, Any] = {"token_level_rewards": _on_last_token(inputs, rows), "response_mask": mask_BR}
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
    if config.adv_estimator in GROUP_ESTIMATORS and needs_two:
        groups = [rows for rows in groups_of(inputs.group_B, shown_B) if len(rows) > 1]
        return torch.cat(groups).sort().values if groups else torch.zeros(0, dtype=torch.int64)
    return torch.nonzero(shown_B).flatten()


def _on_last_token(inputs: AdvantageInputs, rows: torch.Tensor) -> torch.Tensor:
    """F on each row's last token, where upstream expects a reward."""
    reward_B = torch.where(inputs.fused_rows_B, inputs.final_reward_B, inputs.base_reward_B)[rows].float()
    mask_BR = inputs.response_mask_BR[rows]
    position_BR = torch.arange(mask_BR.shape[1]) * mask_BR.bool()
    rewards_BR = torch.zeros(mask_BR.shape, dtype=torch.float32)
    rewards_BR[torch.arange(len(rows)), position_BR.max(-1).values if len(rows) else rows] = reward_B
    return rewards_BR
