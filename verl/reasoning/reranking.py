"""Which of a problem's accepted solutions a judge of steps takes.

One decision: the judge chooses among all accepted solutions of a problem and never takes its last one. A set without
the problems that the judge doubts teaches less than one with doubtful steps: those are the hard problems.

    >>> reranked(accepted + spare, scores, wanted={"p1": 2}, rank=True, refuse=True)
    [3, 0]
"""

from collections.abc import Mapping, Sequence

from verl.reasoning.records import Solution
from verl.stepwise.aggregate import aggregate
from verl.stepwise.first_error import SOUND

Scores = Sequence[float | None]
"""Of the steps of a solution; None: the judge could not tell."""


def reranked(
    solutions: Sequence[Solution],
    scores: Sequence[Scores],
    *,
    wanted: Mapping[str, int],
    rank: bool,
    refuse: bool,
) -> list[int]:
    """The places of those that are taken, problem by problem.

    Args:
        solutions: of all problems, in the order in which they are taken where the judge does not rank. A text that
            stands there twice is taken once.
        scores: of each one's steps.
        wanted: how many of a problem, at most.
        rank: the sounder ones come first, by the product of their steps' scores.
        refuse: those with a wrong step are left out, but for the soundest of a problem that has no other.
    """
    groups: dict[str, dict[str, int]] = {}
    for i, one in enumerate(solutions):
        groups.setdefault(one.problem_id, {}).setdefault(one.text, i)
    taken: list[int] = []
    for problem, texts in groups.items():
        group = list(texts.values())
        sounder = sorted(group, key=lambda i: -_soundness(scores[i]))
        order = sounder if rank else group
        if refuse:
            order = [i for i in order if not refused(scores[i])] or sounder[:1]
        taken += order[: wanted.get(problem, 0)]
    return taken


def refused(scores: Scores) -> bool:
    """Whether a step is wrong, or one could not be judged, or there are none."""
    return not scores or any(one is None or one < SOUND for one in scores)


def _soundness(scores: Scores) -> float:
    value = aggregate(scores, "prod")
    return 0.0 if value is None else value
