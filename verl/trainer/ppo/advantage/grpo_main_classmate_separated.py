"""GRPO on the main and on the classmate reward, each for itself: the classmate's advantage is added on its own tokens.

One decision: there is no common scale over the batch as in `gdpo_classmate`; tokens off the CoT keep exactly the
advantage that they would have without classmates, whatever the weight.

    >>> compute_advantage(inputs, AdvantageConfig(adv_estimator="grpo_main_classmate_separated"))

docs/method.md#how-it-becomes-an-advantage-algorithmadv_estimator
"""

import torch

from verl.classmate.algorithm_config import AdvantageConfig
from verl.trainer.ppo.advantage.base import AdvantageInputs
from verl.trainer.ppo.advantage.normalise import components


def grpo_main_classmate_separated(inputs: AdvantageInputs, config: AdvantageConfig) -> torch.Tensor:
    """A(r) m + w A(W) k, in mode `all` (A(r) + w A(W)) m. Returns (B, R)."""
    parts = components(inputs, config, divide_by_std=config.norm_adv_by_std_in_grpo)
    consistency_B = config.consistency_reward_weight * parts.consistency_B
    added_BR = config.classmate_reward_weight * parts.classmate_BR + consistency_B.unsqueeze(-1)
    tokens_BR = parts.main_B.unsqueeze(-1) + torch.where(parts.carriers_BR, added_BR, torch.zeros_like(added_BR))
    return tokens_BR * inputs.response_mask_BR
