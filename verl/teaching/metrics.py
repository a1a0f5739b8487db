"""Every number that is logged of a teacher's rows: where it comes from, and which statistic of the step it is.

One decision: tables. `NUMBERS` says what a row's numbers are, `METRICS` what a step makes of them. A row in which a
number is missing (NaN) counts in no statistic of it, and a metric that no row can tell is not there. All are over the
whole step, once for all rows and once for each student, since a ratio of sums is not the mean of ratios.

    >>> metrics.update(step_metrics(rows, [rcl_reward(row, config) for row in rows]))
    >>> metrics["rcl/ndr"], metrics["rcl/student/qwen/ndr"]
    (0.97, 0.97)

D = w - b is told as it is, also where a leak takes its gain out of the reward. RCL, section on the metrics.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from verl.classmate.outcome import Outcome
from verl.classmate.scoring import nanmean
from verl.teaching.rcl import RclReward, RclTerms, change_of, valid_groups
from verl.teaching.rlt import RltReward, RltRow, RltTerms
from verl.teaching.row import TaughtRow
from verl.teaching.tags import TeachingState

Columns = Mapping[str, np.ndarray]
"""Numbers of rows by name, each (B,), NaN where a row has none."""


def _reward(row: TaughtRow, reward: RclReward) -> float:
    return math.nan if reward.reward is None else reward.reward


def _term(name: str) -> Callable[[TaughtRow, RclReward], float]:
    return lambda row, reward: math.nan if reward.terms is None else getattr(reward.terms, name)


def _effect(number: Callable[[float, float], float]) -> Callable[[TaughtRow, RclReward], float]:
    """A number made of b and w, of rows that have both."""

    def of_row(row: TaughtRow, reward: RclReward) -> float:
        return math.nan if reward.effect is None else number(reward.effect.base, reward.effect.guided)

    return of_row


def _taught(name: str) -> Callable[[TaughtRow, RclReward], float]:
    """Of the student's answers with advice; where none is shown, of those without."""
    return lambda row, reward: getattr(row.taught, name)


def _still_right(row: TaughtRow, reward: RclReward) -> float:
    """The share of answers that are right on both sides, which are drawn apart; where nothing is shown, they are the
    same answers, and what was right is."""
    if reward.effect is None:
        return math.nan
    return reward.effect.base * (reward.effect.guided if row.shown else 1.0)


def _is_in(state: TeachingState) -> Callable[[TaughtRow, RclReward], float]:
    return lambda row, reward: float(row.state is state)


def _question(test: Callable[[TeachingState], bool]) -> Callable[[TaughtRow, RclReward], float]:
    """Of the teacher's question for the probe, in rows that have one."""
    return lambda row, reward: math.nan if row.question_state is None else float(test(row.question_state))


def _rlt_term(name: str) -> Callable[[RltRow, RltReward], float]:
    return lambda row, reward: math.nan if reward.terms is None else getattr(reward.terms, name)


RCL_TERMS = tuple(RclTerms.__dataclass_fields__)
RLT_TERMS = tuple(RltTerms.__dataclass_fields__)

NUMBERS: Mapping[str, Callable[[TaughtRow, RclReward], float]] = {
    "reward": _reward,
    **{f"reward_{name}": _term(name) for name in RCL_TERMS},
    "b": _effect(lambda b, w: b),
    "w": _effect(lambda b, w: w),
    "d": _effect(change_of),
    "still_right": _still_right,
    "improve": _effect(lambda b, w: float(change_of(b, w) > 0)),
    "degrade": _effect(lambda b, w: float(change_of(b, w) < 0)),
    "keep": _effect(lambda b, w: float(change_of(b, w) == 0 and b > 0)),
    "both_wrong": _effect(lambda b, w: float(change_of(b, w) == 0 and b == 0)),
    "length": lambda row, reward: float(row.shown_length),
    **{state.value: _is_in(state) for state in TeachingState},
    "leak": lambda row, reward: float(row.shown_leak),
    "question_tokens": lambda row, reward: row.question_tokens,
    "question_empty": _question(lambda state: state is TeachingState.empty),
    "question_broken": _question(lambda state: not state.keeps_contract),
    "probe_tokens": lambda row, reward: row.probe_tokens,
    "probe_cut": lambda row, reward: row.probe_cut,
    "base_parsed": lambda row, reward: row.base.parsed,
    "guided_parsed": _taught("parsed"),
    "base_completed": lambda row, reward: row.base.completed,
    "guided_completed": _taught("completed"),
    "base_tokens": lambda row, reward: row.base.tokens,
    "guided_tokens": _taught("tokens"),
    "cache_hit": lambda row, reward: row.cache_hit,
    "student_seconds": lambda row, reward: row.student_seconds,
    "failed_calls": lambda row, reward: float(row.guided.failed if row.shown and row.guided is not None else 0),
    "excluded": lambda row, reward: float(reward.outcome is not Outcome.ok),
}
"""A row's numbers."""


