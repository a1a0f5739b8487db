"""From the scores of one row's answers to its rewards.

One decision: a helper that failed is data, an `Outcome`, never a score (spec D3). What has no score is NaN here, is
left out of every mean, and is counted.

    >>> scale = RewardScale(direction="maximize", low=0.0, high=1.0, threshold=0.5)
    >>> answers = [Continuation(classmate=0, sample=0, outcome=Outcome.ok, text="7", score=1.0)]
    >>> row = score_row(main_score=1.0, main_outcome=Outcome.ok, continuations=answers, scale=scale,
    ...                 config=ClassmateCotRewardConfig(), weights=[1.0], samples=1, span=span)
    >>> row.final_reward                    # r + w * gamma * C
    2.0
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np

from verl.classmate.config import ClassmateCotRewardConfig
from verl.classmate.cot import CotKind, CotSpan
from verl.classmate.errors import ConfigError


class Outcome(StrEnum):
    """What became of one answer, the main model's or a classmate's."""

    ok = "ok"
    empty_cot = "empty_cot"
    unfinished_cot = "unfinished_cot"
    too_long = "too_long"
    no_answer = "no_answer"
    no_partner = "no_partner"
    excluded = "excluded"
    timeout = "timeout"
    engine_error = "engine_error"
    judge_error = "judge_error"


# Outcomes that are decided before any classmate is asked, by what the policy wrote or by the batch.
NOT_ASKED = frozenset({Outcome.empty_cot, Outcome.unfinished_cot, Outcome.too_long, Outcome.no_partner})
# The policy wrote no answer: its own failure, scored by `unfinished_main_score` (spec D5).
POLICY_FAILURES = frozenset({Outcome.unfinished_cot, Outcome.no_answer})


@dataclass(frozen=True, kw_only=True)
class RewardScale:
    """How a verifier's raw score is read (spec D1, D2, 9.3)."""

    direction: Literal["maximize", "minimize"] = "maximize"
    """Whether the raw score is to rise or to fall."""
    low: float | None = 0.0
    """Lowest raw score; None: unbounded."""
    high: float | None = 1.0
    """Highest raw score; None: unbounded."""
    threshold: float = 0.5
    """Directed score from which an answer counts as correct."""

    @property
    def lowest(self) -> float | None:
        """Lowest directed reward, None if there is none."""
        if self.direction == "maximize":
            return self.low
        return None if self.high is None else directed(self.high, self)


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


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassmateScores:
    """The rewards of one row. M classmates, S samples; NaN where there is no score."""

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
    raw_scores_MS: np.ndarray
    """Raw scores of the classmates' answers."""
    scores_MS: np.ndarray
    """The same, directed."""
    outcomes_MS: tuple[tuple[Outcome, ...], ...]
    """What became of every request."""
    classmate_score: float
    """C, aggregated over samples and classmates."""
    best_classmate_score: float
    """Best classmate's mean over its samples."""
    avg_classmate_score: float
    """Plain mean over classmates of their means over samples."""
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
    response_lengths_MS: np.ndarray
    """Generated tokens of every request that was answered."""
    cot_length: int
    """Tokens of the main model's CoT."""
    output_length: int
    """Tokens of the main model's output."""
    cot_kind: CotKind
    """How the CoT was found."""

    @property
    def asked(self) -> bool:
        """Whether any classmate was asked about this row."""
        return any(outcome not in NOT_ASKED for outcomes in self.outcomes_MS for outcome in outcomes)

    def extra_info(self) -> dict[str, float]:
        """All of it as numbers, with the same keys in every row of a run; NaN where the row is excluded (spec 7)."""
        nan = math.nan
        outcomes = [outcome for row in self.outcomes_MS for outcome in row]
        weighted = self.classmate_reward_weight * self.classmate_reward
        has_final = self.main_valid and (self.classmate_valid or not outcomes)
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
            "classmate_asked": float(self.asked),
            "final_reward": self.final_reward if has_final else nan,
            "classmate_response_length": _nanmean(self.response_lengths_MS),
            "classmate_max_tokens_len": _nanmax(self.response_lengths_MS),
            "main_cot_length": float(self.cot_length),
            "main_output_length": float(self.output_length),
            "unfinished_cot": float(self.cot_kind is CotKind.unfinished),
            "no_marker": float(self.cot_kind is CotKind.no_marker),
        }
        for index, scores_S in enumerate(self.scores_MS):
            info[f"classmate_{index}_score"] = _nanmean(scores_S)
            info[f"classmate_{index}_response_length"] = _nanmean(self.response_lengths_MS[index])
        for outcome in Outcome:
            info[f"outcome_{outcome.value}"] = float(outcomes.count(outcome))
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
    format_score: float = 0.0,
    format_weight: float = 0.0,
) -> ClassmateScores:
    """Rewards of one row (spec 3.1 to 3.3).

    Args:
        main_score: raw score of the main output; None if it has none.
        main_outcome: `ok`; a policy failure such as `unfinished_cot` or `no_answer`; or a failure of the verifier.
        continuations: at most one per (classmate, sample); what is missing counts as `excluded`.
        weights: one per classmate (M); empty for baselines.
        samples: S.
        format_score, format_weight: of the main output.

    Raises:
        ConfigError: `unfinished_main_score=lowest` with a verifier that has no lowest score.
    """
    score, base, main_valid = _main_reward(main_score, main_outcome, scale, config)
    if main_outcome is Outcome.ok and score is None:
        main_outcome = Outcome.judge_error
    gamma = _gamma(base, main_valid, scale, config)
    base += format_weight * format_score if main_valid and score is not None else 0.0

    shape = (len(weights), samples)
    raw_MS, lengths_MS = np.full(shape, math.nan), np.full(shape, math.nan)
    outcomes = [[Outcome.excluded] * samples for _ in weights]
    for item in continuations:
        outcome = item.outcome
        if outcome is Outcome.ok and not _is_number(item.score):
            outcome = Outcome.judge_error
        outcomes[item.classmate][item.sample] = outcome
        if outcome is Outcome.ok:
            raw_MS[item.classmate, item.sample] = item.score
        if outcome in (Outcome.ok, Outcome.no_answer, Outcome.judge_error):
            lengths_MS[item.classmate, item.sample] = item.token_length
    scores_MS = np.vectorize(lambda x: directed(x, scale), otypes=[float])(raw_MS) if raw_MS.size else raw_MS

    means_M = np.array([_nanmean(scores_S) for scores_S in scores_MS])
    valid_M = ~np.isnan(means_M)
    aggregated = _aggregate(means_M, valid_M, np.asarray(weights, dtype=float), config.classmate_aggregation)
    classmate_valid = not math.isnan(aggregated) and not math.isnan(gamma)
    best = _nanmax(means_M)
    reward = gamma * aggregated if classmate_valid else 0.0
    return ClassmateScores(
        main_score=math.nan if score is None else score,
        base_reward=base,
        main_valid=main_valid,
        main_outcome=main_outcome,
        format_score=format_score,
        raw_scores_MS=raw_MS,
        scores_MS=scores_MS,
        outcomes_MS=tuple(tuple(row) for row in outcomes),
        classmate_score=aggregated,
        best_classmate_score=best,
        avg_classmate_score=_nanmean(means_M),
        gamma=gamma,
        classmate_reward=reward,
        classmate_valid=classmate_valid,
        final_reward=_fuse(base, reward, gamma * best, config) if classmate_valid else base,
        classmate_reward_weight=config.classmate_reward_weight,
        response_lengths_MS=lengths_MS,
        cot_length=span.cot_length,
        output_length=span.output_length,
        cot_kind=span.kind,
    )


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


