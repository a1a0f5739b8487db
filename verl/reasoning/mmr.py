"""Maximal marginal relevance: good solutions that are unlike each other (Carbonell and Goldstein, SIGIR 1998).

One decision: selection only orders indices. Scores are read, never changed, so a bonus for being different can neither
lift a solution over a threshold nor stay in its record.

    >>> [pick.index for pick in select([0.9, 0.9, 0.5], sims, count=2, weight=0.3)]
    [0, 2]
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Pick:
    """One selected member of a pool."""

    index: int
    """In the pool."""
    mmr: float
    """The value for which it was taken; of the first, its relevance alone."""
    max_sim: float
    """To the most similar one that was taken before it; 0 for the first."""


def relevance(scores: Sequence[float]) -> np.ndarray:
    """Scores as they are where all are in 0..1, else spread over 0..1; all equal ones are all 0."""
    values = np.asarray(scores, dtype=np.float64)
    if not len(values):
        return values
    low, high = values.min(), values.max()
    if low == high:
        return np.zeros_like(values)
    return values if low >= 0 and high <= 1 else (values - low) / (high - low)


def select(
    scores: Sequence[float], sims: np.ndarray, *, count: int, weight: float, lengths: Sequence[int] | None = None
) -> list[Pick]:
    """Takes the best, then again and again the one with the highest (1 - weight) rel + weight (1 - max sim).

    Identical ones (similarity 1) are taken only when nothing else is left. Ties: the shorter, then the earlier.

    Args:
        scores: (N,) of the pool.
        sims: (N, N) similarities in 0..1.
        count: at most so many.
        weight: lambda; 0 takes the best ones, 1 looks at nothing but similarity once the first is taken.
        lengths: (N,) for ties; None: all alike.

    Raises:
        ValueError: the weight is not in 0..1.
    """
    if not 0.0 <= weight <= 1.0:
        raise ValueError(f"lambda={weight}: write a number between 0 (only the score) and 1 (only the difference)")
    rel = relevance(scores)
    sizes = [0] * len(rel) if lengths is None else list(lengths)
    picks: list[Pick] = []
    left = list(range(len(rel)))
    closest = np.zeros(len(rel))
    while left and len(picks) < count:
        # Equal relevances say nothing, so that the first is the shortest.
        values = {i: rel[i] if not picks else (1 - weight) * rel[i] + weight * (1 - closest[i]) for i in left}
        best = min(left, key=lambda i: (closest[i] >= 1.0, -values[i], sizes[i], i))
        picks.append(Pick(index=best, mmr=float(values[best]), max_sim=float(closest[best])))
        left.remove(best)
        closest = np.maximum(closest, sims[best])
    return picks


def without_near_copies(scores: Sequence[float], sims: np.ndarray, *, threshold: float) -> list[int]:
    """Indices, in their order, of those that are left when of any two more alike than `threshold` the worse goes.

    Of two that nothing tells apart (similarity 1) one goes in any case.
    """
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    kept: list[int] = []
    for i in order:
        if all(sims[i, j] <= threshold and sims[i, j] < 1 for j in kept):
            kept.append(i)
    return sorted(kept)


def clusters(sims: np.ndarray, *, threshold: float) -> list[int]:
    """For each member the number of its cluster; those more alike than `threshold`, over others too, share one."""
    numbers = list(range(len(sims)))
    for i in range(len(sims)):
        for j in range(i):
            if sims[i, j] > threshold and numbers[i] != numbers[j]:
                old, new = max(numbers[i], numbers[j]), min(numbers[i], numbers[j])
                numbers = [new if number == old else number for number in numbers]
    names = {number: place for place, number in enumerate(dict.fromkeys(numbers))}
    return [names[number] for number in numbers]