def _mean(name: str) -> Callable[[Columns], float]:
    return lambda columns: nanmean(columns[name])


def _std(name: str) -> Callable[[Columns], float]:
    return lambda columns: _of_known(columns[name], np.std)


def _quantile(name: str, share: float) -> Callable[[Columns], float]:
    return lambda columns: _of_known(columns[name], lambda values: np.quantile(values, share))


def _of_known(values: np.ndarray, statistic: Callable[[np.ndarray], float]) -> float:
    known = values[~np.isnan(values)]
    return float(statistic(known)) if known.size else math.nan


def _total(name: str) -> Callable[[Columns], float]:
    return lambda columns: float(np.nansum(columns[name]))


def _missing_share(name: str) -> Callable[[Columns], float]:
    return lambda columns: 1 - nanmean(columns[name])


def _kept_right(columns: Columns) -> float:
    """P(guided right | baseline right), as an evaluation has it (`verl.teaching.evaluation_metrics`)."""
    return _ratio(float(np.nansum(columns["still_right"])), float(np.nansum(columns["b"])))


def _normalised_gain(columns: Columns) -> float:
    base = nanmean(columns["b"])
    return _ratio(nanmean(columns["w"]) - base, 1 - base)


def _efficiency(columns: Columns) -> float:
    """TES; none where advice is less than a token long on average."""
    length = nanmean(columns["length"])
    if not length >= 1:
        return math.nan
    return nanmean(columns["d"]) * nanmean(columns["guided_completed"]) / (length / 1000)


def _tokens_saved(columns: Columns) -> float:
    """Over the rows that have both."""
    both = ~np.isnan(columns["base_tokens"]) & ~np.isnan(columns["guided_tokens"])
    base, guided = (float(columns[name][both].sum()) for name in ("base_tokens", "guided_tokens"))
    return _ratio(base - guided, base)


def _severity(columns: Columns) -> float:
    changes = columns["d"]
    return nanmean(-changes[changes < 0])


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else math.nan


METRICS: Mapping[str, Callable[[Columns], float]] = {
    **{
        f"{name}/{statistic}": make(name)
        for name in ("reward", *(f"reward_{term}" for term in RCL_TERMS))
        for statistic, make in (("mean", _mean), ("std", _std))
    },
    **{name: _mean(name) for name in ("improve", "keep", "both_wrong", "degrade", "b", "w", "d")},
    "abs_d": lambda columns: nanmean(np.abs(columns["d"])),
    "apg": _mean("d"),
    "ngain": _normalised_gain,
    "ndr": lambda columns: 1 - nanmean(columns["degrade"]),
    "ndr_c": _kept_right,
    "severity": _severity,
    "tes": _efficiency,
    "length/mean": _mean("length"),
    "length/p50": _quantile("length", 0.5),
    "length/p95": _quantile("length", 0.95),
    "abstain": _mean("empty"),
    **{name: _mean(name) for name in ("missing", "unclosed", "malformed", "overlong", "leak")},
    "question/tokens": _mean("question_tokens"),
    "question/empty": _mean("question_empty"),
    "question/broken": _mean("question_broken"),
    "probe/tokens": _mean("probe_tokens"),
    "probe/truncated": _mean("probe_cut"),
    "parse_failure/base": _missing_share("base_parsed"),
    "parse_failure/guided": _missing_share("guided_parsed"),
    "completion/base": _mean("base_completed"),
    "completion/guided": _mean("guided_completed"),
    "response_tokens/base": _mean("base_tokens"),
    "response_tokens/guided": _mean("guided_tokens"),
    "response_tokens/saved": _tokens_saved,
    "cache_hit": _mean("cache_hit"),
    "student_seconds": _mean("student_seconds"),
    "failed_calls": _total("failed_calls"),
    "excluded_rows": _total("excluded"),
}
"""Of a step's rows, under `rcl/NAME`, and of each student's under `rcl/student/KEY/NAME`."""