def _gamma(base: float, main_valid: bool, scale: RewardScale, config: ClassmateCotRewardConfig) -> float:
    """Condition factor (spec 3.2, D2); NaN if the main output has no score to test."""
    if not main_valid:
        return math.nan
    condition = config.use_classmate_main_cond
    if condition in ("always", "no_classmate"):
        return float(condition == "always")
    threshold = scale.threshold if config.main_correct_threshold is None else config.main_correct_threshold
    if base >= threshold:
        return 1.0
    return 0.0 if condition == "no_classmate_when_main_incorrect" else -1.0


def _aggregate(means_M: np.ndarray, valid_M: np.ndarray, weights_M: np.ndarray, how: str) -> float:
    """C of one row; weights are renormalised over the classmates that have a valid sample."""
    if how == "max":
        return _nanmax(means_M)
    total = float(weights_M[valid_M].sum()) if valid_M.size else 0.0
    if total == 0.0:
        return math.nan
    return float((weights_M[valid_M] * means_M[valid_M]).sum() / total)


def _fuse(base: float, reward: float, best: float, config: ClassmateCotRewardConfig) -> float:
    """F (spec 3.3)."""
    weight = config.classmate_reward_weight
    if config.reward_fusion == "weighted_average":
        return (1 - weight) * base + weight * reward
    return base + weight * (best if config.reward_fusion == "base_plus_max" else reward)


def _nanmean(values: np.ndarray) -> float:
    values = values[~np.isnan(values)] if values.size else values
    return float(values.mean()) if values.size else math.nan


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
        metrics |= {f"classmate/outcome/{outcome.value}": count for outcome, count in requests.items()}
    for key in rows[0]:
        if not key.startswith("outcome_"):
            metrics[f"critic/{key}/mean"] = _nanmean(column(key))
    return {key: value for key, value in metrics.items() if not math.isnan(value)}
