"""Means and paired differences over seeds, with t intervals and an exact sign test.

One decision: a seed is one observation. Its problems share a world and a policy, so that counting them one by one
would promise more than was seen. Everything here is exact to a float's last digits, since a t distribution with a whole
number of degrees of freedom has a closed form; scipy is no dependency.

    >>> paired({11: 0.7, 12: 0.8, 13: 0.9}, {11: 0.5, 12: 0.5, 13: 0.5}).mean
    Mean(n=3, value=0.3, half=0.248...)
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, stdev

from verl.utils.significance import LEVEL, sign_test


@dataclass(frozen=True)
class Mean:
    """A mean over seeds."""

    n: int
    """Number of seeds."""
    value: float | None
    """The mean; None without a seed."""
    half: float | None
    """Half the 95 % t interval, n-1 degrees of freedom; None with fewer than two seeds, which have no interval."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends; None with fewer than two seeds."""
        if self.value is None or self.half is None:
            return None
        return self.value - self.half, self.value + self.half


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """Left less right, over the seeds that both have."""

    mean: Mean
    """Of the differences."""
    higher: int
    """Seeds at which left is higher."""
    lower: int
    """Seeds at which left is lower; the remaining ones are ties."""

    @property
    def n(self) -> int:
        """Number of seeds that both have."""
        return self.mean.n

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % t interval; None with fewer than two seeds."""
        return self.mean.interval

    @property
    def p(self) -> float:
        """Exact two-sided sign test without the ties; 1 if nothing but ties is left."""
        return sign_test(self.higher, self.lower)


def mean_of(values: Iterable[float]) -> Mean:
    """Mean and interval of one number a seed.

    Raises:
        ValueError: a number is not finite.
    """
    numbers = list(values)
    for number in numbers:
        if not math.isfinite(number):
            raise ValueError(f"{number} has no mean; leave out seeds at which nothing was measured")
    n = len(numbers)
    half = t_quantile(n - 1) * stdev(numbers) / math.sqrt(n) if n > 1 else None
    return Mean(n, fmean(numbers) if numbers else None, half)


def paired(left: Mapping[int, float], right: Mapping[int, float]) -> PairedDifference:
    """Left less right at each seed that both have; seeds of one of them alone do not count.

    Raises:
        ValueError: a number is not finite, at whatever seed.
    """
    for seed, value in (*left.items(), *right.items()):
        if not math.isfinite(value):
            raise ValueError(f"seed {seed}: {value} cannot be compared; leave out what was not measured")
    seeds = sorted(left.keys() & right.keys())
    differences = [left[seed] - right[seed] for seed in seeds]
    return PairedDifference(
        mean=mean_of(differences),
        higher=sum(one > 0 for one in differences),
        lower=sum(one < 0 for one in differences),
    )


@lru_cache
def t_quantile(degrees: int, level: float = LEVEL) -> float:
    """What |t| stays below with probability `level`, for a whole number of degrees of freedom from 1 on."""
    if degrees < 1 or not 0 < level < 1:
        raise ValueError(
            f"no t quantile for {degrees} degrees of freedom at {level}; write 1 or more, and 0 < level < 1"
        )
    low, high = 0.0, math.pi / 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _within(middle, degrees) < level else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def _within(angle: float, degrees: int) -> float:
    """P(|t| < sqrt(degrees) tan(angle)): Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term = cosine if odd else 1.0
    total = 0.0
    for k in range(1 + odd, degrees, 2):
        total += term
        term *= cosine * cosine * k / (k + 1)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
