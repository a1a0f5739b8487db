"""Four responses to one prompt, small enough to compute by hand, and what the estimators make of them.

>>> on_cot, elsewhere = columns(run(inputs(), adv_estimator="grpo_w_classmate"))
>>> on_cot == near(1.1802, -0.9986, 0.4539, -0.6355)
"""

import numpy as np
import pytest
import torch

from verl.classmate.algorithm_config import AdvantageConfig
from verl.trainer.ppo.advantage import AdvantageInputs, AdvantageResult, compute_advantage

R = torch.tensor([1.0, 0.0, 1.0, 0.0])
C = torch.tensor([1.0, 0.0, 0.0, 0.5])
GAMMA = {
    "always": torch.ones(4),
    "no_classmate_when_main_incorrect": (R >= 0.5).float(),
    "neg_classmate_when_main_incorrect": torch.where(R >= 0.5, 1.0, -1.0),
}
# Three response tokens: one that was handed over, one of the output, one of padding.
RESPONSE_MASK = torch.tensor([[1, 1, 0]])
CLASSMATE_MASK = torch.tensor([[1, 0, 0]])


def inputs(
    base: torch.Tensor = R, classmate: torch.Tensor = C, weight: float = 0.5, groups: list | None = None, **changes
) -> AdvantageInputs:
    rows = len(base)
    values = {
        "base_reward_B": base,
        "classmate_reward_B": classmate,
        "final_reward_B": base + weight * classmate,
        "main_valid_B": torch.ones(rows, dtype=torch.bool),
        "classmate_valid_B": torch.ones(rows, dtype=torch.bool),
        "response_mask_BR": RESPONSE_MASK.repeat(rows, 1),
        "classmate_mask_BR": CLASSMATE_MASK.repeat(rows, 1),
        "group_B": np.array(groups or ["a"] * rows, dtype=object),
    }
    return AdvantageInputs(**values | changes)


def run(given_inputs: AdvantageInputs, **options) -> AdvantageResult:
    config = AdvantageConfig(**{"classmate_reward_weight": 0.5, "min_classmate_valid_fraction": 0.0} | options)
    return compute_advantage(given_inputs, config)


def columns(result: AdvantageResult) -> tuple[list[float], list[float]]:
    """Advantages on the CoT token and on the output token."""
    assert torch.equal(result.advantages_BR[:, 2], torch.zeros(len(result.advantages_BR)))
    assert result.returns_BR is result.advantages_BR
    return result.advantages_BR[:, 0].tolist(), result.advantages_BR[:, 1].tolist()


def near(*values: float):
    return pytest.approx(list(values), abs=6e-5)
