"""How likely classmates find a row's ground truth: the score of the reward types `likelihood` and `likelihood_gain`.

One decision: a classmate's reply is the log-probabilities of the tokens that state the ground truth, and is kept as
such. The score is made of them here, so that a replay can make another one.
docs/method.md#how-likely-the-ground-truth-is-likelihood

    >>> reduced((-0.5, -1.5), "mean"), reduced((-0.5, -1.5), "sum")
    (-1.0, -2.0)
"""

import math
from collections.abc import Sequence
from typing import Literal

from verl.classmate.reward_scale import RewardScale
from verl.classmate.row import Asked

Reduction = Literal["mean", "sum"]
"""How the log-probabilities of several tokens become one number."""


def reduced(log_probs: Sequence[float], how: Reduction) -> float:
    """One number, at most 0, of the log-probabilities of the tokens (one or more)."""
    total = math.fsum(log_probs)
    return total / len(log_probs) if how == "mean" else total


def scale(direction: Literal["maximize", "minimize"]) -> RewardScale:
    """How such a number is read: at most 0, without a lowest value, turned as the verifier's scores are."""
    return RewardScale(direction=direction, low=None, high=0.0, threshold=math.nan)


def of_views(asked: Sequence[Asked], how: Reduction, *, views: int) -> list[float]:
    """(V,) of each view, the plain mean over the classmates that told of all views; NaN if there is none."""
    told = []
    for one in asked:
        found = {item.view: reduced(item.log_probs, how) for item in one.continuations if item.log_probs}
        if len(found) == views:
            told.append([found[v] for v in range(views)])
    return [math.fsum(view) / len(view) for view in zip(*told, strict=True)] or [math.nan] * views
