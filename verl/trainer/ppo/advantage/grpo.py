"""GRPO on the fused reward, or on the main reward alone where there is no classmate.

One decision: if F fell back to r in rows without a classmate score, a group would mix two scales. Such rows stay out of
the statistics of F, and are normalised on r among all rows of their group. All is computed in float32, as upstream
does, so that a run without classmates has upstream's numbers to the last bit.

    >>> compute_advantage(inputs, AdvantageConfig(adv_estimator="grpo"))

docs/method.md#how-it-becomes-an-advantage-algorithmadv_estimator
"""

import dataclasses

import torch

from verl.classmate.algorithm_config import AdvantageConfig
from verl.trainer.ppo.advantage.base import AdvantageInputs
from verl.trainer.ppo.advantage.normalise import fused_size, main_component, normaliser


def grpo(inputs: AdvantageInputs, config: AdvantageConfig) -> torch.Tensor:
    """A(F) m, and A(r) m on rows without classmate score. Returns (B, R)."""
    if inputs.cost_BR is not None:
        cost_B = (inputs.cost_BR * inputs.response_mask_BR).sum(-1)
        rewards = {name: getattr(inputs, name) - cost_B for name in ("base_reward_B", "final_reward_B")}
        inputs = dataclasses.replace(inputs, **rewards)
    normalise = normaliser(config, divide_by_std=config.norm_adv_by_std_in_grpo, exact=False)
    fused_B = normalise(inputs.final_reward_B, inputs.fused_rows_B, inputs.group_B, fused_size(inputs, config))
    main_B = main_component(inputs, normalise)
    return torch.where(inputs.fused_rows_B, fused_B, main_B).unsqueeze(-1) * inputs.response_mask_BR
