"""Implicit process rewards (PRIME, arXiv 2502.01456): steps earn what a model trained on outcomes finds them worth.

The reward of a step is beta (log pi_prm - log pi_ref) over its tokens, from an implicit process reward model.

One decision: the model stays as it is; here nothing trains it while the policy learns. The returns of steps and of the
outcome have baselines of their own, are summed, and divided by the deviation over the batch's tokens. Their mean is not
taken off: groups without any difference have exactly 0.

    >>> compute_advantage(inputs, AdvantageConfig(adv_estimator="prime"))

Specification of the pipeline, section 7.4; docs/reasoning_rl.md#rewards-of-steps
"""

import torch

from verl.classmate.algorithm_config import AdvantageConfig
from verl.trainer.ppo.advantage.base import AdvantageInputs
from verl.trainer.ppo.advantage.normalise import EPSILON
from verl.trainer.ppo.advantage.process_part import (
    leave_one_out,
    less_baseline,
    step_rewards,
    sums_to_come,
    with_process,
)


def prime(inputs: AdvantageInputs, config: AdvantageConfig) -> torch.Tensor:
    """(F less the mean of the others, plus the guarded returns of steps less theirs) over its deviation. (B, R)."""
    process_BR = sums_to_come(less_baseline(step_rewards(inputs), inputs))
    sum_BR = with_process(leave_one_out(inputs, config), process_BR, inputs, config)
    counted = sum_BR[inputs.response_mask_BR.bool() & inputs.main_rows_B.unsqueeze(-1)]
    spread = float(counted.double().std(unbiased=False)) if counted.numel() else 0.0
    return sum_BR / (spread + EPSILON)
