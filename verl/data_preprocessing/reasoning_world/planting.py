"""Solutions with an error in a known place.

One decision: what follows an error follows from it, as a person would go on. Two kinds do no harm now and then: a step
that is only left unwritten or written twice, and an error that the later steps do not take over (`mended`).

    text, first_error = plant(problem, random.Random(0), "copy")
    solve(problem, {2: Edit(op="+")})                # the third step adds, whatever is due
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from verl.data_preprocessing.embedded_tokenizers import THINK_END, THINK_START
from verl.data_preprocessing.reasoning_world.problems import (
    ChainProblem,
    Op,
    apply,
    line_of,
    right_results,
    value_of,
)

LARGEST_WRONG = 99
"""Results behind an error stay from 0 to this."""
MENDED_SHARE = 0.1
"""Share of planted errors of the kinds `copy` and `arithmetic` that the later steps do not take over."""

_SHIFTS = (-10, -2, -1, 1, 2, 10)
_TRIES = 40


class CannotPlantError(ValueError):
    """This problem has no room for such an error."""


@dataclass(frozen=True, kw_only=True)
class Edit:
    """What is changed in a step."""

    left: int | None = None
    """Another first operand."""
    op: Op | None = None
    """Another operator."""
    right: int | None = None
    """Another second operand."""
    shift: int = 0
    """Added to the result."""
    mended: bool = False
    """Later steps go on with the right result."""
    leave_out: bool = False
    """The step is done, but not written down."""
    missed: bool = False
    """The step is not done at all: its chain goes on with its first operand."""
    twice: bool = False
    """The same line is written twice."""
    again: bool = False
    """The step's second operand is added or taken away once more."""


@dataclass(frozen=True, kw_only=True)
class Worked:
    """A solution."""

    lines: tuple[str, ...]
    """Its steps."""
    answer: int
    """What it ends with."""
    smallest: int
    """Smallest result."""
    largest: int
    """Largest result."""

    @property
    def text(self) -> str:
        """As a policy writes it."""
        return solution_text(self.lines, self.answer)


def answer_text(number: int) -> str:
    """How an answer is worded."""
    return f"The answer is {number}."


def solution_text(lines: tuple[str, ...] | list[str], answer: int) -> str:
    """A whole response: the thought in its markers, then the answer."""
    return "\n".join([THINK_START, *lines, THINK_END, answer_text(answer)])


def solve(problem: ChainProblem, edits: Mapping[int, Edit] | None = None) -> Worked:
    """The right solution, or one with changed steps.

    Args:
        edits: number of a step -> what is changed in it.
    """
    results, lines = list[int](), list[str]()
    for index, step in enumerate(problem.plan):
        edit = (edits or {}).get(index, Edit())
        left, right = value_of(step.left, results), value_of(step.right, results)
        if edit.missed:
            results.append(left)
            continue
        shown = (
            left if edit.left is None else edit.left,
            edit.op or step.op,
            right if edit.right is None else edit.right,
        )
        result = apply(*shown) + edit.shift
        lines += [line_of(step, *shown, result)] * (not edit.leave_out) * (1 + edit.twice)
        if edit.again:
            more = apply(result, shown[1], shown[2])
            lines.append(line_of(step, result, shown[1], shown[2], more))
            result = more
        results.append(apply(left, step.op, right) if edit.mended else result)
    return Worked(lines=tuple(lines), answer=results[-1], smallest=min(results), largest=max(results))


def plant(
    problem: ChainProblem, rng: random.Random, kind: str, *, mended_share: float = MENDED_SHARE
) -> tuple[str, int]:
    """A solution with one error of a kind (`checking.KINDS`), and the place of that step among those written.

    Raises:
        CannotPlantError: there is no room for it, which is rare; a step cannot be skipped where there is one only.
        ValueError: there is no such kind.
    """
    if kind not in _PLANTERS:
        raise ValueError(f"unknown kind {kind!r}: use one of {', '.join(_PLANTERS)}")
    results = right_results(problem)
    for _ in range(_TRIES):
        place = rng.randrange(len(problem.plan))
        edit = _PLANTERS[kind](problem, results, place, rng)
        if edit is None:
            continue
        if kind in ("copy", "arithmetic") and rng.random() < mended_share:
            edit = Edit(**{**vars(edit), "mended": True})
        worked = solve(problem, {place: edit})
        if worked.smallest >= 0 and worked.largest <= LARGEST_WRONG:
            return worked.text, place + (edit.twice or edit.again)
    raise CannotPlantError(f"no room for the error {kind} in {problem.question}")


