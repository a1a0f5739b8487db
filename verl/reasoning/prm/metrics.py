"""How well scores tell right steps from wrong ones, and which step is the first wrong one.

One decision: a step without a score is left out and counted, and a number that cannot be told (one class only) is None.
All are exact, in numpy; ties are shared.

    >>> step_metrics([0.9, 0.2], [1, 0])["auroc"]
    1.0
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from verl.stepwise.first_error import NONE, first_error, found_errors

BINS = 10
"""Of the expected calibration error."""


def step_metrics(scores: Sequence[float], labels: Sequence[float], threshold: float = 0.5) -> dict[str, float | None]:
    """Numbers of single steps.

    Args:
        scores: probability that each is right.
        labels: 1 right, 0 wrong; a soft one counts as right above 0.5, and as it is in `brier` and `ece`.
        threshold: a step below is called wrong, in `f1_neg`.

    Returns:
        avg_correct_score, avg_incorrect_score, score_gap: mean scores of right and of wrong steps, and their
        difference.
        discrimination_accuracy: share of steps on the right side of 0.5.
        auroc; ap: average precision of finding wrong steps; ece, brier; f1_neg: F1 of finding wrong steps.
    """
    score, soft = np.asarray(scores, float), np.asarray(labels, float)
    right = soft > 0.5
    correct = float(score[right].mean()) if right.any() else None
    wrong = float(score[~right].mean()) if (~right).any() else None
    called = score < threshold
    hit = int((called & ~right).sum())
    total = int(called.sum() + (~right).sum())
    return {
        "avg_correct_score": correct,
        "avg_incorrect_score": wrong,
        "score_gap": None if correct is None or wrong is None else correct - wrong,
        "discrimination_accuracy": float(((score >= 0.5) == right).mean()) if len(score) else None,
        "auroc": auroc(score, right),
        "ap": average_precision(-score, ~right),
        "ece": expected_calibration_error(score, soft),
        "brier": float(((score - soft) ** 2).mean()) if len(score) else None,
        "f1_neg": 2 * hit / total if total else None,
    }


def solution_metrics(
    scores: Sequence[Sequence[float | None]], first_errors: Sequence[int], threshold: float = 0.5
) -> dict[str, Any]:
    """Numbers of whole solutions.

    Returns:
        first_error_acc: share of the wrong solutions whose first error is named exactly.
        correct_acc: share of the right ones in which none is.
        processbench_f1: the harmonic mean of the two.
        min_at_last_share: share of the solutions of two steps and more whose lowest score is the last one; above 0.4
        the model judges outcomes.
        weakest_step_acc: share of the wrong solutions whose lowest score is the first error.
        n_unscored: solutions that could not be scored.
    """
    told = found_errors([first_error(row, threshold) for row in scores], first_errors)
    whole = [
        (np.asarray(row, float), truth) for row, truth in zip(scores, first_errors, strict=True) if None not in row
    ]
    last = [int(row.argmin()) == len(row) - 1 for row, _ in whole if len(row) > 1]
    weakest = [int(row.argmin()) == truth for row, truth in whole if truth != NONE and len(row)]
    return {
        "first_error_acc": told.error_accuracy,
        "correct_acc": told.correct_accuracy,
        "processbench_f1": told.f1,
        "min_at_last_share": float(np.mean(last)) if last else None,
        "weakest_step_acc": float(np.mean(weakest)) if weakest else None,
        "n_unscored": told.n_unscored,
    }


def auroc(scores: "np.ndarray[Any, Any]", positive: "np.ndarray[Any, Any]") -> float | None:
    """The probability that a positive one scores above a negative one; ties count half."""
    n_pos, n_neg = int(positive.sum()), int((~positive).sum())
    if not n_pos or not n_neg:
        return None
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return float((ranks[positive].sum() - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg))


def average_precision(scores: "np.ndarray[Any, Any]", positive: "np.ndarray[Any, Any]") -> float | None:
    """The area under the steps of precision over recall; equal scores are taken together."""
    if not positive.any():
        return None
    order = np.argsort(-scores, kind="stable")
    hits, ordered = np.cumsum(positive[order]), scores[order]
    ends = np.flatnonzero(np.append(np.diff(ordered) != 0, True))
    precision, recall = hits[ends] / (ends + 1), hits[ends] / hits[-1]
    return float((np.diff(recall, prepend=0.0) * precision).sum())


def expected_calibration_error(scores: "np.ndarray[Any, Any]", labels: "np.ndarray[Any, Any]") -> float | None:
    """The mean distance of score and share of right ones, over bins of equal width."""
    if not len(scores):
        return None
    bins = np.minimum((scores * BINS).astype(int), BINS - 1)
    gaps = [abs(float((scores - labels)[bins == place].sum())) for place in range(BINS)]
    return sum(gaps) / len(scores)
