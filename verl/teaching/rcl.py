"""The RCL reward: what a teacher's advice changes in a frozen student's solve rate, and what makes it an advantage.

One decision: a reward is the sum of its terms, each with a name, so that a dump says why a row got what it got. A row
without a number in it is an `Outcome` and has neither reward nor terms; it is in no statistic and gets no advantage.

    >>> base, guided = solve_rate([StudentAnswer(score=0.0)]), solve_rate([StudentAnswer(score=1.0)])
    >>> row = TaughtRow(group="q1", state=TeachingState.ok, base=base, guided=guided, length=100)
    >>> rcl_reward(row, TeachingRewardConfig()).reward
    1.5

With b and w the solve rates without and with the advice, D = w - b, L its length, and e = tau / (tau + L):

    D <  0:  r = -degradation_penalty |D|
    D >= 0:  r = (D + keep_coef b) (1 + efficiency_weight e)
    then     r - format_penalty [tag contract broken] - leak_penalty [answer given away], kept within r_min and r_max

RCL is "Reinforcement Collaborative Learning: Adaptive Teaching at Scale"; groups are GRPO's (arXiv 2402.03300).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from verl.classmate.outcome import Outcome
from verl.teaching.reward_config import TeachingRewardConfig
from verl.teaching.row import SolveRate, TaughtRow

SAME_RATE = 1e-9
"""Solve rates that differ by less are the same: means of a few answers, summed in another order."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What the advice did."""

    base: float
    """b."""
    guided: float
    """w."""
    change: float
    """D as it counts: w - b, but no gain from an answer that was given away, with leak.mode=zero_gain."""
    conciseness: float
    """e(L), 1 for no advice."""


@dataclass(frozen=True, kw_only=True)
class RclTerms:
    """The parts of an RCL reward; their sum is the reward before it is clipped."""

    improvement: float = 0.0
    """D, where it is not negative."""
    degradation: float = 0.0
    """-degradation_penalty |D|, where it is."""
    kept: float = 0.0
    """keep_coef b, where D is not negative."""
    efficiency: float = 0.0
    """What brevity adds to both."""
    format: float = 0.0
    """-format_penalty, or 0."""
    leak: float = 0.0
    """-leak_penalty, or 0."""

    @property
    def total(self) -> float:
        """The reward before it is clipped."""
        return self.improvement + self.degradation + self.kept + self.efficiency + self.format + self.leak

    @property
    def faults(self) -> float:
        """What the policy is punished for whatever the student makes of it."""
        return self.format + self.leak


@dataclass(frozen=True, kw_only=True)
class RclReward:
    """The reward of one row, or why it has none."""

    outcome: Outcome
    """ok, or why the row counts in no statistic."""
    reward: float | None = None
    """Within r_min and r_max; None if the outcome is not ok."""
    terms: RclTerms | None = None
    """Its parts; None likewise."""
    effect: Effect | None = None
    """What the advice did; None likewise."""


def conciseness(length: int, tau: float) -> float:
    """e(L): 1 for no tokens, 0.5 for tau of them."""
    return tau / (tau + length)


def change_of(base: float, guided: float) -> float:
    """w - b, 0 where only rounding is left of it: a loss would else be made of two equal means."""
    return 0.0 if abs(guided - base) <= SAME_RATE else guided - base


def rcl_reward(row: TaughtRow, config: TeachingRewardConfig) -> RclReward:
    """The reward of one row.

    A student that could not be asked, a checker that failed and a number that is not finite make an outcome other than
    ok, and no reward.

    Args:
        row: with the student's solve rates.
        config: the node `rcl.reward`.
    """
    outcome = _outcome(row, config)
    if outcome is not Outcome.ok:
        return RclReward(outcome=outcome)
    base, guided = row.base.rate, row.taught.rate
    change = change_of(base, guided)
    if row.shown_leak and config.leak.mode == "zero_gain":
        change = min(change, 0.0)
    effect = Effect(
        base=base,
        guided=guided,
        change=change,
        conciseness=conciseness(row.shown_length, config.efficiency_tau),
    )
    terms = _terms(row, effect, config)
    if not math.isfinite(terms.total):
        return RclReward(outcome=Outcome.judge_error)
    reward = min(max(terms.total, config.r_min), config.r_max)
    return RclReward(outcome=Outcome.ok, reward=reward, terms=terms, effect=effect)


def _outcome(row: TaughtRow, config: TeachingRewardConfig) -> Outcome:
    """ok, or what went wrong first."""
    for side in (row.base, row.taught):
        if side.outcome is not Outcome.ok:
            return side.outcome
        if not 0 <= side.rate <= 1:
            return Outcome.judge_error
        if config.shape.brevity_of == "answer" and not (math.isfinite(side.tokens) and side.tokens >= 0):
            return Outcome.engine_error
    return Outcome.ok


