"""Accuracies from several samples a problem, with intervals: pass@k, maj@k, best-of-k, paired differences.

One decision: what can be computed without chance is (the expectation over all choices of k samples); the bootstrap
resamples problems, and seeds too where there are several, so that samples of one problem never count as independent.

    >>> pass_at_k(n=8, c=2, k=4)
    0.7857142857142857
    >>> difference(after, before, problems=ids)          # of two lists of scores, paired by place
    Estimate(value=0.12, low=0.05, high=0.19, n=256)
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from verl.utils.significance import LEVEL, percentiles, wilson

RESAMPLES = 2000
"""Of a bootstrap."""
_AT_ONCE = 100
"""Of them, computed together."""
MOST_SPLITS = 20_000
"""Ways of drawing k of n answers that are all looked at; of more, `RESAMPLES` are drawn."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number and the interval that holds it in 95 % of cases."""

    value: float
    """The mean, or the difference of two."""
    low: float
    """Lower end."""
    high: float
    """Upper end."""
    n: int
    """Problems."""

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies on one side of 0."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        """`.432 [.401, .463]`."""
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def accuracy(right: float, n: int) -> Estimate | None:
    """A share of independent problems with Wilson's interval; None without any."""
    ends = wilson(right, n)
    return None if ends is None else Estimate(value=right / n, low=ends[0], high=ends[1], n=n)


