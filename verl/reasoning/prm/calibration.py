"""Makes scores comparable: the temperature of a head, and a map of any signal to a probability, fitted on dev rows.

One decision: after the map, 0.5 is the threshold of every signal: the place where its own first errors have the highest
F1. So the smaller of two signals is low where either of them would call the step wrong.

    >>> both = Calibration.fit(raw_scores, first_errors)
    >>> both(0.03)                                  # of 1: how sure the signal is that the step is right
    0.12
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from verl.stepwise.first_error import NONE, best_threshold

_EDGE = 1e-9
_STEEPEST = 8.0


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A rising map of 0..1 to 0..1: a line on the log-odds."""

    threshold: float = 0.5
    """Becomes 0.5."""
    slope: float = 1.0
    """Of the line: above 1 for a signal that is surer than it says."""

    def __call__(self, score: float) -> float:
        """The calibrated score."""
        return _sigmoid(self.slope * (_logit(score) - _logit(self.threshold)))

    def as_dict(self) -> dict[str, float]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def fit(cls, scores: Sequence[Sequence[float | None]], first_errors: Sequence[int]) -> "Calibration":
        """From solutions whose first error is known (-1: none).

        The threshold is the best one for first errors; the slope the likeliest one given the labels of all steps up to
        the first error. Steps without a score are left out.

        Raises:
            ValueError: there are no solutions.
        """
        threshold = min(1 - _EDGE, max(_EDGE, best_threshold(scores, first_errors)))
        pairs = [
            (_logit(score) - _logit(threshold), float(place != truth))
            for row, truth in zip(scores, first_errors, strict=True)
            for place, score in enumerate(row)
            if score is not None and (truth == NONE or place <= truth)
        ]
        # Right and wrong steps weigh the same: how many there are of each says nothing of one step.
        right = sum(label for _, label in pairs) or 1.0
        wrong = (len(pairs) - right) or 1.0

        def loss(slope: float) -> float:
            return sum(_cross_entropy(slope * odds, label) / (right if label else wrong) for odds, label in pairs)

        return cls(threshold=threshold, slope=_lowest(loss, 1e-2, _STEEPEST) if pairs else 1.0)


def fit_temperature(logits: Sequence[float], labels: Sequence[float]) -> float:
    """The temperature at which the log-odds fit the labels best (C. Guo et al., 2017); 1 without any.

    Args:
        logits: log-odds that each step is right.
        labels: 1 right, 0 wrong, or a probability.
    """
    if not logits:
        return 1.0
    pairs = list(zip(logits, labels, strict=True))

    def loss(temperature: float) -> float:
        return sum(_cross_entropy(logit / temperature, label) for logit, label in pairs)

    return _lowest(loss, 0.05, 20.0)


def _lowest(loss: Callable[[float], float], low: float, high: float) -> float:
    """Golden-section search on the logarithm; the loss has one valley."""
    ratio = (math.sqrt(5) - 1) / 2
    a, b = math.log(low), math.log(high)
    c, d = b - ratio * (b - a), a + ratio * (b - a)
    at_c, at_d = loss(math.exp(c)), loss(math.exp(d))
    for _ in range(40):
        if at_c <= at_d:
            b, d, at_d = d, c, at_c
            c = b - ratio * (b - a)
            at_c = loss(math.exp(c))
        else:
            a, c, at_c = c, d, at_d
            d = a + ratio * (b - a)
            at_d = loss(math.exp(d))
    return math.exp((a + b) / 2)


def _logit(score: float) -> float:
    score = min(1 - _EDGE, max(_EDGE, score))
    return math.log(score / (1 - score))


def _sigmoid(odds: float) -> float:
    return 1 / (1 + math.exp(-odds)) if odds >= 0 else math.exp(odds) / (1 + math.exp(odds))


def _cross_entropy(odds: float, label: float) -> float:
    return max(odds, 0.0) - odds * label + math.log1p(math.exp(-abs(odds)))