def step_metrics(rows: Sequence[TaughtRow], rewards: Sequence[RclReward]) -> dict[str, float]:
    """All metrics of a step of RCL; empty without rows.

    Args:
        rows: (B,) of the whole step, without padding.
        rewards: (B,) by `rcl_reward`.

    Raises:
        ValueError: lists of different lengths; rows of one group with different baselines.
    """
    constant = constant_groups(rewards, [row.group for row in rows])
    if not rows:
        return {}
    columns = {
        name: np.array([number(row, reward) for row, reward in zip(rows, rewards, strict=True)], dtype=float)
        for name, number in NUMBERS.items()
    }
    students = np.array([row.student for row in rows], dtype=object)
    metrics = _named("rcl", columns)
    for student in dict.fromkeys(row.student for row in rows if row.student):
        metrics |= _named(f"rcl/student/{student}", {name: one[students == student] for name, one in columns.items()})
    counts = Counter(reward.outcome for reward in rewards)
    metrics |= {f"rcl/outcome/{outcome.value}": float(counts[outcome]) for outcome in Outcome}
    return metrics | {"rcl/zero_variance_groups": float(constant)}


def _named(prefix: str, columns: Columns) -> dict[str, float]:
    values = {f"{prefix}/{name}": metric(columns) for name, metric in METRICS.items()}
    return {name: value for name, value in values.items() if not math.isnan(value)}


def constant_groups(rewards: Sequence[RclReward], groups: Sequence[str]) -> int:
    """Groups in which two rows or more have a reward, and all of those the same."""
    found = 0
    for rows in valid_groups(rewards, groups).values():
        known = [reward for i in rows if (reward := rewards[i].reward) is not None]
        found += len(known) > 1 and max(known) - min(known) <= 1e-9
    return found


RLT_NUMBERS: Mapping[str, Callable[[RltRow, RltReward], float]] = {
    "reward": lambda row, reward: math.nan if reward.reward is None else reward.reward,
    **{f"reward_{name}": _rlt_term(name) for name in RLT_TERMS},
    "solution_log_prob": lambda row, reward: reward.solution_log_prob,
    "divergence": lambda row, reward: reward.divergence,
    "teacher_log_prob": lambda row, reward: reward.teacher_log_prob,
    "student_log_prob": lambda row, reward: reward.student_log_prob,
    "not_closed": lambda row, reward: float(not row.closed),
    "empty": lambda row, reward: float(row.empty),
    "excluded": lambda row, reward: float(reward.outcome is not Outcome.ok),
}
"""A row's numbers in RLT; each has `rlt/NAME/mean` and `rlt/NAME/std`, and `excluded` the count `rlt/excluded_rows`."""


def rlt_metrics(rows: Sequence[RltRow], rewards: Sequence[RltReward]) -> dict[str, float]:
    """All metrics of a step of RLT; empty without rows.

    Args:
        rows: (B,) of the whole step, without padding.
        rewards: (B,) by `rlt_reward`.

    Raises:
        ValueError: lists of different lengths.
    """
    if len(rows) != len(rewards):
        raise ValueError(f"{len(rewards)} rewards for {len(rows)} rows; give one for each row")
    if not rows:
        return {}
    columns = {
        name: np.array([number(row, reward) for row, reward in zip(rows, rewards, strict=True)], dtype=float)
        for name, number in RLT_NUMBERS.items()
    }
    metrics = {"rlt/excluded_rows": float(columns.pop("excluded").sum())}
    for name in columns:
        metrics |= {f"rlt/{name}/mean": _mean(name)(columns), f"rlt/{name}/std": _std(name)(columns)}
    return {name: value for name, value in metrics.items() if not math.isnan(value)}
