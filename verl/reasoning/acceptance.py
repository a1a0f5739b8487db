"""More tests that a right solution must pass to be accepted: other readers follow it, each of its steps is sound.

One decision: a test is any callable of a problem and a solution that says yes or no; one that fails, or says None,
decides nothing: the solution is then neither accepted nor an example of a bad one.

    >>> def short(problem, solution): return solution.n_tokens < 200
    >>> [verdict.accepted for verdict in apply([short, SoundSteps(prm, tools.steps)], pairs)]
    [True, False]
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from verl.reasoning.blocking import await_here
from verl.reasoning.records import Problem, Solution
from verl.reasoning.rewards import TIMEOUT_S
from verl.reasoning.step_scorer import StepScorer

Accepts = Callable[[Problem, Solution], "bool | Awaitable[bool | None] | None"]
"""Sync or async. One with a method `many(pairs)` is shown all pairs in one call instead."""

Pairs = Sequence[tuple[Problem, Solution]]

_AT_ONCE = 32


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the tests say of one solution."""

    accepted: bool | None
    """True: all said yes; False: one said no; None: none said no, and one could not tell."""
    by_test: dict[str, bool | None] = field(default_factory=dict)
    """Each test's; later ones are not asked about what an earlier one has refused."""


@dataclass(frozen=True)
class SoundSteps:
    """Accepts a solution whose every step the scorer finds likelier right than `threshold`."""

    scorer: StepScorer
    """A process reward model."""
    steps: Callable[[str], Sequence[str]]
    """Cuts a text into steps, for instance `Tools.steps`."""
    threshold: float = 0.5
    """Of each step."""
    name: str = "sound"
    """In reports."""

    def __call__(self, problem: Problem, solution: Solution) -> bool | None:
        """Whether they all are; None where a step could not be scored, or there are none."""
        return self.many([(problem, solution)])[0]

    def many(self, pairs: Pairs) -> list[bool | None]:
        """The same of many, in one call of the scorer."""
        cut = [self.steps(solution.thinking or solution.text) for _, solution in pairs]
        some = [i for i, one in enumerate(cut) if one]
        told = self.scorer.score_steps([pairs[i][0].problem for i in some], [cut[i] for i in some]) if some else []
        verdicts: list[bool | None] = [None] * len(pairs)
        for i, scores in zip(some, told, strict=True):
            known = [one for one in scores if one is not None]
            if any(one < self.threshold for one in known):
                verdicts[i] = False
            elif len(known) == len(scores):
                verdicts[i] = True
        return verdicts


def apply(tests: Sequence[Accepts], pairs: Pairs, *, timeout_s: float = TIMEOUT_S) -> list[Verdict]:
    """What the tests say of each pair, in their order.

    Args:
        tests: cheap ones first.
        pairs: solutions with their problems.
        timeout_s: longest time of one call of a test without `many`.
    """
    said: list[dict[str, bool | None]] = [{} for _ in pairs]
    for number, test in enumerate(tests):
        left = [i for i, one in enumerate(said) if False not in one.values()]
        if left:
            name = name_of(test, number)
            for i, verdict in zip(left, _ask(test, [pairs[i] for i in left], timeout_s), strict=True):
                said[i][name] = verdict
    return [Verdict(accepted=_together(one), by_test=one) for one in said]


def name_of(test: Accepts, number: int) -> str:
    """For reports."""
    return str(getattr(test, "name", None) or getattr(test, "__name__", None) or f"test_{number}")


def _together(said: dict[str, bool | None]) -> bool | None:
    if False in said.values():
        return False
    return None if None in said.values() else True


def _ask(test: Any, pairs: Pairs, timeout_s: float) -> list[bool | None]:
    many = getattr(test, "many", None)
    if many is not None:
        try:
            told = many(pairs)
            verdicts = list(await_here(told) if inspect.iscoroutine(told) else told)
        except Exception:  # A user's test may raise anything.
            return [None] * len(pairs)
        return [None if one is None else bool(one) for one in verdicts]
    return await_here(_one_by_one(test, pairs, timeout_s))


async def _one_by_one(test: Any, pairs: Pairs, timeout_s: float) -> list[bool | None]:
    waiting = asyncio.Semaphore(_AT_ONCE)

    async def one(problem: Problem, solution: Solution) -> bool | None:
        async with waiting:
            try:
                # A call of an async object gives an awaitable too.
                said = await asyncio.wait_for(asyncio.to_thread(test, problem, solution), timeout_s)
                if inspect.isawaitable(said):
                    said = await asyncio.wait_for(said, timeout_s)
            except Exception:  # A user's test may raise anything, a timeout among others.
                return None
        return None if said is None else bool(said)

    return list(await asyncio.gather(*(one(*pair) for pair in pairs)))
