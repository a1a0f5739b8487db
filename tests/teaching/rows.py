"""Rows of a teacher by their numbers.

>>> reward(base=0.0, guided=1.0, length=100).reward
1.5
"""

import math

import numpy as np
import torch

from verl.classmate.algorithm_config import AdvantageConfig
from verl.classmate.outcome import Outcome
from verl.teaching.alignment import ScoredTokens
from verl.teaching.rcl import RclReward, rcl_reward
from verl.teaching.reward_config import TeachingRewardConfig
from verl.teaching.rlt import RltReward, RltRow
from verl.teaching.row import SolveRate, TaughtRow
from verl.teaching.tags import TeachingState
from verl.trainer.ppo.advantage import AdvantageInputs, compute_advantage

SOLUTION = [-0.1, -0.3, -0.2]
DIVERGENCES = [0.5, 0.1, -0.2, 1.0]
TEACHER = [-1.0, -1.0, -1.0, -1.0]
STUDENT = [teacher - d for teacher, d in zip(TEACHER, DIVERGENCES, strict=True)]
"""Log-probabilities of RLT's worked example."""

Rate = float | Outcome | SolveRate
"""How a solve rate is written in a test."""


def rate(value: Rate, tokens: float = 200.0, **more: float) -> SolveRate:
    if isinstance(value, SolveRate):
        return value
    if isinstance(value, Outcome):
        return SolveRate(outcome=value)
    return SolveRate(rate=value, tokens=tokens, **more)


def row(
    base: Rate = 0.0,
    guided: Rate = 1.0,
    *,
    state: TeachingState = TeachingState.ok,
    tokens: tuple[float, float] = (200.0, 200.0),
    **more,
) -> TaughtRow:
    """A row whose student solves `base` alone and `guided` with advice, in so many tokens."""
    values = {"group": "q1", "student": "s", "base": rate(base, tokens[0]), "guided": rate(guided, tokens[1])}
    return TaughtRow(state=state, **values | more)


def reward(*rates: Rate, config: TeachingRewardConfig | None = None, **more) -> RclReward:
    return rcl_reward(row(*rates, **more), config or TeachingRewardConfig())


def advantages(
    rewards: list[RclReward], *, by_std: bool, groups: list[str] | None = None, rlt: list[RltReward] | None = None
) -> list[float]:
    """What the project's own grpo makes of a step's RCL rewards; with RLT rewards beside them, its gdpo_wo_bn."""
    count = len(rewards)
    values_B = torch.tensor([math.nan if one.reward is None else one.reward for one in rewards])
    second_B = torch.tensor([math.nan if one.reward is None else one.reward for one in rlt or rewards])
    none_B = torch.zeros(count, dtype=torch.bool)
    inputs = AdvantageInputs(
        base_reward_B=values_B,
        classmate_reward_B=second_B,
        final_reward_B=values_B,
        main_valid_B=torch.tensor([one.outcome is Outcome.ok for one in rewards]),
        classmate_valid_B=none_B if rlt is None else torch.tensor([one.outcome is Outcome.ok for one in rlt]),
        classmate_asked_B=none_B,
        response_mask_BR=torch.ones(count, 1),
        classmate_mask_BR=torch.ones(count, 1),
        group_B=np.array(groups or ["q1"] * count, dtype=object),
    )
    estimator = "grpo" if rlt is None else "gdpo_wo_bn"
    config = AdvantageConfig(adv_estimator=estimator, norm_adv_by_std_in_grpo=by_std)
    return compute_advantage(inputs, config).advantages_BR[:, 0].tolist()


def rlt_row(solution=SOLUTION, teacher=TEACHER, student=STUDENT, **more) -> RltRow:
    """The worked example: an explanation of four tokens, a solution of three."""
    values = {"explanation": "abcd", "closed": True}
    return RltRow(
        solution_log_probs=solution,
        teacher=ScoredTokens(log_probs=teacher),
        student=ScoredTokens(log_probs=student),
        **values | more,
    )
