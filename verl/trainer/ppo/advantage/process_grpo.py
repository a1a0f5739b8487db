"""GRPO with process supervision (arXiv 2402.03300): a step's reward against those of all steps of the prompt's answers.

One decision: the outcome's part is `grpo` itself, so that without rewards of steps, with equal ones, or with the
coefficient 0 the advantages are grpo's to the last bit.

    >>> compute_advantage(inputs, AdvantageConfig(adv_estimator="process_grpo"))

Specification of the pipeline, section 7.4; docs/reasoning_rl.md#rewards-of-steps
"""

import numpy as np
import torch

from verl.classmate.algorithm_config import AdvantageConfig
from verl.trainer.ppo.advantage.base import AdvantageInputs
from verl.trainer.ppo.advantage.grpo import grpo
from verl.trainer.ppo.advantage.normalise import group_normalise
from verl.trainer.ppo.advantage.process_part import step_ends, step_rewards, sums_to_come, with_process


def process_grpo(inputs: AdvantageInputs, config: AdvantageConfig) -> torch.Tensor:
    """A(F) m plus, through the guards, the sum of the normalised rewards of the steps that end at a token or behind it.

    Returns (B, R). A group with a single step has no process part.
    """
    ends_BR = step_ends(inputs)
    rows, places = torch.nonzero(ends_BR, as_tuple=True)
    rewards = step_rewards(inputs)
    normalised_BR = torch.zeros_like(rewards)
    if len(rows):
        normalised_BR[rows, places] = group_normalise(
            rewards[rows, places],
            torch.ones(len(rows), dtype=torch.bool),
            np.asarray(inputs.group_B, dtype=object)[rows.numpy()],
            divide_by_std=config.norm_adv_by_std_in_grpo,
            singleton="zero",
        )
    return with_process(grpo(inputs, config), sums_to_come(normalised_BR), inputs, config)
