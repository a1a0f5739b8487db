"""The RLT reward: how likely a student finds the solution behind a teacher's explanation, and how likely that itself.

One decision: it is made of the log-probabilities of tokens as plain lists, without masks, so that an empty explanation
is a case of its own and no reduction over nothing. A row without a number in it is an `Outcome` and has no reward.

    >>> round(weighted([-0.1, -0.3, -0.2], ("mean", "min"), (1.0, 0.01)), 3)            # r_SS
    -0.203
    >>> round(weighted([0.5, 0.1, -0.2, 1.0], ("mean", "max"), (3.0, 0.03)), 3)         # lambda r_KL
    1.08

    r = r_SS - lambda r_KL + m
    r_SS: of the solution's log-probabilities by the student
    r_KL: of the explanation's log-probabilities, the teacher's minus the student's
    m: not_matched_penalty if the explanation is not closed, else 0

Reinforcement learning teachers of test time scaling (arXiv 2506.08388), section 3.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from verl.classmate.outcome import Outcome
from verl.teaching.alignment import ScoredTokens, fit, pairs, plain
from verl.teaching.reward_config import Alignment, Normaliser, Reduction, RltConfig
from verl.teaching.tags import is_blank

LOWEST_LOG_PROB = -50.0
"""Of a token of the solution: less is rounding, and would be all that a minimum sees."""

_LARGEST_EXPONENT = 300.0
"""Numbers beyond its exponential are clipped in any case, and sums of them are to stay finite."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RltRow:
    """One explanation, as teacher and student score it."""

    explanation: str
    """t, the text between the explanation tags, or behind the first where it is not closed."""
    closed: bool
    """Whether the closing tag is there."""
    outcome: Outcome = Outcome.ok
    """ok, or what became of the request to the scorer."""
    solution_log_probs: Sequence[float] | Any = ()
    """(T,) l, of the solution's tokens by the student, the tags' left out."""
    teacher: ScoredTokens = field(default_factory=ScoredTokens)
    """The explanation's tokens by the teacher; not looked at without `include_teacher_think_entropy`."""
    student: ScoredTokens = field(default_factory=ScoredTokens)
    """The same text's by the student."""
    alignment: Alignment = "token"
    """Where both are compared (`RltConfig.alignment`)."""

    def __post_init__(self) -> None:
        if self.alignment not in get_args(Alignment):
            raise ValueError(f"RltRow.alignment: {self.alignment!r} is not settled; give what RltConfig.alignment says")

    @property
    def empty(self) -> bool:
        """Whether nothing of it can be seen."""
        return is_blank(self.explanation)


@dataclass(frozen=True, kw_only=True)
class RltTerms:
    """The parts of an RLT reward; their sum is the reward before it is clipped."""

    solution: float = 0.0
    """r_SS."""
    divergence: float = 0.0
    """-lambda r_KL."""
    not_matched: float = 0.0
    """m."""
    empty: float = 0.0
    """r_min for an empty explanation, which has none of the others; else 0."""

    @property
    def total(self) -> float:
        """The reward before it is clipped."""
        return self.solution + self.divergence + self.not_matched + self.empty


@dataclass(frozen=True, kw_only=True)
class RltReward:
    """The reward of one row, or why it has none."""

    outcome: Outcome
    """ok, or why the row counts in no statistic."""
    reward: float | None = None
    """Within r_min and r_max; None if the outcome is not ok."""
    terms: RltTerms | None = None
    """Its parts; None likewise."""
    solution_log_prob: float = math.nan
    """Mean over the solution's tokens; NaN if there is no reward, or no explanation."""
    divergence: float = math.nan
    """Mean d; NaN likewise."""
    teacher_log_prob: float = math.nan
    """Mean over the explanation's tokens, by the teacher; NaN likewise, and where it does not count."""
    student_log_prob: float = math.nan
    """The same by the student."""


