"""What is said of shares and paired outcomes: an exact test and two intervals, for every report of ours.

One decision: no normal approximation where an exact count or a resample does; scipy is no dependency.

    >>> sign_test(7, 1)
    0.0703125
    >>> wilson(99, 100)
    (0.9455..., 0.9982...)
"""

import math
from collections.abc import Sequence
from statistics import NormalDist

LEVEL = 0.95
"""Of all intervals."""


def sign_test(higher: int, lower: int) -> float:
    """Probability, if both signs are as likely, of a split at least as uneven as this one; 1 without any.

    With the two counts of discordant pairs this is McNemar's exact test.
    """
    n = higher + lower
    tail = sum(math.comb(n, k) for k in range(min(higher, lower) + 1))
    return min(1.0, 2 * tail / 2**n)


def fewer_right(right: int, of: int, other_right: int, of_other: int) -> float:
    """Fisher's exact one-sided p: of drawing at most `right` right ones, if both samples come from the same urn.

    Raises:
        ValueError: more right ones than there are, or none drawn at all.
    """
    if not 0 <= right <= of or not 0 <= other_right <= of_other or not of or not of_other:
        raise ValueError(f"{right} of {of} and {other_right} of {of_other} are no counts; write right <= all, all > 0")
    total = right + other_right
    ways = sum(math.comb(of, k) * math.comb(of_other, total - k) for k in range(right + 1) if k <= total)
    return ways / math.comb(of + of_other, total)


def wilson(right: float, n: float, level: float = LEVEL) -> tuple[float, float] | None:
    """Wilson's score interval of a share (E. B. Wilson, JASA 1927); None without observations.

    Args:
        right: how many are; a sum of probabilities, where the outcome of each is known only as one.
        n: of how many.

    Raises:
        ValueError: `right` is not within 0 and `n`.
    """
    if not 0 <= right <= n:
        raise ValueError(f"{right} of {n} is no share; write a count between 0 and {n}")
    if not n:
        return None
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = right / n
    middle = (right + z * z / 2) / (n + z * z)
    half = z * math.sqrt(share * (n - right) + z * z / 4) / (n + z * z)
    # Rounding must not take an end over the share itself, which is 0 or 1 at the borders.
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


def percentiles(resamples: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """The middle `level` of a bootstrap's resamples (B. Efron, 1979), with linear interpolation between two of them."""
    ordered = sorted(resamples)

    def at(share: float) -> float:
        place = share * (len(ordered) - 1)
        below = math.floor(place)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (ordered[above] - ordered[below]) * (place - below)

    return at((1 - level) / 2), at((1 + level) / 2)
