"""Problems of the reasoning world: sums and differences in brackets, and the lines in which they are worked out.

One decision: each problem has one right solution. First every bracket is worked out, from left to right, then they are
put together, from left to right; a line is one step. So a line is the one that is due, or it is an error.

    problem = make_problem(seed=0, split="train", index=3)
    problem.question        # '(12 + 5) - (13 - 4) + 8 = ?'
    right_lines(problem)    # ['12 + 5 = 17', '13 - 4 = 9', 'So 17 - 9 = 8', 'So 8 + 8 = 16']
"""

import random
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Split = Literal["train", "val"]
Op = Literal["+", "-"]

LARGEST = 20
"""Largest number that occurs on the right way; the smallest is 1."""
VAL_SHARE = 0.1
"""Share of all problems that are held out, by a hash of the question."""
JOINS = "So "
"""Begins a line that puts results together."""

_STEP_WEIGHTS = {4: 3, 5: 3, 6: 2, 7: 1, 8: 1}
_QUESTION = re.compile(r"[0-9 ()+-]{3,200} = \?")
_TOKEN = re.compile(r"[0-9]{1,2}|[()+-]")


@dataclass(frozen=True, kw_only=True)
class Term:
    """A number or a bracket."""

    op: Op
    """What stands before it; of the first term `+`, which is not written."""
    numbers: tuple[int, ...]
    """In their order; one of them: no bracket."""
    ops: tuple[Op, ...] = ()
    """Between the numbers."""

    @property
    def text(self) -> str:
        """With its brackets, without the sign before it."""
        inner = str(self.numbers[0])
        for op, number in zip(self.ops, self.numbers[1:], strict=True):
            inner += f" {op} {number}"
        return f"({inner})" if self.ops else inner


