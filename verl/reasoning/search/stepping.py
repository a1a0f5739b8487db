"""Searches step by step: how paths are continued, and what a path is worth.

One decision: a step ends where one of the tools' `step_stop` texts stands, which is text and no token of a model's
vocabulary; so every model can be searched with, whatever its tokenizer knows. Who ends its answer ends the path.

    >>> children = yield from expand(problem, tools, spending, [Path()], counts=[8], step_tokens=128)
"""

import dataclasses
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from verl.reasoning.backends import Completion, SamplingParams
from verl.reasoning.records import Problem, Solution
from verl.reasoning.search.moves import best_of, text_values
from verl.reasoning.search.requests import Ask, Found, Request, Spending, Write
from verl.reasoning.search.sampling import add_scores, elected
from verl.reasoning.search.tools import RankBy, Tools

Select = Literal["best", "vote"]
"""`best`: the solution with the highest score; `vote`: the answer with the highest sum of scores."""


@dataclass(frozen=True, kw_only=True)
class Path:
    """The beginning of a solution."""

    text: str = ""
    """So far."""
    tokens: int = 0
    """Generated for it."""
    finish_reason: str | None = None
    """`stop`: the model ended it; `length`: it filled `max_tokens`; None: it goes on."""
    score: float | None = None
    """Of the text so far; None: it could not be scored."""

    @property
    def ended(self) -> bool:
        """Whether it is a whole solution."""
        return self.finish_reason is not None


def expand(
    problem: Problem,
    tools: Tools,
    spending: Spending,
    paths: Sequence[Path],
    *,
    counts: Sequence[int],
    step_tokens: int,
    to_end: bool = False,
    sampling: SamplingParams | None = None,
) -> Generator[Request, Any, list[list[Path]]]:
    """The next step of each path, as often as asked; less often for the last ones where the budget does not allow it.

    Paths with the same text draw different continuations, each from its own range of indices.

    Args:
        problem: of the paths.
        tools: with the backend and what ends a step.
        spending: of this search.
        paths: that have not ended.
        counts: continuations of each.
        step_tokens: most tokens of a step.
        to_end: write on to the end of the solution.
        sampling: of the steps; None: the tools'.
    """
    how = sampling or tools.sampling
    rooms = [max(1, how.max_tokens - path.tokens) for path in paths]
    each = [room if to_end else min(step_tokens, room) for room in rooms]
    wanted, each = _within(spending, counts, each)
    stop = how.stop if to_end else tuple(dict.fromkeys((*how.stop, *tools.step_stop)))
    groups: dict[tuple[str, int], list[int]] = {}
    for i, path in enumerate(paths):
        if wanted[i]:
            groups.setdefault((path.text, each[i]), []).append(i)
    asks = tuple(
        Ask(
            prefix=text,
            n=sum(wanted[i] for i in members),
            sampling=dataclasses.replace(how, max_tokens=most, stop=stop),
        )
        for (text, most), members in groups.items()
    )
    children: list[list[Path]] = [[] for _ in paths]
    if not asks:
        return children
    drawn = yield Write(asks=asks)
    for members, completions in zip(groups.values(), drawn, strict=True):
        left = list(completions)
        for i in members:
            mine, left = left[: wanted[i]], left[wanted[i] :]
            children[i] = [_child(paths[i], one, how, tools) for one in mine if one.ok]
    return children


def worth(
    paths: Sequence[Path], tools: Tools, rank_by: RankBy | None, texts: Sequence[str] | None = None
) -> Generator[Request, Any, list[Path]]:
    """The paths with their scores; `texts` stand for them where something else is to be scored.

    Raises:
        ValueError: beginnings cannot be ranked by a reward.
    """
    how = rank_by or tools.rank_by
    if how == "reward":
        raise ValueError("rank_by='reward' needs whole solutions; a search by steps takes 'scorer' or 'log_prob'")
    numbers = yield from text_values([path.text for path in paths] if texts is None else texts, tools, how)
    return [dataclasses.replace(path, score=number) for path, number in zip(paths, numbers, strict=True)]


def ranked(paths: Sequence[Path]) -> list[Path]:
    """Best first; those without a score come last, and the earlier first among equals."""
    return sorted(paths, key=lambda path: (path.score is None, -(path.score or 0.0)))


def concluded(
    problem: Problem, tools: Tools, paths: Sequence[Path], *, select: Select, fallback: bool, steps: int
) -> Found:
    """What the paths of a search come to; those that did not end are chosen only where none did."""
    solutions = [_solution(problem, tools, path) for path in paths if path.text]
    ended = [one for one in solutions if one.finish_reason == "stop"] or solutions
    won = add_scores(tools, ended)
    found = elected(problem, tools, ended, won)
    if select == "best":
        found = dataclasses.replace(found, solution=best_of(ended), fallback=not ended)
    return dataclasses.replace(
        found,
        candidates=tuple(solutions),
        fallback=fallback or found.fallback,
        details=found.details | {"steps": steps},
    )


def _within(spending: Spending, counts: Sequence[int], each: Sequence[int]) -> tuple[list[int], list[int]]:
    """As many continuations as the budget allows, one of every path before a second one of any, and their lengths."""
    if spending.left is None:
        return list(counts), list(each)
    left = spending.left
    given, most = [0] * len(counts), list(each)
    for turn in range(max(counts, default=0)):
        for i, count in enumerate(counts):
            if turn < count and each[i] <= left:
                given[i] += 1
                left -= each[i]
    if not any(given) and counts and left > 0:
        given[0], most[0] = 1, min(each[0], left)
    return given, most


def _child(path: Path, one: Completion, how: SamplingParams, tools: Tools) -> Path:
    text, tokens = path.text + one.text, path.tokens + len(one.token_ids)
    at_step = any(one.text.endswith(stop) for stop in tools.step_stop if stop not in how.stop)
    finish = None
    if one.finish_reason == "stop" and not at_step:
        finish = "stop"
    elif tokens >= how.max_tokens:
        finish = "length"
    return Path(text=text, tokens=tokens, finish_reason=finish)


def _solution(problem: Problem, tools: Tools, path: Path) -> Solution:
    whole = Completion(text=path.text, finish_reason=path.finish_reason or "length")
    made = tools.solution(problem, Ask(sampling=tools.sampling), whole)
    return dataclasses.replace(made, n_tokens=path.tokens, score=path.score)
