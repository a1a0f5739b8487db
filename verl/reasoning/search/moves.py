"""What strategies have in common: draw whole solutions within a budget, and put numbers to them.

One decision: a move is a generator too, so that a strategy reads top to bottom: `solutions = yield from draw(...)`.

    >>> solutions = yield from draw(problem, tools, spending, n=8, sampling=tools.sampling)
    >>> solutions = yield from scored(solutions, tools, rank_by=None)
"""

import dataclasses
import math
from collections.abc import Generator, Sequence
from typing import Any

from verl.reasoning.backends import SamplingParams
from verl.reasoning.records import Problem, Solution
from verl.reasoning.search.requests import Ask, Judge, Read, Request, Reward, Spending, Write
from verl.reasoning.search.tools import RankBy, Tools

_ALL = 1 << 20
"""Texts that are wanted where only the budget says how many."""


def draw(
    problem: Problem,
    tools: Tools,
    spending: Spending,
    *,
    n: int | None,
    sampling: SamplingParams,
    prompt: str | None = None,
) -> Generator[Request, Any, list[Solution]]:
    """Whole solutions, at most `n`; None: until the budget is spent.

    Raises:
        ValueError: neither is there a number nor a budget.
    """
    if n is None and spending.budget is None:
        raise ValueError("n=None draws until the budget is spent; write n=8, or a budget")
    drawn: list[Solution] = []
    asked = 0
    while (n is None or asked < n) and spending.worth_going_on:
        count, each = spending.fits(_ALL if n is None else n - asked, sampling.max_tokens)
        if not count:
            break
        how = dataclasses.replace(sampling, max_tokens=each, first_index=sampling.first_index + asked)
        ask = Ask(n=count, sampling=how, prompt=prompt)
        before = spending.tokens
        (completions,) = yield Write(asks=(ask,))
        asked += count
        solutions = [tools.solution(problem, ask, one) for one in completions if one.ok]
        spending.lengths += [one.n_tokens for one in solutions if one.finish_reason == "stop"]
        drawn += solutions
        if spending.tokens == before and n is None:
            break  # An engine that gives nothing would be asked for ever.
    return drawn


def values(
    solutions: Sequence[Solution], tools: Tools, *, rank_by: RankBy | None
) -> Generator[Request, Any, list[float | None]]:
    """A number for each, higher is better, in 0..1; None: it could not be scored.

    Args:
        solutions: whole ones.
        tools: with the scorer or the reward.
        rank_by: `scorer`: the aggregate of its step scores; `log_prob`: the geometric mean of its tokens' probabilities
            under the model that wrote it; `reward`: its score. None: as the tools say.
    """
    how = rank_by or tools.rank_by
    if not solutions:
        return []
    if how == "reward":
        results = yield Reward(solutions=tuple(solutions))
        return [one.score if one.valid else None for one in results]
    return (yield from text_values([one.text for one in solutions], tools, how))


def text_values(texts: Sequence[str], tools: Tools, how: RankBy) -> Generator[Request, Any, list[float | None]]:
    """The same of texts, which may be beginnings of solutions; each different one is scored once."""
    distinct = list(dict.fromkeys(texts))
    if not distinct:
        return []
    numbers: list[float | None]
    if how == "scorer":
        told = yield Judge(texts=tuple(distinct))
        numbers = [tools.score(one) for one in told]
    else:
        means = yield Read(texts=tuple(distinct))
        numbers = [None if one is None else math.exp(one) for one in means]
    known = dict(zip(distinct, numbers, strict=True))
    return [known[text] for text in texts]


def scored(
    solutions: Sequence[Solution], tools: Tools, *, rank_by: RankBy | None
) -> Generator[Request, Any, list[Solution]]:
    """The solutions with their `values` as their scores."""
    numbers = yield from values(solutions, tools, rank_by=rank_by)
    return [dataclasses.replace(one, score=number) for one, number in zip(solutions, numbers, strict=True)]


def best_first(solutions: Sequence[Solution]) -> list[int]:
    """Places by score, the earlier first among equals; those without a score come last."""

    def rank(i: int) -> tuple[float, int]:
        value = solutions[i].score
        return (math.inf if value is None else -value, i)

    return sorted(range(len(solutions)), key=rank)


def best_of(solutions: Sequence[Solution]) -> Solution | None:
    """The one with the highest score; the first where none has one."""
    order = best_first(solutions)
    return solutions[order[0]] if order else None
