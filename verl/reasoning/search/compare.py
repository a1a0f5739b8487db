"""Strategies side by side on the same problems, each with the same tokens for a problem.

One decision: what is compared is accuracy at an equal price, so the price stands beside each share: generated tokens,
which the budget bounds, and what scorers read.

    >>> table = compare(problems, [BestOfN(n=None), Majority(n=None), StepBeam()], tools, budget=2048)
    >>> print(table.as_text())
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from verl.reasoning.blocking import await_here
from verl.reasoning.records import Problem
from verl.reasoning.rewards import RewardContext, score_together
from verl.reasoning.search.driver import Search, run_all
from verl.reasoning.search.requests import Budget, Found, Spending, Strategy
from verl.reasoning.search.tools import Tools
from verl.trainer.run.state import write_atomically
from verl.utils.significance import wilson


@dataclass(frozen=True, kw_only=True)
class Line:
    """One strategy."""

    name: str
    """Of the strategy."""
    right: int
    """Problems that it solved."""
    judged: int
    """Problems of which it is known whether it did."""
    failed: int
    """Problems of which that is not known: nothing was written, or the reward failed."""
    accuracy: float | None
    """`right / judged`."""
    interval: tuple[float, float] | None
    """Wilson's, 95 %."""
    tokens: float
    """Generated, mean of a problem."""
    scored_tokens: float
    """Read by scorers, mean of a problem."""
    fallbacks: int
    """Problems in which everything was rejected."""
    outcomes: tuple[bool | None, ...] = ()
    """For each problem, in their order; for paired tests of two strategies."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """The comparison."""

    budget: int | None
    """Generated tokens for a problem; None: no limit."""
    lines: tuple[Line, ...]
    """In the order of the strategies."""

    def as_text(self) -> str:
        """For a person, as a table of Markdown."""
        rows = [
            "| strategy | accuracy | 95 % | judged | tokens | scorer's tokens |",
            "|---|---|---|---|---|---|",
        ]
        for one in self.lines:
            share = "-" if one.accuracy is None else f"{one.accuracy:.3f}"
            interval = "-" if one.interval is None else f"{one.interval[0]:.3f} to {one.interval[1]:.3f}"
            rows.append(
                f"| {one.name} | {share} | {interval} | {one.judged} | {one.tokens:.0f} | {one.scored_tokens:.0f} |"
            )
        return "\n".join(rows)

    def write(self, file: Path) -> None:
        """All of it as JSON."""
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(asdict(self), indent=1) + "\n")


def compare(
    problems: Sequence[Problem], strategies: Sequence[Search], tools: Tools, *, budget: int | None = None
) -> Table:
    """Runs each strategy on each problem.

    Args:
        problems: with gold answers, or with `tools.reward`.
        strategies: with different names.
        tools: what they work with. `tools.reward` decides who is right; without one the gold answers do.
        budget: generated tokens for a problem; None: as in the tools.

    Raises:
        ValueError: two strategies have one name.
    """
    names = [one.name for one in strategies]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"two strategies are called {sorted(twice)[0]}; wrap one in Named(strategy, 'another name')")
    if budget is not None:
        tools = replace(tools, budget=Budget(tokens=budget))
    lines = [line_of(one.name, problems, run_all(one, problems, tools), tools) for one in strategies]
    return Table(budget=None if tools.budget is None else tools.budget.tokens, lines=tuple(lines))


def line_of(name: str, problems: Sequence[Problem], found: Sequence[Found], tools: Tools) -> Line:
    """What a strategy's findings come to."""
    outcomes = rightness(problems, found, tools)
    judged = [one for one in outcomes if one is not None]
    of = max(1, len(found))
    return Line(
        name=name,
        right=sum(judged),
        judged=len(judged),
        failed=len(outcomes) - len(judged),
        accuracy=sum(judged) / len(judged) if judged else None,
        interval=wilson(sum(judged), len(judged)),
        tokens=sum(one.tokens for one in found) / of,
        scored_tokens=sum(one.scored_tokens for one in found) / of,
        fallbacks=sum(one.fallback for one in found),
        outcomes=tuple(outcomes),
    )


def rightness(problems: Sequence[Problem], found: Sequence[Found], tools: Tools) -> list[bool | None]:
    """Whether each solution is right; None: there is none, or it cannot be told."""
    if tools.reward is None:
        return [
            None if one.solution is None else tools.answers.right(problem, one.solution.text)
            for problem, one in zip(problems, found, strict=True)
        ]
    pairs = [
        (i, problem, one.solution)
        for i, (problem, one) in enumerate(zip(problems, found, strict=True))
        if one.solution is not None
    ]
    results = await_here(
        score_together(tools.reward, [(problem, one) for _, problem, one in pairs], RewardContext(stage="compare"))
    )
    outcomes: list[bool | None] = [None] * len(found)
    for (i, _, _), result in zip(pairs, results, strict=True):
        if result.valid and result.score is not None:
            outcomes[i] = result.correct if result.correct is not None else result.score >= 0.5
    return outcomes


@dataclass(frozen=True)
class Named(Search):
    """A strategy under another name."""

    search: Search
    """It."""
    called: str
    """Its name in the table."""

    @property
    def name(self) -> str:
        """The other one."""
        return self.called

    def begin(self, problem: Problem, tools: Tools, spending: Spending) -> Strategy:
        """As the strategy's own."""
        return self.search.begin(problem, tools, spending)