@dataclass(frozen=True, kw_only=True)
class Ref:
    """Where an operand comes from."""

    step: int | None = None
    """Number of the step whose result it is; None: it stands in the question."""
    number: int = 0
    """The number in the question."""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One step of the right solution."""

    left: Ref
    """First operand."""
    op: Op
    """What is done."""
    right: Ref
    """Second operand."""
    chain: int
    """Number of the term within which it works; -1: it puts terms together."""
    follows: bool
    """Whether its first operand is the result of the step before it in its chain."""

    @property
    def joins(self) -> bool:
        """Whether it puts terms together."""
        return self.chain < 0


@dataclass(frozen=True)
class ChainProblem:
    """Numbers and brackets, added and subtracted."""

    terms: tuple[Term, ...]
    """Two or more."""

    @cached_property
    def question(self) -> str:
        """What the user writes."""
        first, *rest = self.terms
        return first.text + "".join(f" {term.op} {term.text}" for term in rest) + " = ?"

    @cached_property
    def plan(self) -> tuple[Planned, ...]:
        """The steps of the right solution, one fewer than there are numbers."""
        steps: list[Planned] = []
        ends: list[Ref] = []
        for chain, term in enumerate(self.terms):
            end = Ref(number=term.numbers[0])
            for op, number in zip(term.ops, term.numbers[1:], strict=True):
                follows = end.step is not None
                steps.append(Planned(left=end, op=op, right=Ref(number=number), chain=chain, follows=follows))
                end = Ref(step=len(steps) - 1)
            ends.append(end)
        total = ends[0]
        for place, (term, end) in enumerate(zip(self.terms[1:], ends[1:], strict=True)):
            steps.append(Planned(left=total, op=term.op, right=end, chain=-1, follows=place > 0))
            total = Ref(step=len(steps) - 1)
        return tuple(steps)

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """All numbers of the question, in their order."""
        return tuple(number for term in self.terms for number in term.numbers)

    @cached_property
    def answer(self) -> int:
        """The true result."""
        return right_results(self)[-1]


def apply(left: int, op: str, right: int) -> int:
    """The sum or the difference."""
    return left + right if op == "+" else left - right


def value_of(ref: Ref, results: Sequence[int]) -> int:
    """An operand, given the results of the steps before."""
    return ref.number if ref.step is None else results[ref.step]


def right_results(problem: ChainProblem) -> list[int]:
    """The result of each step."""
    results: list[int] = []
    for step in problem.plan:
        results.append(apply(value_of(step.left, results), step.op, value_of(step.right, results)))
    return results


def line_of(step: Planned, left: int, op: str, right: int, result: int) -> str:
    """A step as it is written."""
    return f"{JOINS if step.joins else ''}{left} {op} {right} = {result}"


def right_lines(problem: ChainProblem) -> list[str]:
    """The right solution, a line for each step."""
    results = right_results(problem)
    return [
        line_of(step, value_of(step.left, results), step.op, value_of(step.right, results), results[index])
        for index, step in enumerate(problem.plan)
    ]


def parse_question(text: str) -> ChainProblem:
    """The problem that a question states.

    Raises:
        ValueError: it states none.
    """
    wrong = ValueError(f"{text[:60]!r} is no problem of this world; write one such as '(12 + 5) - 8 + 3 = ?'")
    if not _QUESTION.fullmatch(text):
        raise wrong
    terms: list[Term] = []
    tokens = _TOKEN.findall(text)
    try:
        op: Op = "+"
        while tokens:
            term, tokens = _take_term(op, tokens)
            terms.append(term)
            if tokens:
                op, tokens = _op(tokens[0]), tokens[1:]
                tokens[0]
        problem = ChainProblem(tuple(terms))
        if problem.question != text or not problem.plan:
            raise wrong
    except (IndexError, ValueError):
        raise wrong from None
    return problem


def _take_term(op: Op, tokens: list[str]) -> tuple[Term, list[str]]:
    if tokens[0] != "(":
        return Term(op=op, numbers=(int(tokens[0]),)), tokens[1:]
    end = tokens.index(")")
    inner = tokens[1:end]
    numbers, ops = tuple(int(one) for one in inner[::2]), tuple(_op(one) for one in inner[1::2])
    if len(numbers) != len(ops) + 1:
        raise ValueError("an operator at the end of a bracket")
    return Term(op=op, numbers=numbers, ops=ops), tokens[end + 1 :]


def _op(token: str) -> Op:
    if token == "+":
        return "+"
    if token == "-":
        return "-"
    raise ValueError(f"{token!r} is no operator")


def split_of(problem: ChainProblem) -> Split:
    """The split that a problem belongs to, whatever the seed."""
    return "val" if zlib.crc32(problem.question.encode()) % 1000 < 1000 * VAL_SHARE else "train"


def make_problem(*, seed: int, split: Split, index: int, steps: int | None = None) -> ChainProblem:
    """The problem number `index` of a split.

    Args:
        steps: of its solution, 1 or more; None: 4 to 8, short ones more often.
    """
    rng = random.Random(f"{seed}/{split}/{index}")
    while True:
        problem = _draw(rng, steps or rng.choices(list(_STEP_WEIGHTS), weights=list(_STEP_WEIGHTS.values()))[0])
        if split_of(problem) == split:
            return problem


def _draw(rng: random.Random, steps: int) -> ChainProblem:
    """A problem of so many steps, all of whose results are from 1 to `LARGEST`."""
    left, sizes = steps + 1, list[int]()
    while left:
        # Two terms at least where there are several steps.
        most = min(3, left, max(1, steps if not sizes else 3))
        sizes.append(rng.randint(2 if not sizes and most > 1 else 1, most))
        left -= sizes[-1]
    terms: list[Term] = []
    total = 0
    for size in sizes:
        op: Op = "+"
        if terms and total > 3 and (total > LARGEST - 3 or rng.random() < 0.5):
            op = "-"
        least, most = (2, total - 1 if op == "-" else LARGEST - total) if terms else (3, LARGEST - 2)
        value = rng.randint(least, most)
        terms.append(_term(rng, op, size, value))
        total = apply(total, op, value)
    return ChainProblem(tuple(terms))


def _term(rng: random.Random, op: Op, size: int, value: int) -> Term:
    """A term of so many numbers with a value."""
    numbers, ops = list[int](), list[Op]()
    for _ in range(size - 1):
        last: Op = "+" if value > LARGEST - 2 or (value > 3 and rng.random() < 0.5) else "-"
        number = rng.randint(1, value - 1) if last == "+" else rng.randint(1, LARGEST - value)
        numbers.append(number)
        ops.append(last)
        value = value - number if last == "+" else value + number
    numbers.append(value)
    return Term(op=op, numbers=tuple(numbers[::-1]), ops=tuple(ops[::-1]))