def _operands(problem: ChainProblem, results: list[int], place: int) -> tuple[int, Op, int]:
    step = problem.plan[place]
    return value_of(step.left, results), step.op, value_of(step.right, results)


def _miscount(problem: ChainProblem, results: list[int], place: int, rng: random.Random) -> Edit | None:
    return Edit(shift=rng.choice(_SHIFTS))


def _miscopy(problem: ChainProblem, results: list[int], place: int, rng: random.Random) -> Edit | None:
    """One digit of an operand is another one, or one too many; the new number stands nowhere above."""
    left, op, right = _operands(problem, results, place)
    first = rng.random() < 0.5
    digits = list(str(left if first else right))
    at = rng.randrange(len(digits))
    if len(digits) == 1 and rng.random() < 0.3:
        digits = ["1", *digits]
    else:
        digits[at] = rng.choice("123456789" if at == 0 else "0123456789")
    number = int("".join(digits))
    claim = (number, op, right) if first else (left, op, number)
    if number in {left, right, *problem.numbers, *results[:place]} or claim in _others(problem, results, place):
        return None
    return Edit(left=number) if first else Edit(right=number)


def _miscombine(problem: ChainProblem, results: list[int], place: int, rng: random.Random) -> Edit | None:
    """The other operator, or another number that stands above; never what is a step of the solution all the same."""
    left, op, right = _operands(problem, results, place)
    new_left, new_op, new_right = left, op, right
    if rng.random() < 0.5:
        new_op = "-" if op == "+" else "+"
    elif rng.random() < 0.5:
        new_left = rng.choice([*problem.numbers, *results[:place]])
    else:
        new_right = rng.choice([*problem.numbers, *results[:place]])
    if (new_left, new_op, new_right) in _others(problem, results, place):
        return None
    return Edit(left=new_left, op=new_op, right=new_right)


def _others(problem: ChainProblem, results: list[int], place: int) -> set[tuple[int, str, int]]:
    """What is no wrong number in a place: the step itself, another one, an operand left out or taken twice."""
    plan = problem.plan
    steps: set[tuple[int, str, int]] = {_operands(problem, results, index) for index in range(len(plan))}
    left = value_of(plan[place].left, results)
    steps |= {(left, step.op, value_of(step.right, results)) for step in plan if step.chain == plan[place].chain}
    if place:
        before = plan[place - 1]
        steps.add((results[place - 1], before.op, value_of(before.right, results)))
    return steps


def _slip(problem: ChainProblem, results: list[int], place: int, rng: random.Random) -> Edit | None:
    """A step is left unwritten, missed, written twice, or its operand counts once more."""
    plan = problem.plan
    steps = [_operands(problem, results, index) for index in range(len(plan))]
    way = rng.choice(("leave_out", "missed", "twice", "again"))
    last = place == len(plan) - 1
    if way == "leave_out":
        # The line that then stands there must not be what is due by chance, nor an earlier one.
        return None if last or steps[place + 1] in steps[: place + 1] else Edit(leave_out=True)
    if way == "missed":
        after = None if last else plan[place + 1]
        if after is None or after.chain != plan[place].chain:
            return None
        claim = steps[place][0], after.op, steps[place + 1][2]
        return None if claim in steps else Edit(missed=True)
    if way == "twice":
        return None if not last and steps[place + 1] == steps[place] else Edit(twice=True)
    if last:
        return None
    left, op, right = results[place], *steps[place][1:]
    after = plan[place + 1]
    ahead = [(step.op, value_of(step.right, results)) for step in plan[place + 1 :] if step.chain == after.chain]
    # Unless it can be read as a later step of the chain.
    return None if (left, op, right) in steps or (op, right) in ahead else Edit(again=True)


_Planter = Callable[[ChainProblem, list[int], int, random.Random], Edit | None]
_PLANTERS: dict[str, _Planter] = {
    "copy": _miscopy,
    "arithmetic": _miscount,
    "combining": _miscombine,
    "slip": _slip,
}
