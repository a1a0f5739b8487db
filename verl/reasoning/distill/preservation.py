"""What of a teacher's reasoning a student has kept: pure numbers of what both wrote.

One decision: a number that is not defined (a correlation of constants, an agreement where chance explains all) is None,
never 0. A correlation is a number between -1 and 1 and is called one.

    >>> retention([1, 1, 0, 1], [1, 0, 0, 1], seed=0)["retention"]
    0.6666666666666666
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

RESAMPLES = 2000
"""Of a bootstrap."""


def retention(teacher: Sequence[float], student: Sequence[float], *, seed: int = 0) -> dict[str, Any]:
    """How much of the teacher's accuracy the student has, with 95 % intervals of a bootstrap over problems (paired).

    Args:
        teacher: accuracy on each problem, 0 to 1.
        student: on the same problems.
        seed: of the resamples.

    Returns:
        `teacher`, `student`: means; `retention`: their ratio, None where the teacher has none; `difference`: student
        less teacher; `retention_ci`, `difference_ci`: pairs.
    """
    first, second = _paired(teacher, student)
    places = np.random.default_rng(seed).integers(0, len(first), size=(RESAMPLES, len(first)))
    means_t, means_s = first[places].mean(axis=1), second[places].mean(axis=1)
    ratios = means_s[means_t > 0] / means_t[means_t > 0]
    return {
        "teacher": float(first.mean()),
        "student": float(second.mean()),
        "retention": float(second.mean() / first.mean()) if first.mean() > 0 else None,
        "retention_ci": _interval(ratios) if len(ratios) else None,
        "difference": float(second.mean() - first.mean()),
        "difference_ci": _interval(means_s - means_t),
        "problems": len(first),
    }


def majority(answers: Sequence[str | None], correct: Sequence[bool]) -> tuple[float, float] | None:
    """Of one problem: accuracy of its most frequent answer, and that answer's share; None where there is no answer.

    Answers that are equally frequent share the vote.
    """
    votes = Counter(answer for answer in answers if answer is not None)
    if not votes:
        return None
    most = max(votes.values())
    tied = [answer for answer, count in votes.items() if count == most]
    right = [float(np.mean([ok for answer, ok in zip(answers, correct, strict=True) if answer == one])) for one in tied]
    return float(np.mean(right)), most / sum(votes.values())


def kappa(one: Sequence[bool], other: Sequence[bool]) -> float | None:
    """J. Cohen's kappa of two lists of decisions; None where chance alone makes them agree."""
    first, second = _paired(one, other)
    agree = float((first == second).mean())
    by_chance = float(first.mean() * second.mean() + (1 - first.mean()) * (1 - second.mean()))
    return None if math.isclose(by_chance, 1.0) else (agree - by_chance) / (1 - by_chance)


def forgetting(before: Sequence[bool], after: Sequence[bool]) -> dict[str, float]:
    """Shares of all problems: `lost`, right before and wrong after; `gained`, the reverse."""
    first, second = _paired(before, after)
    return {
        "lost": float(((first == 1) & (second == 0)).mean()),
        "gained": float(((first == 0) & (second == 1)).mean()),
    }


def calibration_error(confidence: Sequence[float], correct: Sequence[float], *, bins: int = 10) -> float | None:
    """Expected calibration error: mean distance between confidence and accuracy, in bins of equal width."""
    if not len(confidence):
        return None
    sure, right = _paired(confidence, correct)
    places = np.minimum((sure * bins).astype(int), bins - 1)
    parts = [(places == one) for one in range(bins)]
    return float(sum(part.mean() * abs(sure[part].mean() - right[part].mean()) for part in parts if part.any()))


def behaviour_divergence(one: Mapping[str, float], other: Mapping[str, float]) -> float | None:
    """Jensen-Shannon divergence of two counts of behaviours, in bits, 0 to 1; None where one is empty."""
    names = sorted(one.keys() | other.keys())
    first, second = (np.array([counts.get(name, 0.0) for name in names], dtype=float) for counts in (one, other))
    if first.sum() <= 0 or second.sum() <= 0:
        return None
    p, q = first / first.sum(), second / second.sum()
    return float(0.5 * _bits(p, (p + q) / 2) + 0.5 * _bits(q, (p + q) / 2))


def correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """K. Pearson's r, -1 to 1; None for fewer than two pairs, or where one side does not vary."""
    first, second = _paired(one, other)
    if len(first) < 2 or first.std() == 0 or second.std() == 0:
        return None
    return float(np.clip(np.corrcoef(first, second)[0, 1], -1.0, 1.0))


def length_ratio(teacher: Sequence[int], student: Sequence[int]) -> float | None:
    """Mean length of the student's texts over that of the teacher's, in whatever unit both are counted."""
    if not len(teacher) or not len(student) or not sum(teacher):
        return None
    return float(np.mean(student) / np.mean(teacher))


def _paired(one: Sequence[float], other: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    if first.shape != second.shape or first.size == 0:
        raise ValueError(f"{len(first)} and {len(second)} numbers: give two of each problem, and at least one problem")
    return first, second


def _interval(values: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def _bits(p: np.ndarray, m: np.ndarray) -> float:
    there = p > 0
    return float((p[there] * np.log2(p[there] / m[there])).sum())
