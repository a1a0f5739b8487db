"""One number for a solution from the scores of its steps (docs/reasoning.md).

One decision: a step that could not be scored (None) is left out, never taken for a 0; where nothing is left, there is
no number.

    >>> aggregate([0.9, 0.2, 0.8], "min")
    0.2
    >>> aggregate([0.9, None, 0.8], "last")
    0.8
"""

import math
from collections.abc import Sequence
from typing import Literal, get_args

Aggregation = Literal["min", "prod", "last", "mean", "geo", "softmin", "first_error_pos"]
AGGREGATIONS: tuple[Aggregation, ...] = get_args(Aggregation)

_DEFAULT: dict[str, Aggregation] = {"mc": "last", "perturb": "min", "mixed": "last", "consensus": "prod"}
_TINY = 1e-6


def default_aggregation(label_mode: str) -> Aggregation:
    """What suits labels of a kind: completions -> `last`, consensus and people -> `prod`.

    A step's label from completions says whether the answer can still be reached, so the last step has seen all; labels
    of the steps themselves must all be good (Z. Zhang et al., 2025, arXiv:2501.07301).
    """
    return _DEFAULT.get(label_mode, "prod")


def aggregate(
    scores: Sequence[float | None], how: Aggregation = "min", *, temperature: float = 0.1, threshold: float = 0.5
) -> float | None:
    """One number of 0 to 1; None where no step has a score.

    Args:
        scores: probability that each step is right, in order.
        how: `min`, `prod`, `last`, `mean`; `geo`: exp of the mean of log(s + 1e-6); `softmin`: the mean with weights
            softmax(-s / temperature), as PURE trains with (arXiv:2504.15275); `first_error_pos`: the share of steps
            before the first one below `threshold`.
        temperature: of `softmin`; towards 0 it is `min`, towards infinity `mean`.
        threshold: of `first_error_pos`.

    Raises:
        ValueError: an unknown `how`, or a temperature that is not positive.
    """
    known = [score for score in scores if score is not None]
    if how not in AGGREGATIONS:
        raise ValueError(f"aggregation {how!r}: write one of {', '.join(AGGREGATIONS)}")
    if not known:
        return None
    if how == "min":
        return min(known)
    if how == "prod":
        return math.prod(known)
    if how == "last":
        return known[-1]
    if how == "mean":
        return math.fsum(known) / len(known)
    if how == "geo":
        return min(1.0, math.exp(math.fsum(math.log(score + _TINY) for score in known) / len(known)))
    if how == "softmin":
        return _softmin(known, temperature)
    wrong = next((place for place, score in enumerate(known) if score < threshold), len(known))
    return wrong / len(known)


def _softmin(scores: Sequence[float], temperature: float) -> float:
    if not temperature > 0:
        raise ValueError(f"temperature={temperature}: softmin needs one above 0; write 0.1")
    least = min(scores)
    weights = [math.exp((least - score) / temperature) for score in scores]
    return math.fsum(w * s for w, s in zip(weights, scores, strict=True)) / math.fsum(weights)
