"""Min-form credit (PURE, arXiv 2504.15275): an answer's process is worth as much as its worst step.

One decision: each step's reward is weighted by softmax(-reward / temperature) over the answer's steps. The sum of all
is close to the smallest, so that further good steps earn nothing; the baseline is per token, so that neither more nor
fewer steps do.

    >>> compute_advantage(inputs, AdvantageConfig(adv_estimator="min_form"))

Specification of the pipeline, section 7.4; docs/reasoning_rl.md#rewards-of-steps
"""

import math

import torch

from verl.classmate.algorithm_config import AdvantageConfig
from verl.trainer.ppo.advantage.base import AdvantageInputs
from verl.trainer.ppo.advantage.process_part import (
    leave_one_out,
    less_baseline,
    step_ends,
    step_rewards,
    sums_to_come,
    with_process,
)


def min_form(inputs: AdvantageInputs, config: AdvantageConfig) -> torch.Tensor:
    """F less the mean of the others, plus, through the guards, the sum to come of the weighted rewards of steps less
    their baseline. Returns (B, R)."""
    weighted_BR = min_form_rewards(step_rewards(inputs), step_ends(inputs), config.process.min_form_temperature)
    process_BR = sums_to_come(less_baseline(weighted_BR, inputs))
    return with_process(leave_one_out(inputs, config), process_BR, inputs, config)


def min_form_rewards(rewards_BR: torch.Tensor, ends_BR: torch.Tensor, temperature: float) -> torch.Tensor:
    """softmax(-r / T) r over the steps of each row, on their last tokens. (B, R)."""
    logits_BR = (-rewards_BR / temperature).masked_fill(~ends_BR, -math.inf)
    # Rows without a step have no weights.
    weights_BR = torch.softmax(logits_BR, dim=-1).nan_to_num(0.0)
    return weights_BR * rewards_BR
