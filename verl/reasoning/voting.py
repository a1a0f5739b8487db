"""Votes over answers: majority, and weighted by the scores of those who give them (X. Wang et al., ICLR 2023).

One decision: answers are grouped by a test of equality, and the group wins, not the text; what is returned is a whole
solution of the winning group. A single vote among different ones is no majority, so then the best one is taken.

    >>> vote(["7", "8", "7.0"], [1, 1, 1], same=same_math).winner
    '7'
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Same = Callable[[str, str], bool | None]
"""Whether two answers are the same; None: it cannot be told, which counts as no."""


@dataclass(frozen=True, kw_only=True)
class Vote:
    """What a vote found."""

    winner: str | None
    """The answer of the winning class; None: nobody gave one."""
    members: tuple[int, ...]
    """Who gave it, in their order."""
    best: int | None
    """The best of them; None: nobody gave an answer."""
    totals: dict[str, float]
    """Weight of each class, by the first answer of it."""
    agreement: float
    """Share of the winning class in all who gave an answer; 0 where nobody did."""
    method: Literal["vote", "best"]
    """`best`: no class had two members and all weights were 1, so the best score decided."""


def classes(answers: Sequence[str | None], same: Same) -> list[int | None]:
    """For each answer the number of its class, from 0 in the order of appearance; None for no answer.

    An answer is compared with the first one of each class.
    """
    found: list[int | None] = []
    first: list[str] = []
    for answer in answers:
        if answer is None:
            found.append(None)
            continue
        place = next((i for i, other in enumerate(first) if other == answer or same(other, answer)), None)
        if place is None:
            first.append(answer)
            place = len(first) - 1
        found.append(place)
    return found


def vote(
    answers: Sequence[str | None],
    weights: Sequence[float | None],
    *,
    same: Same,
    scores: Sequence[float | None] | None = None,
) -> Vote:
    """Adds the weights up by class. Ties: more members, then the best score, then the earlier.

    Args:
        answers: of the N candidates; None: gives none.
        weights: of the N; None (it could not be scored): has no vote.
        same: whether two answers are the same.
        scores: of the N, who is best in a class; None: the weights.
    """
    best_of = weights if scores is None else scores
    numbers = [
        number if weight is not None else None for number, weight in zip(classes(answers, same), weights, strict=True)
    ]
    groups: dict[int, list[int]] = {}
    for i, number in enumerate(numbers):
        if number is not None:
            groups.setdefault(number, []).append(i)
    if not groups:
        return Vote(winner=None, members=(), best=None, totals={}, agreement=0.0, method="vote")

    def rank(i: int) -> tuple[float, int]:
        value = best_of[i]
        return (-value if value is not None else float("inf"), i)

    totals = {number: sum(weights[i] or 0.0 for i in members) for number, members in groups.items()}
    counted_alone = len(groups) > 1 and all(len(one) == 1 for one in groups.values())
    alone = counted_alone and len(set(totals.values())) == 1
    if alone:
        won = min(groups, key=lambda number: rank(groups[number][0]))
    else:
        won = min(groups, key=lambda n: (-totals[n], -len(groups[n]), min(map(rank, groups[n]))))
    members = groups[won]
    return Vote(
        winner=answers[members[0]],
        members=tuple(members),
        best=min(members, key=rank),
        totals={str(answers[groups[number][0]]): total for number, total in totals.items()},
        agreement=len(members) / sum(map(len, groups.values())),
        method="best" if alone else "vote",
    )
