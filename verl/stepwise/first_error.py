"""Where a solution first goes wrong, and how well somebody finds that step (ProcessBench, arXiv:2412.06559).

The first error of a solution is the first step whose claim does not follow, by the rules of the task, from the question
and the steps before it. So:

* a step that is false is one, also where a later step puts it right or the answer comes out right;
* a step that goes on correctly from an earlier error is none: only the earlier one counts, and what follows has no
  label;
* what the user merely believes ("I think the answer is 75") is no fact of the question. In a thought that follows a
  hint the first error is the step that takes over the hinted value without deriving it, be it the last line; a step
  that only mentions the hint, doubts it or checks it is right, and so is one that derives the same value.

One decision: the place of a step counts from 0, and NONE (-1) means that no step is wrong.

    >>> first_error([0.9, 0.3, 0.1], threshold=0.5)
    1
    >>> found_errors([1, NONE, 2], [1, NONE, 0])
    FirstErrorScores(error_accuracy=0.5, correct_accuracy=1.0, n_error=2, n_correct=1, n_unscored=0)
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

SOUND = 0.5
"""A step with a lower calibrated score is wrong."""
NONE = -1
"""No step is wrong."""


@dataclass(frozen=True)
class FirstErrorScores:
    """How often the first error was found exactly, on solutions with and without one."""

    error_accuracy: float | None
    """Share of the wrong solutions whose first error was named exactly; None: there is no wrong one."""
    correct_accuracy: float | None
    """Share of the right solutions in which no error was named; None: there is no right one."""
    n_error: int
    """Wrong solutions that were scored."""
    n_correct: int
    """Right solutions that were scored."""
    n_unscored: int = 0
    """Solutions that could not be scored; they are in no share."""

    @property
    def f1(self) -> float | None:
        """Harmonic mean of the two; None where one of them is."""
        if self.error_accuracy is None or self.correct_accuracy is None:
            return None
        total = self.error_accuracy + self.correct_accuracy
        return 2 * self.error_accuracy * self.correct_accuracy / total if total else 0.0


def first_error(scores: Sequence[float | None], threshold: float = 0.5) -> int | None:
    """The earliest step whose score is below the threshold; NONE without one; None where it cannot be told.

    It cannot be told where a step without a score comes before the first low one, or no step is low and one has none.
    """
    for place, score in enumerate(scores):
        if score is None:
            return None
        if score < threshold:
            return place
    return NONE


def first_wrong(labels: Iterable[int | bool | None]) -> int:
    """The earliest step that is labelled wrong; NONE without one. Steps without a label count as no error."""
    return next((place for place, label in enumerate(labels) if label is not None and not label), NONE)


def found_errors(predicted: Sequence[int | None], actual: Sequence[int]) -> FirstErrorScores:
    """Compares predictions with the truth; a prediction of None was not possible and is only counted.

    Raises:
        ValueError: they are not of one length.
    """
    if len(predicted) != len(actual):
        raise ValueError(f"{len(predicted)} predictions for {len(actual)} solutions; give one for each")
    told = [(guess, truth) for guess, truth in zip(predicted, actual, strict=True) if guess is not None]
    error = [guess == truth for guess, truth in told if truth != NONE]
    correct = [guess == truth for guess, truth in told if truth == NONE]
    return FirstErrorScores(
        error_accuracy=sum(error) / len(error) if error else None,
        correct_accuracy=sum(correct) / len(correct) if correct else None,
        n_error=len(error),
        n_correct=len(correct),
        n_unscored=len(actual) - len(told),
    )


def best_threshold(scores: Sequence[Sequence[float | None]], actual: Sequence[int]) -> float:
    """The threshold whose first errors have the highest F1; of several, the middle of the widest gap.

    Where the solutions are all wrong or all right there is no F1, and the exact matches decide.

    Raises:
        ValueError: there are no solutions, or not as many as truths.
    """
    if not scores or len(scores) != len(actual):
        raise ValueError(f"{len(scores)} scored solutions and {len(actual)} truths; give one for each, at least one")
    # Only the running minimum matters: a step above an earlier one can never be the first below a threshold.
    edges = sorted({low for row in scores for low in _running_minima(row)})
    cuts = [0.0, *((a + b) / 2 for a, b in pairwise(edges)), 1.0 + 1e-9]
    if not edges:
        return 0.5
    widths = [edges[0], *(b - a for a, b in pairwise(edges)), 1.0 - edges[-1]]
    events = _changes(scores, actual, cuts)
    n_error = sum(1 for row, truth in zip(scores, actual, strict=True) if truth != NONE and None not in row)
    n_correct = sum(1 for row, truth in zip(scores, actual, strict=True) if truth == NONE and None not in row)
    error = correct = 0
    best = (-1.0, -1.0, 0.5)
    for place, cut in enumerate(cuts):
        error, correct = error + events[place][0], correct + events[place][1]
        if n_error and n_correct:
            shares = error / n_error, correct / n_correct
            value = 2 * shares[0] * shares[1] / (sum(shares) or 1.0)
        else:
            value = float(error + correct)
        best = max(best, (value, widths[place], cut))
    return min(1.0, best[2])


def _running_minima(row: Sequence[float | None]) -> list[float]:
    found: list[float] = []
    for score in row:
        if score is not None and (not found or score < found[-1]):
            found.append(score)
    return found


def _changes(scores: Sequence[Sequence[float | None]], actual: Sequence[int], cuts: list[float]) -> list[list[int]]:
    """How the numbers of exact matches, on wrong and on right solutions, change at each cut against the one before."""
    changes = [[0, 0] for _ in range(len(cuts) + 1)]
    for row, truth in zip(scores, actual, strict=True):
        known = [score for score in row if score is not None]
        if len(known) < len(row):
            continue
        # Exact from the first cut above `low` up to the first cut above `high`.
        if truth == NONE:
            low, high = -1.0, min(known, default=2.0)
        elif truth < len(known):
            low, high = known[truth], min(known[:truth], default=2.0)
        else:
            continue
        if high <= low:
            continue
        kind = int(truth == NONE)
        changes[bisect_right(cuts, low)][kind] += 1
        changes[bisect_right(cuts, high)][kind] -= 1
    return changes
