"""GDPO with a main and a classmate component, but without the normalisation over the batch.

    >>> compute_advantage(inputs, AdvantageConfig(adv_estimator="gdpo_wo_bn"))

docs/method.md#how-it-becomes-an-advantage-algorithmadv_estimator
"""

import torch

from verl.classmate.algorithm_config import AdvantageConfig
from verl.trainer.ppo.advantage.base import AdvantageInputs
from verl.trainer.ppo.advantage.gdpo_classmate import gdpo


def gdpo_wo_bn(inputs: AdvantageInputs, config: AdvantageConfig) -> torch.Tensor:
    """v A(r) + w A(W) on the tokens that carry both, v A(r) on the others. Returns (B, R)."""
    return gdpo(inputs, config, batch_norm="none")