def rlt_reward(row: RltRow, config: RltConfig) -> RltReward:
    """The reward of one row.

    An explanation in which nothing can be seen gets r_min, whatever was scored. A scorer that failed, scored other
    tokens or gave a number that is not finite makes an outcome other than ok, and no reward.

    Args:
        row: with the log-probabilities of its tokens.
        config: the node `rcl.reward.rlt`.

    Raises:
        ValueError: a solution without tokens; `span` without the places of tokens.
    """
    if row.empty:
        return RltReward(outcome=Outcome.ok, reward=config.r_min, terms=RltTerms(empty=config.r_min))
    if row.outcome is not Outcome.ok:
        return RltReward(outcome=row.outcome)
    solution = plain(row.solution_log_probs)
    if not solution:
        raise ValueError("RltRow.solution_log_probs: the solution has no tokens; leave out such rows when data is read")
    teacher = row.teacher if config.include_teacher_think_entropy else row.student
    if not fit(teacher, row.student, row.alignment, row.explanation):
        return RltReward(outcome=Outcome.engine_error)
    compared = pairs(teacher, row.student, row.alignment, characters=len(row.explanation))
    if not all(map(math.isfinite, [*solution, *(number for pair in compared for number in pair)])):
        return RltReward(outcome=Outcome.engine_error)
    divergences = [_divergence(teacher, student, config) for teacher, student in compared]
    floor, weights = max(LOWEST_LOG_PROB, -config.clip_log_prob), config.weights
    likely = [_normalised(max(one, floor), config.normalize_log_prob_fn) for one in solution]
    unlike = [_normalised(one, config.normalize_kl_fn) for one in divergences]
    terms = RltTerms(
        solution=weighted(likely, config.reduction_log_prob_fn, weights.answer_log_prob_coeff),
        divergence=-weighted(unlike, config.reduction_kl_fn, weights.kl_penalty_reward_coeff),
        not_matched=0.0 if row.closed else config.not_matched_penalty,
    )
    if not math.isfinite(terms.total):
        return RltReward(outcome=Outcome.engine_error)
    return RltReward(
        outcome=Outcome.ok,
        reward=min(max(terms.total, config.r_min), config.r_max),
        terms=terms,
        solution_log_prob=_mean(solution),
        divergence=_mean(divergences),
        teacher_log_prob=_mean(row.teacher.numbers) if config.include_teacher_think_entropy else math.nan,
        student_log_prob=_mean(row.student.numbers),
    )


def weighted(values: Sequence[float], reductions: Sequence[Reduction], weights: Sequence[float]) -> float:
    """The sum of the reductions of values, each with its weight.

    Args:
        values: one or more.
        reductions: names of them.
        weights: one for each.

    Raises:
        ValueError: no values; more or fewer weights than reductions.
    """
    if not values:
        raise ValueError("nothing can be reduced over no tokens; give an empty text the lowest reward")
    return math.fsum(weight * REDUCTIONS[name](values) for name, weight in zip(reductions, weights, strict=True))


def _divergence(teacher: float, student: float, config: RltConfig) -> float:
    """d of one stretch of the explanation, clipped."""
    d = (teacher if config.include_teacher_think_entropy else 0.0) - student
    if config.use_schulman_kl_estimation:
        d = d - 1 + _exp(-d)
    return min(d, config.clip_kl)


def _normalised(x: float, how: Normaliser) -> float:
    if how == "exp":
        return _exp(x)
    return 1 - _exp(-x) if how == "exp_norm" else x


def _exp(x: float) -> float:
    return math.exp(min(x, _LARGEST_EXPONENT))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _quantile(values: Sequence[float], share: float) -> float:
    """Linear between the two nearest values."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


REDUCTIONS: Mapping[Reduction, Callable[[Sequence[float]], float]] = {
    "mean": _mean,
    "sum": math.fsum,
    "min": min,
    "max": max,
    "median": lambda values: _quantile(values, 0.5),
    "q25": lambda values: _quantile(values, 0.25),
    "q75": lambda values: _quantile(values, 0.75),
}
"""By the names that `reduction_log_prob_fn` and `reduction_kl_fn` take."""
