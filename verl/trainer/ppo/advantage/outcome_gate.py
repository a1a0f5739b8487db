"""What a teacher's groups are compared by: the outcome gate, and groups that are left out.

One decision: the rule is `verl.teaching.rcl`'s, on the rows' numbers; here tensors become its values and back.

    >>> inputs, metrics = taught_inputs(inputs, rows, teaching_config)
    >>> compute_advantage(inputs, AdvantageConfig(adv_estimator="grpo", norm_adv_by_std_in_grpo=False))

docs/teaching.md; spec of adaptive teaching, section 2.4.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from verl.classmate.outcome import Outcome
from verl.teaching.config import TeachingConfig
from verl.teaching.rcl import Effect, RclReward, RclTerms, gated_advantages, unsolved_groups
from verl.teaching.reward_config import TeachingRewardConfig
from verl.teaching.taught import GATE_FIELDS
from verl.trainer.ppo.advantage.base import AdvantageInputs


@dataclass(frozen=True, kw_only=True)
class RclGate:
    """`gated_advantages` of a step's rows."""

    rewards: Sequence[RclReward]
    """(B,)"""
    config: TeachingRewardConfig
    """The node `rcl.reward`."""

    def __call__(self, advantages_B: torch.Tensor, inputs: AdvantageInputs) -> torch.Tensor:
        """The advantages through the gate, (B,); 0 on rows that do not count."""
        counts = inputs.main_rows_B.tolist()
        rewards = [
            one if known else RclReward(outcome=Outcome.excluded)
            for one, known in zip(self.rewards, counts, strict=True)
        ]
        gated = gated_advantages(advantages_B.tolist(), rewards, list(map(str, inputs.group_B)), self.config)
        return torch.tensor(gated, dtype=advantages_B.dtype)


def taught_inputs(
    inputs: AdvantageInputs, rows: Mapping[str, torch.Tensor], teaching: TeachingConfig
) -> tuple[AdvantageInputs, dict[str, float]]:
    """The inputs of an estimator with the gate, without groups whose student solves nothing; and metrics.

    Args:
        inputs: of the step's rows.
        rows: (B,) `GATE_FIELDS`.
        teaching: the typed node `rcl`.
    """
    if not teaching.reward.uses_rcl:
        return inputs, {}
    valid = inputs.main_rows_B.tolist()
    columns = [rows[name].tolist() for name in GATE_FIELDS]
    rewards = [
        _reward(*numbers, reward=reward) if known else RclReward(outcome=Outcome.excluded)
        for known, reward, *numbers in zip(valid, inputs.base_reward_B.tolist(), *columns, strict=True)
    ]
    groups = list(map(str, inputs.group_B))
    unsolved = unsolved_groups(rewards, groups, teaching.reward)
    kept_B = torch.tensor([group not in unsolved for group in groups], dtype=torch.bool)
    inputs = dataclasses.replace(
        inputs,
        main_valid_B=inputs.main_valid_B.bool() & kept_B,
        gate=RclGate(rewards=rewards, config=teaching.reward),
    )
    return inputs, {"rcl/unsolved_groups": float(len(unsolved))}


def _reward(base: float, change: float, conciseness: float, faults: float, *, reward: float) -> RclReward:
    """What the gate needs of a row: whatever is punished counts as a fault of format here."""
    return RclReward(
        outcome=Outcome.ok,
        reward=reward,
        terms=RclTerms(format=faults),
        effect=Effect(base=base, guided=base + change, change=change, conciseness=conciseness),
    )
