"""From the scores of one row's answers to its rewards.

One decision: a helper that failed is data, an `Outcome`, never a score. What has no score is NaN here, is left out of
every mean, and is counted: docs/method.md#what-fails-is-no-score

    >>> scale = RewardScale(direction="maximize", low=0.0, high=1.0, threshold=0.5)
    >>> answers = [Continuation(classmate=0, sample=0, outcome=Outcome.ok, text="7", score=1.0)]
    >>> row = score_row(main_score=1.0, main_outcome=Outcome.ok, continuations=answers, scale=scale,
    ...                 config=ClassmateCotRewardConfig(), weights=[1.0], samples=1, span=span)
    >>> row.final_reward                    # r + w * gamma * C
    2.0
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from verl.classmate.config import ClassmateCotRewardConfig
from verl.classmate.cot import CotKind, CotSpan
from verl.classmate.errors import ConfigError
from verl.classmate.typed import is_range

if TYPE_CHECKING:
    from verl.utils.reward_score.cot_monitor import BaseVerifier


class Outcome(StrEnum):
    """What became of one answer, the main model's or a classmate's."""

    ok = "ok"
    empty_cot = "empty_cot"
    unfinished_cot = "unfinished_cot"
    too_long = "too_long"
    no_answer = "no_answer"
    no_partner = "no_partner"
    template_error = "template_error"
    not_needed = "not_needed"
    excluded = "excluded"
    timeout = "timeout"
    engine_error = "engine_error"
    judge_error = "judge_error"


# Outcomes that are decided before any classmate is asked, by what the policy wrote or by the batch. Not `not_needed`:
# that row was fit to be shown, but W is 0 whatever they answer (`ask_when_it_counts_only`).
NOT_ASKED = frozenset({Outcome.empty_cot, Outcome.unfinished_cot, Outcome.too_long, Outcome.no_partner})
# The policy wrote no answer: its own failure, scored by `unfinished_main_score`.
# docs/method.md#what-fails-is-no-score
POLICY_FAILURES = frozenset({Outcome.unfinished_cot, Outcome.no_answer})

ROUNDING = 1e-13
"""What float64 leaves of a sum that is 0, as a share of its terms, with room to spare."""


@dataclass(frozen=True, kw_only=True)
class RewardScale:
    """How a verifier's raw score is read
    (docs/method.md#when-it-counts-use_classmate_main_cond)."""

    direction: Literal["maximize", "minimize"] = "maximize"
    """Whether the raw score is to rise or to fall."""
    low: float | None = 0.0
    """Lowest raw score; None: unbounded."""
    high: float | None = 1.0
    """Highest raw score; None: unbounded."""
    threshold: float = 0.5
    """Directed score from which an answer counts as correct."""

    @classmethod
    def of(cls, verifier: "BaseVerifier", direction: Literal["maximize", "minimize"] | None = None) -> "RewardScale":
        """How a verifier's scores are read, with its own direction or the run's (`reward_model.reward_direction`)."""
        low, high = verifier.reward_range
        own = cls(direction=verifier.reward_direction, low=low, high=high, threshold=verifier.main_correct_threshold)
        return own.turned(direction)

    @classmethod
    def of_function(cls, function: Callable[..., Any], bounds: Sequence[float | None] | None) -> "RewardScale":
        """How the scores of a user's function are read: within `bounds`, else its own attribute `reward_range`, else 0
        to 1; from `main_correct_threshold`, else the middle; `reward_direction`, else to be raised.

        Raises:
            ConfigError: an attribute that says nothing of the kind.
        """
        named = function_attributes(function)
        low, high = bounds or named.get("reward_range", (0.0, 1.0))
        middle = math.nan if low is None or high is None else (low + high) / 2
        direction = named.get("reward_direction", "maximize")
        return cls(direction=direction, low=low, high=high, threshold=named.get("main_correct_threshold", middle))

    def is_below_lowest(self, score: float) -> bool:
        """Whether a raw score is worse than what a row without an answer gets."""
        return self.lowest is not None and directed(score, self) < self.lowest

    def is_above_highest(self, score: float) -> bool:
        """Whether a raw score is better than the best, by more than rounding."""
        best = self.high if self.direction == "maximize" else self.low
        if best is None:
            return False
        rounding = 1e-6 * max(abs(best), abs(score))
        return score > best + rounding if self.direction == "maximize" else score < best - rounding

    def turned(self, direction: Literal["maximize", "minimize"] | None) -> "RewardScale":
        """The same scores read in another direction (None: as it is).

        The raw score that divides right from wrong stays, and the other side of it is right: 5.5 of 1 to 10 (minimised:
        right up to 5.5) stays 5.5 (maximised: right from there).
        """
        if direction in (None, self.direction):
            return self
        assert direction is not None
        threshold = directed(self.threshold, replace(self, direction="minimize"))
        return replace(self, direction=direction, threshold=threshold)

    @property
    def lowest(self) -> float | None:
        """Lowest directed reward, None if there is none."""
        if self.direction == "maximize":
            return self.low
        return None if self.high is None else directed(self.high, self)


def function_attributes(function: Callable[..., Any]) -> dict[str, Any]:
    """What a user's function says of its scores by its own attributes, also where it was wrapped.

    Raises:
        ConfigError: a value that is none.
    """
    wrapped = [function]
    while isinstance(wrapped[-1], functools.partial):
        # Upstream puts the function into the arguments of its own.
        wrapped.append(next((one for one in wrapped[-1].args if callable(one)), wrapped[-1].func))
    checks: dict[str, tuple[Callable[[Any], bool], str]] = {
        "reward_range": (is_range, "(-1, 1)"),
        "reward_direction": (lambda value: value in ("maximize", "minimize"), "'maximize'"),
        "main_correct_threshold": (lambda value: type(value) in (int, float) and math.isfinite(value), "0.5"),
    }
    found: dict[str, Any] = {}
    for name, (is_valid, example) in checks.items():
        value = getattr(wrapped[-1], name, None)
        if value is None:
            continue
        if not is_valid(value):
            raise ConfigError(f"reward.custom_reward_function: its {name} is {value!r}; write for instance {example}")
        found[name] = value
    return found


def declares_range(function: Callable[..., Any], bounds: Sequence[float | None] | None) -> bool:
    """Whether the range of a user's function is anybody's word: `reward_model.custom_reward_range`, or its own."""
    return bool(bounds) or "reward_range" in function_attributes(function)


def directed(score: float, scale: RewardScale) -> float:
    """The raw score turned so that more is better: x, or low + high - x (-x without both bounds) to minimise."""
    if scale.direction == "maximize":
        return score
    if scale.low is None or scale.high is None:
        return -score
    return scale.low + scale.high - score


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """One sample of one classmate."""

    classmate: int
    """Index m of the classmate."""
    sample: int
    """Index s of the sample."""
    view: int = 0
    """Index v of what it was shown (`verl.classmate.views`)."""
    outcome: Outcome
    """What became of it."""
    text: str | None = None
    """What was scored."""
    token_length: int = 0
    """Generated tokens."""
    finish_reason: str | None = None
    """Why the engine stopped: stop, length, abort."""
    score: float | None = None
    """The verifier's raw score."""
    consistency: float | None = None
    """The verifier's raw score with the main model's answer for ground truth."""
    error: str | None = None
    """What the engine or the verifier said, where one of them failed."""
    judge: Mapping[str, Any] | None = None
    """What a judge made of it (`Judgement.record`), where one was asked."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassmateScores:
    """The rewards of one row. V views, M classmates, S samples, K segments; NaN where there is no score."""

    main_score: float
    """Raw score of the main output."""
    base_reward: float
    """r: directed score of the main output plus weighted format; 0 if not `main_valid`."""
    main_valid: bool
    """False: the main output could not be scored; the row gets no advantage and enters no statistics."""
    main_outcome: Outcome
    """What became of the main output."""
    format_score: float
    """Format score of the main output."""
    main_correct: bool
    """Whether the main answer reaches the threshold that the condition tests."""
    raw_scores_VMS: np.ndarray
    """Raw scores of the classmates' answers."""
    scores_VMS: np.ndarray
    """The same, directed."""
    outcomes: tuple[Outcome, ...]
    """What became of every request."""
    classmate_score: float
    """C, aggregated over samples and classmates; where the reward type compares views, their difference."""
    best_classmate_score: float
    """The best classmate's part of C."""
    avg_classmate_score: float
    """Plain mean over classmates of their parts of C."""
    gamma: float
    """Condition factor, 1, 0 or -1."""
    classmate_reward: float
    """W = gamma C; 0 if not `classmate_valid`."""
    classmate_valid: bool
    """False: no valid sample; the row is left out of the classmate component."""
    final_reward: float
    """F, the fused scalar; r where the classmate part is missing."""
    classmate_reward_weight: float
    """w."""
    consistency_reward: float
    """K, agreement of the classmates' answers with the main model's; 0 if not `consistency_valid`."""
    consistency_valid: bool
    """False: no consistency reward was asked for, or none could be had."""
    segment_rewards_K: np.ndarray
    """gamma u_k, what each segment of the CoT added to C; NaN where missing. Empty but for step-wise utility."""
    response_lengths_VMS: np.ndarray
    """Generated tokens of every request that was answered."""
    cot_length: int
    """Tokens of the main model's CoT."""
    output_length: int
    """Tokens of the main model's output."""
    cot_kind: CotKind
    """How the CoT was found."""
    keep_rate: float
    """Share of the CoT that was handed over."""
    extra: Mapping[str, float]
    """Further numbers of the reward type, for the log."""

    @property
    def asked(self) -> bool:
        """Whether the row was shown to any classmate, or would have been if W were not 0 anyway."""
        return any(outcome not in NOT_ASKED for outcome in self.outcomes)

    @property
    def counts(self) -> bool:
        """Whether the answers to it move its reward: not where gamma is 0."""
        return self.asked and self.gamma != 0

    @property
    def scores_MS(self) -> np.ndarray:
        """Directed scores of the fullest view."""
        return self.scores_VMS[0]

    def extra_info(self) -> dict[str, float]:
        """All of it as numbers, with the same keys in every row of a run; NaN where the row is excluded."""
        nan = math.nan
        weighted = self.classmate_reward_weight * self.classmate_reward
        has_final = self.main_valid and (self.classmate_valid or not self.outcomes)
        base = self.base_reward if self.main_valid else nan
        info = {
            "base_reward": base,
            "main_model_reward": base,
            "main_model_score": self.main_score,
            "format_score": self.format_score,
            "main_valid": float(self.main_valid),
            "main_judge_error": float(self.main_outcome not in POLICY_FAILURES | {Outcome.ok}),
            "classmate_scores": self.classmate_score,
            "best_classmate_score": self.best_classmate_score,
            "avg_classmate_score": self.avg_classmate_score,
            "gamma": self.gamma,
            "classmate_reward": self.classmate_reward if self.classmate_valid else nan,
            "weighted_classmate_reward": weighted if self.classmate_valid else nan,
            "classmate_valid": float(self.classmate_valid),
            "classmate_asked": float(self.asked and Outcome.not_needed not in self.outcomes),
            "final_reward": self.final_reward if has_final else nan,
            "classmate_response_length": _nanmean(self.response_lengths_VMS),
            "classmate_max_tokens_len": _nanmax(self.response_lengths_VMS),
            "main_keep_rates": self.keep_rate if self.asked else nan,
            "main_cot_length": float(self.cot_length),
            "main_output_length": float(self.output_length),
            "unfinished_cot": float(self.cot_kind is CotKind.unfinished),
            "no_marker": float(self.cot_kind is CotKind.no_marker),
        }
        info |= self.extra
        for index, scores_S in enumerate(self.scores_MS):
            info[f"classmate_{index}_score"] = _nanmean(scores_S)
            info[f"classmate_{index}_response_length"] = _nanmean(self.response_lengths_VMS[:, index])
        for outcome in Outcome:
            info[f"outcome_{outcome.value}"] = float(self.outcomes.count(outcome))
        return info


def score_row(
    *,
    main_score: float | None,
    main_outcome: Outcome,
    continuations: Sequence[Continuation],
    scale: RewardScale,
    config: ClassmateCotRewardConfig,
    weights: Sequence[float],
    samples: int,
    span: CotSpan,
    views: int = 1,
    classmate_scale: RewardScale | None = None,
    keep_rate: float = 1.0,
    format_score: float = 0.0,
    format_weight: float = 0.0,
) -> ClassmateScores:
    """Rewards of one row.

    docs/method.md#what-classmates-are-shown-classmate_reward_type

    Args:
        main_score: raw score of the main output; None if it has none.
        main_outcome: `ok`; a policy failure such as `unfinished_cot` or `no_answer`; or a failure of the verifier.
        continuations: at most one per (view, classmate, sample); what is missing counts as `excluded`.
        scale: of the verifier of the main output.
        weights: one per classmate (M); empty for baselines.
        samples: S.
        views: V of this row; 1 if nobody was asked.
        classmate_scale: of the verifier of the classmates' answers; None: the same.
        keep_rate: share of the CoT that was handed over.
        format_score, format_weight: of the main output.

    Raises:
        ConfigError: `unfinished_main_score=lowest` with a verifier that has no lowest score.
    """
    score, base, main_valid = _main_reward(main_score, main_outcome, scale, config)
    if main_outcome is Outcome.ok and score is None:
        main_outcome = Outcome.judge_error
    main_correct = main_valid and base >= _threshold(scale, config)
    gamma = condition_factor(main_score, main_outcome, scale, config)
    base += format_weight * format_score if main_valid and score is not None else 0.0

    shape = (views, len(weights), samples)
    raw_VMS, lengths_VMS, cut_VMS, agreement_MS = (np.full(one, math.nan) for one in (shape, shape, shape, shape[1:]))
    outcomes = np.full(shape, Outcome.excluded, dtype=object)
    for item in continuations:
        place, outcome = (item.view, item.classmate, item.sample), item.outcome
        if outcome is Outcome.ok and not _is_number(item.score):
            outcome = Outcome.judge_error
        outcomes[place] = outcome
        if outcome is Outcome.ok:
            raw_VMS[place] = item.score
        if outcome in (Outcome.ok, Outcome.no_answer, Outcome.judge_error):
            lengths_VMS[place] = item.token_length
            cut_VMS[place] = float(item.finish_reason == "length")
        if item.view == 0 and _is_number(item.consistency):
            agreement_MS[place[1:]] = item.consistency
    read = classmate_scale or scale
    scores_VMS = np.vectorize(lambda x: directed(x, read), otypes=[float])(raw_VMS) if raw_VMS.size else raw_VMS

    def aggregate(values_M: np.ndarray) -> float:
        return _aggregate(values_M, np.asarray(weights, dtype=float), config.classmate_aggregation)

    def gain(fuller_M: np.ndarray, less_M: np.ndarray) -> float:
        """C of one view minus C of another, over the classmates that answered both."""
        both_M = ~np.isnan(fuller_M) & ~np.isnan(less_M)
        sides = [aggregate(np.where(both_M, values_M, math.nan)) for values_M in (fuller_M, less_M)]
        return _settled(sides[0] - sides[1], sides)

    means_VM = np.array([[_nanmean(scores_S) for scores_S in scores_MS] for scores_MS in scores_VMS])
    gains_M = means_VM[0] - means_VM[-1] if config.compares_with_question_alone else means_VM[0]
    aggregated = gain(means_VM[0], means_VM[-1]) if config.compares_with_question_alone else aggregate(means_VM[0])
    classmate_valid = not math.isnan(aggregated) and not math.isnan(gamma)
    best = _nanmax(gains_M)
    if gamma == 0:
        # W is 0 whatever was answered, or not, but for rows that nobody could have been shown.
        classmate_valid = any(outcome not in NOT_ASKED | {Outcome.excluded} for outcome in outcomes.flat)
    reward = gamma * aggregated if classmate_valid and gamma else 0.0

    segments_K = np.full(config.segments, math.nan)
    extra = {"classmate_clip_ratio": _nanmean(cut_VMS)}
    extra |= {f"classmate_{m}_clip_ratio": _nanmean(cut_VMS[:, m]) for m in range(shape[1])}
    if config.compares_with_question_alone:
        extra["classmate_with_cot_score"], extra["classmate_alone_score"] = (
            _nanmean(means_VM[0]),
            _nanmean(means_VM[-1]),
        )
        for k in range(1, views if config.segments and classmate_valid else 1):
            segments_K[k - 1] = gamma * gain(means_VM[views - 1 - k], means_VM[views - k]) if gamma else 0.0
    consistency = (
        aggregate(np.array([_nanmean(row) for row in agreement_MS])) if config.add_consistency_reward else math.nan
    )
    final = _fuse(base, reward, gamma * best if gamma else 0.0, config) if classmate_valid else base
    if config.add_consistency_reward:
        extra["consistency_reward"] = consistency
        final += 0.0 if math.isnan(consistency) else config.consistency_reward_weight * consistency
    return ClassmateScores(
        main_score=math.nan if score is None else score,
        base_reward=base,
        main_valid=main_valid,
        main_outcome=main_outcome,
        format_score=format_score,
        main_correct=main_correct,
        raw_scores_VMS=raw_VMS,
        scores_VMS=scores_VMS,
        outcomes=tuple(outcomes.flatten()),
        classmate_score=aggregated,
        best_classmate_score=best,
        avg_classmate_score=_nanmean(gains_M),
        gamma=gamma,
        classmate_reward=reward,
        classmate_valid=classmate_valid,
        final_reward=final,
        classmate_reward_weight=config.classmate_reward_weight,
        consistency_reward=0.0 if math.isnan(consistency) else consistency,
        consistency_valid=not math.isnan(consistency),
        segment_rewards_K=segments_K,
        response_lengths_VMS=lengths_VMS,
        cot_length=span.cot_length,
        output_length=span.output_length,
        cot_kind=span.kind,
        keep_rate=keep_rate,
        extra=extra,
    )


def condition_factor(
    main_score: float | None, main_outcome: Outcome, scale: RewardScale, config: ClassmateCotRewardConfig
) -> float:
    """gamma, NaN for a row whose main output could not be scored; arguments as for `score_row`."""
    _, base, main_valid = _main_reward(main_score, main_outcome, scale, config)
    return _gamma(base >= _threshold(scale, config), config) if main_valid else math.nan


def _is_number(score: float | None) -> bool:
    return score is not None and math.isfinite(score)


def _main_reward(
    score: float | None, outcome: Outcome, scale: RewardScale, config: ClassmateCotRewardConfig
) -> tuple[float | None, float, bool]:
    """Raw score, directed reward without format, validity of the main output."""
    if outcome is Outcome.ok and _is_number(score):
        assert score is not None
        return score, directed(score, scale), True
    if outcome not in POLICY_FAILURES or config.unfinished_main_score == "exclude":
        return None, 0.0, False
    if config.unfinished_main_score != "lowest":
        return None, float(config.unfinished_main_score), True
    if scale.lowest is None:
        raise ConfigError(
            "reward_model.classmate_cot_reward_configs.unfinished_main_score: lowest needs a verifier with a lowest "
            "score; write a number or exclude"
        )
    return None, scale.lowest, True


def _threshold(scale: RewardScale, config: ClassmateCotRewardConfig) -> float:
    return scale.threshold if config.main_correct_threshold is None else config.main_correct_threshold


def _gamma(main_correct: bool, config: ClassmateCotRewardConfig) -> float:
    condition = config.use_classmate_main_cond
    if condition in ("always", "no_classmate"):
        return float(condition == "always")
    if main_correct:
        return 1.0
    return 0.0 if condition == "no_classmate_when_main_incorrect" else -1.0


def _aggregate(values_M: np.ndarray, weights_M: np.ndarray, how: str) -> float:
    """One number of all classmates'; weights are renormalised over those that have one."""
    if how == "max":
        return _nanmax(values_M)
    valid_M = ~np.isnan(values_M)
    total = float(weights_M[valid_M].sum()) if valid_M.size else 0.0
    if total == 0.0:
        return math.nan
    terms_M = weights_M[valid_M] * values_M[valid_M]
    return _settled(float(terms_M.sum() / total), terms_M / total)


def _settled(value: float, terms: Sequence[float] | np.ndarray) -> float:
    """0 where nothing but rounding is left of terms that cancel; the estimators could no longer tell."""
    return 0.0 if abs(value) <= ROUNDING * float(np.abs(terms).max()) else value


def _fuse(base: float, reward: float, best: float, config: ClassmateCotRewardConfig) -> float:
    """F, by `reward_fusion`."""
    weight = config.classmate_reward_weight
    if config.reward_fusion == "weighted_average":
        return (1 - weight) * base + weight * reward
    return base + weight * (best if config.reward_fusion == "base_plus_max" else reward)


def _nanmean(values: np.ndarray) -> float:
    values = values[~np.isnan(values)] if values.size else values
    return _settled(float(values.mean()), values) if values.size else math.nan


def _nanmax(values: np.ndarray) -> float:
    values = values[~np.isnan(values)] if values.size else values
    return float(values.max()) if values.size else math.nan


def aggregate_metrics(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The step's `classmate/*` metrics from `extra_info` of its real rows (no padding); means skip excluded rows.

    Ratios are shares of rows, `outcome/*` counts of classmate requests. How many groups were excluded is in the metrics
    of the advantage, where groups are known.
    """
    if not rows:
        return {}

    def column(key: str) -> np.ndarray:
        return np.array([row[key] for row in rows], dtype=float)

    judge_failed = (column("main_judge_error") > 0) | (column("outcome_judge_error") > 0)
    metrics = {
        "classmate/failed_judge_ratio": float(judge_failed.mean()),
        "classmate/unfinished_cot_ratio": float(column("unfinished_cot").mean()),
        "classmate/no_marker_ratio": float(column("no_marker").mean()),
    }
    requests = {outcome: float(column(f"outcome_{outcome.value}").sum()) for outcome in Outcome}
    # A baseline's rows are shown to nobody, which is no failure of anybody.
    if sum(requests.values()):
        metrics["classmate/valid_ratio"] = float(column("classmate_valid").mean())
        metrics["classmate/missing_ratio"] = float(1 - column("classmate_valid").mean())
        metrics["classmate/gamma_mean"] = _nanmean(column("gamma"))
        metrics["classmate/unasked_rows"] = float((column(f"outcome_{Outcome.not_needed.value}") > 0).sum())
        metrics |= {f"classmate/outcome/{outcome.value}": count for outcome, count in requests.items()}
    for key in rows[0]:
        if not key.startswith("outcome_"):
            metrics[f"critic/{key}/mean"] = _nanmean(column(key))
    return {key: value for key, value in metrics.items() if not math.isnan(value)}