def pass_at_k(*, n: int, c: int, k: int) -> float:
    """Probability that one of k samples is right, of n of which c are (M. Chen et al., 2021): without bias.

    Raises:
        ValueError: not 0 <= c <= n and 1 <= k <= n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"n={n}, c={c}, k={k}; write 0 <= c <= n and 1 <= k <= n")
    return 1 - math.comb(n - c, k) / math.comb(n, k)


def best_of_k(scores: Sequence[float], correct: Sequence[bool], k: int) -> float:
    """Probability that the best scored of k samples is right; those with one score are chosen with the same chance.

    Raises:
        ValueError: lengths that differ, or not 1 <= k <= n.
    """
    n = len(scores)
    if len(correct) != n or not 1 <= k <= n:
        raise ValueError(f"{n} scores, {len(correct)} verdicts, k={k}; write as many of both, and 1 <= k <= n")
    ways, total, below = math.comb(n, k), 0.0, 0
    for score in sorted(set(scores)):
        ties = [right for mine, right in zip(scores, correct, strict=True) if mine == score]
        # The best of the k has this score: all of them are at most this, and not all of them less.
        share = (math.comb(below + len(ties), k) - math.comb(below, k)) / ways
        total += share * sum(ties) / len(ties)
        below += len(ties)
    return total


def maj_at_k(answers: Sequence[Hashable | None], correct: Sequence[bool], k: int, *, seed: int = 0) -> float:
    """Probability that the most frequent answer among k samples is right; ties are broken by chance.

    Args:
        answers: one a sample, equal where they mean the same; None: no answer, which has no vote.
        correct: whether each is right, the same for equal answers.
        k: votes.
        seed: of the choices of k, where there are too many to look at all.

    Raises:
        ValueError: lengths that differ, not 1 <= k <= n, or an answer that is right in one place and wrong in another.
    """
    n = len(answers)
    if len(correct) != n or not 1 <= k <= n:
        raise ValueError(f"{n} answers, {len(correct)} verdicts, k={k}; write as many of both, and 1 <= k <= n")
    verdicts: dict[Hashable, bool] = {}
    for answer, right in zip(answers, correct, strict=True):
        if answer is not None and verdicts.setdefault(answer, right) != right:
            raise ValueError(f"the answer {answer!r} is right in one place and wrong in another; give each one verdict")
    counts = Counter(answers)
    classes = list(counts)
    if math.prod(min(k, count) + 1 for count in counts.values()) <= MOST_SPLITS:
        ways = math.comb(n, k)
        total = 0.0
        for drawn in _splits([counts[one] for one in classes], k):
            weight = math.prod(math.comb(counts[one], m) for one, m in zip(classes, drawn, strict=True))
            total += weight / ways * _vote(dict(zip(classes, drawn, strict=True)), verdicts)
        return total
    generator = np.random.default_rng(seed)
    draws = (generator.choice(n, size=k, replace=False) for _ in range(RESAMPLES))
    return sum(_vote(Counter(answers[i] for i in draw), verdicts) for draw in draws) / RESAMPLES


def mean_of(
    values: Sequence[float | None],
    *,
    problems: Sequence[Hashable] | None = None,
    seeds: Sequence[Hashable] | None = None,
    seed: int = 0,
) -> Estimate | None:
    """The mean of scores with a bootstrap interval; None without any.

    Args:
        values: one a sample; None: it has no score, and is left out.
        problems: whose sample each is; None: each is one of its own.
        seeds: of which training each comes; None: of one.
        seed: of the resamples.
    """
    return difference(values, None, problems=problems, seeds=seeds, seed=seed)


def difference(
    values: Sequence[float | None],
    others: Sequence[float | None] | None,
    *,
    problems: Sequence[Hashable] | None = None,
    seeds: Sequence[Hashable] | None = None,
    seed: int = 0,
) -> Estimate | None:
    """The mean of `values` less that of `others`, paired by place, with a bootstrap interval; None without any pair.

    Whole problems are drawn, and whole seeds (A. Owen, 2007): a pair counts as often as its problem was drawn times how
    often its seed was. A pair of which one has no score is left out.

    Raises:
        ValueError: sequences of different lengths.
    """
    n = len(values)
    for name, given in (("others", others), ("problems", problems), ("seeds", seeds)):
        if given is not None and len(given) != n:
            raise ValueError(f"{n} values and {len(given)} {name}; give as many of each")
    pairs = zip(values, others if others is not None else [0.0] * n, strict=True)
    kept = [(i, one - other) for i, (one, other) in enumerate(pairs) if one is not None and other is not None]
    if not kept:
        return None
    found = np.array([value for _, value in kept])
    problem = _codes([problems[i] if problems is not None else i for i, _ in kept])
    of_seed = _codes([seeds[i] if seeds is not None else 0 for i, _ in kept])
    generator = np.random.default_rng(seed)
    shape = int(problem.max()) + 1, int(of_seed.max()) + 1
    sums, counts = np.zeros(shape), np.zeros(shape)
    np.add.at(sums, (problem, of_seed), found)
    np.add.at(counts, (problem, of_seed), 1)
    means: list[float] = []
    while len(means) < RESAMPLES:
        drawn, drawn_seeds = (_times(generator, size) for size in shape)
        total, times = (((drawn @ table) * drawn_seeds).sum(axis=1) for table in (sums, counts))
        # Where not all seeds have all problems a resample may be empty.
        means += (total[times > 0] / times[times > 0]).tolist()
    low, high = percentiles(means[:RESAMPLES], LEVEL)
    return Estimate(value=float(found.mean()), low=low, high=high, n=shape[0])


def _codes(names: Sequence[Hashable]) -> np.ndarray:
    places: dict[Hashable, int] = {}
    return np.array([places.setdefault(name, len(places)) for name in names])


def _times(generator: np.random.Generator, n: int) -> np.ndarray:
    """How often each of n is drawn in n draws, `_AT_ONCE` times over."""
    return generator.multinomial(n, np.full(n, 1 / n), size=_AT_ONCE).astype(float)


def _splits(counts: Sequence[int], k: int) -> Iterator[tuple[int, ...]]:
    """All ways of taking k in all, at most `counts` of each."""
    if not counts:
        if k == 0:
            yield ()
        return
    for first in range(min(counts[0], k) + 1):
        for rest in _splits(counts[1:], k - first):
            yield (first, *rest)


def _vote(drawn: "dict[Hashable | None, int] | Counter[Hashable | None]", verdicts: dict[Hashable, bool]) -> float:
    votes = {answer: times for answer, times in drawn.items() if answer is not None and times}
    if not votes:
        return 0.0
    most = max(votes.values())
    winners = [answer for answer, times in votes.items() if times == most]
    return sum(verdicts[answer] for answer in winners) / len(winners)
