"""Runs searches: answers what strategies ask for, for many problems in the same batches, and counts every token.

One decision: the driver counts, not the strategy, so that none can forget a token it spent; and it checks that what was
asked for fits the budget before it is drawn.

    >>> run_all(BestOfN(n=8), problems, tools)[0].tokens
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from verl.reasoning.backends import Completion
from verl.reasoning.blocking import await_here
from verl.reasoning.records import Problem
from verl.reasoning.rewards import RewardContext, RewardResult, score_together
from verl.reasoning.search.requests import Ask, Found, Judge, Read, Request, Reward, Spending, Strategy, Write
from verl.reasoning.search.tools import Tools

AT_ONCE = 64
"""Problems that are searched together."""


class Search(ABC):
    """One way to spend tokens on a problem."""

    @property
    def name(self) -> str:
        """For tables; two of one comparison need two names."""
        return type(self).__name__

    @abstractmethod
    def begin(self, problem: Problem, tools: Tools, spending: Spending) -> Strategy:
        """A search under way; `spending` is kept by whoever drives it."""

    def run(self, problem: Problem, tools: Tools) -> Found:
        """Searches a solution of one problem.

        Raises:
            ValueError: the strategy needs something that the tools lack.
        """
        return run_all(self, [problem], tools)[0]


@dataclasses.dataclass(eq=False)
class _Running:
    """One problem's search."""

    place: int
    problem: Problem
    spending: Spending
    strategy: Strategy
    request: Request | None = None
    found: Found | None = None

    def go_on(self, answer: Any) -> None:
        try:
            self.request = self.strategy.send(answer)
        except StopIteration as end:
            self.request = None
            spent = self.spending
            self.found = dataclasses.replace(
                end.value, tokens=spent.tokens, scored_tokens=spent.scored_tokens, failed=spent.failed
            )


def run_all(search: Search, problems: Sequence[Problem], tools: Tools, *, at_once: int = AT_ONCE) -> list[Found]:
    """Searches solutions of many problems, which share batches; in their order.

    Args:
        search: the strategy.
        problems: any number.
        tools: what it works with.
        at_once: problems that are under way together.
    """
    found: list[Found | None] = [None] * len(problems)
    with tqdm(
        total=len(problems), desc=search.name, unit="problem", leave=False, disable=None if len(problems) > 1 else True
    ) as bar:
        for start in range(0, len(problems), at_once):
            running = []
            for place, problem in enumerate(problems[start : start + at_once], start):
                spending = Spending(budget=tools.budget)
                running.append(_Running(place, problem, spending, search.begin(problem, tools, spending)))
            for one in running:
                one.go_on(None)
            while running:
                for one in [one for one in running if one.request is None]:
                    found[one.place] = one.found
                    bar.update()
                running = [one for one in running if one.request is not None]
                _answer(running, tools)
    return [one for one in found if one is not None]


def _answer(running: Sequence[_Running], tools: Tools) -> None:
    """Answers one request of each, those of a kind together."""
    for kind, answer in ((Write, _write), (Judge, _judge), (Read, _read), (Reward, _reward)):
        asked = [one for one in running if isinstance(one.request, kind)]
        # Before any goes on, since that changes what it asks for.
        for one, said in zip(asked, answer(asked, tools) if asked else [], strict=True):
            one.go_on(said)
        running = [one for one in running if one not in asked]


def _write(running: Sequence[_Running], tools: Tools) -> list[list[list[Completion]]]:
    asks: list[tuple[_Running, Ask]] = []
    for one in running:
        assert isinstance(one.request, Write)
        most = sum(ask.n * ask.sampling.max_tokens for ask in one.request.asks)
        assert one.spending.left is None or most <= one.spending.left, "a strategy asks for more than its budget"
        asks += [(one, ask) for ask in one.request.asks]
    groups: dict[Any, list[int]] = {}
    for i, (_, ask) in enumerate(asks):
        groups.setdefault((ask.n, ask.sampling), []).append(i)
    drawn: dict[int, list[Completion]] = {}
    for (n, sampling), places in groups.items():
        texts = tools.backend.continue_from(
            [asks[i][1].prompt or asks[i][0].problem.problem for i in places],
            [asks[i][1].prefix for i in places],
            n=n,
            sampling=sampling,
        )
        drawn |= dict(zip(places, texts, strict=True))
    answers: dict[int, list[list[Completion]]] = {}
    for i, (one, _) in enumerate(asks):
        answers.setdefault(id(one), []).append(drawn[i])
        one.spending.tokens += sum(len(text.token_ids) for text in drawn[i])
        one.spending.failed += len([text for text in drawn[i] if not text.ok])
    return [answers.get(id(one), []) for one in running]


def _judge(running: Sequence[_Running], tools: Tools) -> list[list[list[float | None]]]:
    if tools.scorer is None:
        raise ValueError("there is no scorer of steps; write Tools(scorer=...), or rank_by='log_prob'")
    steps: list[list[str]] = []
    problems: list[str] = []
    owners: list[_Running] = []
    for one in running:
        assert isinstance(one.request, Judge)
        for text in one.request.texts:
            steps.append(tools.steps(text))
            problems.append(one.problem.problem)
            owners.append(one)
    used = getattr(tools.scorer, "tokens_used", None)
    some = [i for i, one in enumerate(steps) if one]
    told = tools.scorer.score_steps([problems[i] for i in some], [steps[i] for i in some]) if some else []
    scores: list[list[float | None]] = [[] for _ in steps]
    for i, numbers in zip(some, told, strict=True):
        scores[i] = list(numbers)
    read = [tools.backend.count_tokens(problems[i] + "".join(steps[i])) for i in range(len(steps))]
    if used is not None and any(read):
        # Of all together it is known what they took; each has its share.
        share = (getattr(tools.scorer, "tokens_used", 0) - used) / sum(read)
        read = [round(share * one) for one in read]
    for owner, count in zip(owners, read, strict=True):
        owner.spending.scored_tokens += count
    return _by_owner(running, owners, scores)


def _read(running: Sequence[_Running], tools: Tools) -> list[list[float | None]]:
    pairs: list[tuple[str, str]] = []
    owners: list[_Running] = []
    for one in running:
        assert isinstance(one.request, Read)
        for text in one.request.texts:
            pairs.append((one.problem.problem, text))
            owners.append(one)
    told = tools.backend.log_probs([prompt for prompt, _ in pairs], [text for _, text in pairs]) if pairs else []
    means = [sum(value for _, value in one) / len(one) if one else None for one in told]
    for owner, tokens in zip(owners, told, strict=True):
        owner.spending.scored_tokens += len(tokens)
    return _by_owner(running, owners, means)


def _reward(running: Sequence[_Running], tools: Tools) -> list[list[RewardResult]]:
    if tools.reward is None:
        raise ValueError("there is no reward; write Tools(reward=as_reward(reward_fn))")
    pairs, owners = [], []
    for one in running:
        assert isinstance(one.request, Reward)
        for solution in one.request.solutions:
            pairs.append((one.problem, solution))
            owners.append(one)
    results = await_here(score_together(tools.reward, pairs, RewardContext(stage="search")))
    return _by_owner(running, owners, results)


def _by_owner(running: Sequence[_Running], owners: Sequence[_Running], values: Sequence[Any]) -> list[list[Any]]:
    answers: dict[int, list[Any]] = {}
    for owner, value in zip(owners, values, strict=True):
        answers.setdefault(id(owner), []).append(value)
    return [answers.get(id(one), []) for one in running]