def _terms(row: TaughtRow, effect: Effect, config: TeachingRewardConfig) -> RclTerms:
    shape = config.shape
    improvement = degradation = kept = efficiency = 0.0
    if effect.change < 0:
        degradation = 0.0 - shape.degradation_penalty * -effect.change
    else:
        improvement = effect.change
        kept = shape.keep_coef * effect.base
        if shape.brevity_of == "advice":
            efficiency = shape.efficiency_weight * effect.conciseness * (improvement + kept)
        else:
            saved = _saved(row.base, row.taught)
            efficiency = shape.efficiency_weight * saved * (effect.base + improvement)
    penalized = row.shown_leak and config.leak.mode != "report"
    return RclTerms(
        improvement=improvement,
        degradation=degradation,
        kept=kept,
        efficiency=efficiency,
        format=0.0 if row.keeps_contract else 0.0 - config.format_penalty,
        leak=0.0 - config.leak_penalty if penalized else 0.0,
    )


def _saved(base: SolveRate, taught: SolveRate) -> float:
    """rho: the share of the student's tokens that the advice saves, never negative."""
    return max(0.0, (base.tokens - taught.tokens) / base.tokens) if base.tokens > 0 else 0.0


def gated_advantages(
    advantages: Sequence[float], rewards: Sequence[RclReward], groups: Sequence[str], config: TeachingRewardConfig
) -> list[float]:
    """Advantages in which a group whose answers all come to the same is not moved by a blown-up length bonus.

    Where all valid rows of a group have the same effect, only brevity is left to tell them apart, and dividing by their
    standard deviation makes as much of it as of right and wrong. With `gate: outcome` such a group gets
    gate_length_coef (e(L) - its mean), if the student solves any of it, and its penalties, not normalised either.
    Rows without a reward, and groups with fewer than two that have one, get 0 in any case.

    Args:
        advantages: (B,) by any estimator.
        rewards: (B,) by `rcl_reward`.
        groups: (B,) of each row.
        config: the node `rcl.reward`.

    Raises:
        ValueError: lists of different lengths; rows of one group with different baselines.
    """
    members = valid_groups(rewards, groups)
    _check_length("advantages", advantages, groups)
    result = [0.0] * len(advantages)
    for rows in members.values():
        if len(rows) >= 2:
            gated = _gated([rewards[i] for i in rows], config)
            for place, i in enumerate(rows):
                result[i] = float(advantages[i]) if gated is None else gated[place]
    return result


def _gated(rewards: Sequence[RclReward], config: TeachingRewardConfig) -> list[float] | None:
    """What the gate makes of the valid rows of a group; None if it leaves them alone."""
    effects = [reward.effect for reward in rewards if reward.effect is not None]
    changes = [effect.change for effect in effects]
    if config.gate == "none" or max(changes) - min(changes) > SAME_RATE:
        return None
    solves = effects[0].base + max(changes) > SAME_RATE
    weight = config.gate_length_coef if solves else 0.0
    faults = [reward.terms.faults for reward in rewards if reward.terms is not None]
    parts = [weight * effect.conciseness + fault for effect, fault in zip(effects, faults, strict=True)]
    mean = math.fsum(parts) / len(parts)
    return [part - mean for part in parts]


def unsolved_groups(
    rewards: Sequence[RclReward], groups: Sequence[str], config: TeachingRewardConfig
) -> frozenset[str]:
    """The groups to leave out: the student solves nothing, without advice and with any of it. Groups that it solves
    alone stay, since they teach to do no harm.

    Args:
        rewards: (B,) by `rcl_reward`.
        groups: (B,) of each row.
        config: the node `rcl.reward`; nothing is left out unless it has `drop_unsolved_groups`.

    Raises:
        ValueError: lists of different lengths; rows of one group with different baselines.
    """
    if not config.drop_unsolved_groups:
        return frozenset()
    solved = {
        group: any(max(effect.base, effect.guided) > 0 for i in rows if (effect := rewards[i].effect) is not None)
        for group, rows in valid_groups(rewards, groups).items()
    }
    return frozenset(group for group, any_solved in solved.items() if not any_solved)


def valid_groups(rewards: Sequence[RclReward], groups: Sequence[str]) -> dict[str, list[int]]:
    """The numbers of the rows with a reward, by group, in order of appearance.

    Raises:
        ValueError: lists of different lengths; rows of one group with different baselines.
    """
    _check_length("rewards", rewards, groups)
    members: dict[str, list[int]] = {}
    bases: dict[str, float] = {}
    for i, (reward, group) in enumerate(zip(rewards, groups, strict=True)):
        if reward.effect is None:
            continue
        members.setdefault(group, []).append(i)
        base = bases.setdefault(group, reward.effect.base)
        if abs(base - reward.effect.base) > SAME_RATE:
            raise ValueError(
                f"rows of group {group!r} have the baselines {base:g} and {reward.effect.base:g}; measure the baseline "
                "once for a group, and give it to all of its rows"
            )
    return members


def _check_length(name: str, values: Sequence[object], groups: Sequence[str]) -> None:
    if len(values) != len(groups):
        raise ValueError(f"{len(values)} {name} for {len(groups)} rows; give one for each row")
