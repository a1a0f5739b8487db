"""Searches by steps with a scorer: beam search with rejection, and diverse verifier tree search (E. Beeching et al.,
"Scaling test-time compute", 2024).

One decision: both expand paths by the same move and differ in who competes: in a beam all children with each other, in
DVTS only those of one subtree, so that a subtree that a wrong score favours cannot crowd out the others.

    >>> StepBeam(keep=2, width=4).run(problem, tools).fallback
    False
"""

import dataclasses
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from verl.reasoning.records import Problem
from verl.reasoning.search.driver import Search
from verl.reasoning.search.requests import Request, Spending, Strategy
from verl.reasoning.search.stepping import Path, Select, concluded, expand, ranked, worth
from verl.reasoning.search.tools import RankBy, Tools


@dataclass(frozen=True, kw_only=True)
class StepBeam(Search):
    """Beam search over steps. Where every child is rejected the best one goes on, and `fallback` says so."""

    keep: int = 4
    """Paths that go on after each step (N; of search-and-learn's n candidates n / width)."""
    width: int = 4
    """Continuations of each (M)."""
    max_steps: int = 40
    """The last of them writes on to the end."""
    step_tokens: int = 256
    """Most tokens of a step."""
    reject_threshold: float | None = 0.5
    """Paths that the scorer gives less are dropped; None: none are. Without a scorer none are either, since
    probabilities of tokens have no such scale."""
    lookahead: int = 0
    """Greedy steps that are written behind a path only to score it."""
    select: Select = "best"
    """Which whole solution is chosen."""
    rank_by: RankBy | None = None
    """`scorer` or `log_prob`; None: the scorer if there is one."""

    def begin(self, problem: Problem, tools: Tools, spending: Spending) -> Strategy:
        """As `Search.begin`."""
        beams, fallback, steps = [Path()], False, 0
        for number in range(self.max_steps):
            live = [path for path in beams if not path.ended]
            if not live or not spending.worth_going_on:
                break
            children = yield from expand(
                problem,
                tools,
                spending,
                live,
                # At first there is one path, from which all others come.
                counts=[self.width] * len(live) if number else [self.width * self.keep],
                step_tokens=self.step_tokens,
                to_end=number == self.max_steps - 1,
            )
            new = [path for some in children for path in some]
            if not new:
                break
            steps = number + 1
            # Two beams that say the same would only be continued twice.
            pool = list({path.text: path for path in [*(path for path in beams if path.ended), *new]}.values())
            pool = yield from self._scored(problem, tools, spending, pool)
            beams = [path for path in ranked(pool) if self._passes(path, tools)][: self.keep]
            if not beams:
                beams, fallback = ranked(pool)[:1], True
        return concluded(problem, tools, beams, select=self.select, fallback=fallback, steps=steps)

    def _passes(self, path: Path, tools: Tools) -> bool:
        if path.score is None:
            return False
        by_scorer = (self.rank_by or tools.rank_by) == "scorer"
        return self.reject_threshold is None or not by_scorer or path.score >= self.reject_threshold

    def _scored(
        self, problem: Problem, tools: Tools, spending: Spending, paths: Sequence[Path]
    ) -> Generator[Request, Any, list[Path]]:
        seen = list(paths)
        greedy = dataclasses.replace(tools.sampling, temperature=0.0)
        for _ in range(self.lookahead):
            live = [i for i, path in enumerate(seen) if not path.ended]
            if not live:
                break
            found = yield from expand(
                problem,
                tools,
                spending,
                [seen[i] for i in live],
                counts=[1] * len(live),
                step_tokens=self.step_tokens,
                sampling=greedy,
            )
            for i, children in zip(live, found, strict=True):
                seen[i] = children[0] if children else seen[i]
        return (yield from worth(paths, tools, self.rank_by, [path.text for path in seen]))


@dataclass(frozen=True, kw_only=True)
class DVTS(Search):
    """Independent subtrees, in each of which the best child of every step goes on; then a vote of the subtrees."""

    subtrees: int = 4
    """Trees."""
    width: int = 4
    """Continuations of a step (M)."""
    max_steps: int = 40
    """The last of them writes on to the end."""
    step_tokens: int = 256
    """Most tokens of a step."""
    select: Select = "vote"
    """Which whole solution is chosen."""
    rank_by: RankBy | None = None
    """`scorer` or `log_prob`; None: the scorer if there is one."""

    def begin(self, problem: Problem, tools: Tools, spending: Spending) -> Strategy:
        """As `Search.begin`."""
        trees, steps = [Path()] * self.subtrees, 0
        for number in range(self.max_steps):
            live = [i for i, path in enumerate(trees) if not path.ended]
            if not live or not spending.worth_going_on:
                break
            families = yield from expand(
                problem,
                tools,
                spending,
                [trees[i] for i in live],
                counts=[self.width] * len(live),
                step_tokens=self.step_tokens,
                to_end=number == self.max_steps - 1,
            )
            if not any(families):
                break
            steps = number + 1
            scored = yield from worth([path for family in families for path in family], tools, self.rank_by)
            for i, family in zip(live, families, strict=True):
                mine, scored = scored[: len(family)], scored[len(family) :]
                trees[i] = ranked(mine)[0] if mine else trees[i]
        return concluded(problem, tools, trees, select=self.select, fallback=False, steps=steps)
