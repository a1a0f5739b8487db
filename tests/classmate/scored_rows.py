"""Rows with made-up scores, and what the rules make of them: in one view by `scored`, in several by `views_scored`.

>>> scored(1.0, [[1.0, 0.0], [1.0, Outcome.timeout]], weights=[3.0, 1.0]).scores.classmate_score
"""

from collections.abc import Sequence

from tests.classmate.rows import SPAN, asked, read_row
from verl.classmate.config import ClassmateCotRewardConfig
from verl.classmate.cot import CotKind, CotSpan
from verl.classmate.metrics import row_numbers
from verl.classmate.outcome import Outcome
from verl.classmate.reward_scale import RewardScale
from verl.classmate.row import Asked, Continuation, RowScores, ScoredRow, Verdict
from verl.classmate.scoring import RewardRules, score_row

BINARY = RewardScale(direction="maximize", low=0.0, high=1.0, threshold=0.5)
HINT = RewardScale(direction="minimize", low=0.0, high=1.0, threshold=0.5)
RATING = RewardScale(direction="maximize", low=1.0, high=10.0, threshold=5.5)
SYCOPHANCY = RewardScale(direction="minimize", low=1.0, high=10.0, threshold=5.5)
LOGIT = RewardScale(direction="maximize", low=None, high=None, threshold=0.25)

ALONE = "remove_wo_cot"
STEP_WISE = "random_truncate_step_wise_utility"


def answers(scores_VMS: list[list[list[float | Outcome | None]]], agreement_MS: list | None = None) -> list[Asked]:
    """scores_VMS[v][m][s]: a raw score, or the outcome of a request without one; agreement_MS[m][s] the consistency of
    the fullest view's answers."""
    result: list[list[Continuation]] = [[] for _ in scores_VMS[0]]
    for v, scores_MS in enumerate(scores_VMS):
        for m, scores_S in enumerate(scores_MS):
            for s, score in enumerate(scores_S):
                result[m].append(
                    Continuation(
                        view=v,
                        sample=s,
                        outcome=score if isinstance(score, Outcome) else Outcome.ok,
                        score=None if isinstance(score, Outcome) else score,
                        consistency=agreement_MS[m][s] if agreement_MS and v == 0 else None,
                        token_length=10 * (m + 1) + s,
                    )
                )
    return [asked(items, views=len(scores_VMS)) for items in result]


def rules(
    weights: Sequence[float], scale: RewardScale = BINARY, classmate_scale: RewardScale | None = None,
    format_weight: float = 0.0, token_cost: float = 0.0, **options
) -> RewardRules:  # fmt: skip
    return RewardRules(
        config=ClassmateCotRewardConfig(**options),
        scale=scale,
        classmate_scale=classmate_scale or scale,
        weights=tuple(weights),
        format_weight=format_weight,
        token_cost=token_cost,
    )


def scored(
    main: float | None = 1.0,
    scores: list | None = None,
    scale: RewardScale = BINARY,
    main_outcome: Outcome = Outcome.ok,
    weights: list[float] | None = None,
    kind: CotKind = CotKind.closed,
    samples: int = 2,
    **options,
) -> ScoredRow:
    """A row whose classmates were shown one view; `options` as for `rules`."""
    scores = [[1.0, 0.0], [1.0, 1.0]] if scores is None else scores
    span = SPAN if kind is CotKind.closed else CotSpan(**{**vars(SPAN), "kind": kind, "output": None})
    weights = [1.0] * len(scores) if weights is None else weights
    verdict = Verdict(outcome=main_outcome, score=main)
    return score_row(read_row(span, samples=samples), verdict, answers([scores]), rules(weights, scale, **options))


def row(*given, **options) -> RowScores:
    return scored(*given, **options).scores


def numbers(*given, **options) -> dict[str, float]:
    return row_numbers(scored(*given, **options))


def views_scored(scores_VMS: list, *, agreement_MS: list | None = None, main: float = 1.0, **options) -> ScoredRow:
    """A row whose classmates were shown several views."""
    read = read_row(samples=len(scores_VMS[0][0]), views=len(scores_VMS))
    of_run = rules([1.0] * len(scores_VMS[0]), **{"use_classmate_main_cond": "always", **options})
    return score_row(read, Verdict(score=main), answers(scores_VMS, agreement_MS), of_run)


def views_row(*given, **options) -> RowScores:
    return views_scored(*given, **options).scores


def views_numbers(*given, **options) -> dict[str, float]:
    return row_numbers(views_scored(*given, **options))
