"""Statistics of the parts of the reward, per group and over the batch.

One decision: they are made where the groups and the valid rows are known, and of exactly the rows that trained.

    >>> reward_metrics(inputs, config)["critic/main_group_reward_std/mean"]
"""

import numpy as np
import torch

from verl.classmate.algorithm_config import AdvantageConfig
from verl.trainer.ppo.advantage.base import AdvantageInputs
from verl.trainer.ppo.advantage.normalise import constant, groups_of


def reward_metrics(inputs: AdvantageInputs, config: AdvantageConfig) -> dict[str, float]:
    """Of the main, the weighted classmate and, where there is one, the consistency reward."""
    group_B = inputs.group_B
    metrics = _of_component("main", inputs.base_reward_B, inputs.main_rows_B, group_B)
    weighted_B = config.classmate_reward_weight * inputs.classmate_reward_B
    metrics |= _of_component("classmate", weighted_B, inputs.classmate_rows_B, group_B, prefix="weighted_")
    if inputs.consistency_reward_B is not None:
        metrics |= _of_component("consistency", inputs.consistency_reward_B, inputs.consistency_rows_B, group_B)
    members = groups_of(group_B, inputs.main_rows_B)
    groups = len(members)
    metrics["reasoning/groups"] = float(groups)
    metrics["reasoning/constant_groups"] = float(sum(constant(inputs.base_reward_B[rows], None) for rows in members))
    usable = sum(len(rows) >= 2 for rows in groups_of(group_B, inputs.classmate_rows_B))
    metrics["classmate/excluded_groups"] = float(groups - usable)
    if inputs.greedy_base_B is not None:
        without_B = inputs.main_rows_B & torch.isnan(inputs.greedy_base_B)
        metrics["classmate/groups_without_greedy"] = float(len(groups_of(group_B, without_B)))
    return metrics


def token_deviation(prefix: str, inputs: AdvantageInputs, values_BR: torch.Tensor) -> dict[str, float]:
    """The deviation over the response tokens of rows that train; upstream tells mean, maximum and minimum."""
    values = values_BR[inputs.response_mask_BR.bool() & inputs.main_rows_B.unsqueeze(-1)].float()
    return {f"{prefix}/std": float(values.std(unbiased=False))} if len(values) else {}


def _of_component(
    name: str, values_B: torch.Tensor, valid_B: torch.Tensor, group_B: np.ndarray, prefix: str = ""
) -> dict[str, float]:
    if not bool(valid_B.any()):
        return {}
    groups = [values_B[rows].float() for rows in groups_of(group_B, valid_B)]
    means = torch.stack([x.mean() for x in groups])
    stds = torch.stack([x.std() if len(x) > 1 else torch.zeros(()) for x in groups])
    metrics = {f"critic/{prefix}{name}_group_reward_std/mean": float(stds.mean())}
    per_row = values_B[valid_B].float()
    for key, values in ((f"batch_{name}_reward", per_row), (f"{prefix}{name}_group_reward_mean", means)):
        metrics |= {
            f"critic/{key}/mean": float(values.mean()),
            f"critic/{key}/max": float(values.max()),
            f"critic/{key}/min": float(values.min()),
        }
    return metrics
