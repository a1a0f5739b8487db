"""The problems that students solve, and workings with and without a mistake. Pure functions.

Decision: every problem has a carry or a borrow, and a mistake is what happens to it: forgotten, or made twice. So one
word of advice can put a mistake right or bring it about.

    p = problem(seed=0, split="train", index=0)
    working(p)                  # ('7+8=15, 4+3+1=8', 85)
    working(p, "forgotten")     # ('7+8=15, 4+3=7', 75)
"""

from itertools import count
from typing import Literal, get_args

from verl.data_preprocessing.arithmetic_problems import Problem, Split, make_problem

Kind = Literal["sum", "difference"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Of a problem with an even number, and of one with an odd number."""
Outcome = Literal["right", "forgotten", "twice"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
"""What can become of a carry or a borrow."""

_TIMES: dict[Outcome, int] = {"right": 1, "forgotten": 0, "twice": 2}
_NEXT_TRY = 10_000_000
"""Numbers of problems that are tried for one of the wanted kind lie so far apart."""


def problem(*, seed: int, split: Split, index: int) -> Problem:
    """Problem number `index` of a split: a sum or, if that is odd, a difference, of two two-digit numbers.

    Which split two numbers belong to is a hash of them, so that no seed and no size mixes the splits.
    """
    wanted = KINDS[index % 2]
    tries = (make_problem(seed=seed, split=split, index=index + _NEXT_TRY * i, hint_share=0.0) for i in count())
    return next(one for one in tries if len(one.operands) == 2 and kind_of(one) == wanted)


def kind_of(one: Problem) -> Kind:
    """Whether it is a sum or a difference."""
    return "difference" if one.kind == "sub2" else "sum"


def working(one: Problem, outcome: Outcome = "right") -> tuple[str, int]:
    """The columns as a student writes them, ones first, and the number they come to."""
    ones, tens = ([number % 10 for number in one.operands], [number // 10 for number in one.operands])
    times = _TIMES[outcome]
    if kind_of(one) == "difference":
        low, high = 10 + ones[0] - ones[1], tens[0] - tens[1] - times
        first, second, sign = f"{10 + ones[0]}-{ones[1]}={low}", f"{tens[0]}-{tens[1]}", "-"
    else:
        low, high = sum(ones) % 10, sum(tens) + times
        first, second, sign = f"{ones[0]}+{ones[1]}={sum(ones)}", f"{tens[0]}+{tens[1]}", "+"
    marked = f"{sign}{times}" if times else ""
    return f"{first}, {second}{marked}={high}", 10 * high + low
