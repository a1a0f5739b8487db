"""Searches that draw whole solutions and choose: best of n, majority, weighted best of n, diverse ones, an ensemble.

One decision: they draw the same samples from the same seed and differ in how they choose, so that a comparison of two
of them is paired sample by sample.

    >>> WeightedBestOfN(n=8).run(problem, tools).solution.final_answer
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from verl.reasoning.mmr import select, without_near_copies
from verl.reasoning.records import Problem, Solution
from verl.reasoning.search.driver import Search
from verl.reasoning.search.moves import best_of, draw, scored
from verl.reasoning.search.requests import Found, Spending, Strategy
from verl.reasoning.search.tools import RankBy, Tools
from verl.reasoning.similarity import Similarity, tfidf
from verl.reasoning.voting import Vote, vote


@dataclass(frozen=True, kw_only=True)
class BestOfN(Search):
    """The solution with the highest score."""

    n: int | None = 8
    """Solutions; None: as many as the budget allows."""
    rank_by: RankBy | None = None
    """None: the scorer if there is one, else how likely the model finds it."""

    def begin(self, problem: Problem, tools: Tools, spending: Spending) -> Strategy:
        """As `Search.begin`."""
        drawn = yield from draw(problem, tools, spending, n=self.n, sampling=tools.sampling)
        solutions = yield from scored(drawn, tools, rank_by=self.rank_by)
        return Found(problem_id=problem.id, solution=best_of(solutions), candidates=tuple(solutions))


@dataclass(frozen=True, kw_only=True)
class Majority(Search):
    """The answer that most solutions give (self-consistency); of those that give it the first. Needs no scorer."""

    n: int | None = 8
    """Solutions; None: as many as the budget allows."""

    def begin(self, problem: Problem, tools: Tools, spending: Spending) -> Strategy:
        """As `Search.begin`."""
        solutions = yield from draw(problem, tools, spending, n=self.n, sampling=tools.sampling)
        return elected(problem, tools, solutions, count_heads(tools, solutions))


@dataclass(frozen=True, kw_only=True)
class WeightedBestOfN(Search):
    """The answer whose solutions have the highest sum of scores, and of these the solution with the highest."""

    n: int | None = 8
    """Solutions; None: as many as the budget allows."""
    rank_by: RankBy | None = None
    """None: the scorer if there is one, else how likely the model finds it."""

    def begin(self, problem: Problem, tools: Tools, spending: Spending) -> Strategy:
        """As `Search.begin`."""
        drawn = yield from draw(problem, tools, spending, n=self.n, sampling=tools.sampling)
        solutions = yield from scored(drawn, tools, rank_by=self.rank_by)
        return elected(problem, tools, solutions, add_scores(tools, solutions))


@dataclass(frozen=True, kw_only=True)
class MMRSelection(Search):
    """A set of good solutions that are unlike each other; the solution is the first of them, which is the best."""

    n: int | None = 8
    """Solutions that are drawn; None: as many as the budget allows."""
    pick: int = 4
    """Solutions that are taken."""
    weight: float = 0.3
    """Lambda: 0 looks at nothing but the score, 1 at nothing but the difference."""
    dedup_threshold: float = 0.8
    """Of two that are more alike, the worse one is left out first."""
    similarity: Similarity = tfidf
    """How alike two are."""
    rank_by: RankBy | None = None
    """None: the scorer if there is one, else how likely the model finds it."""

    def begin(self, problem: Problem, tools: Tools, spending: Spending) -> Strategy:
        """As `Search.begin`."""
        drawn = yield from draw(problem, tools, spending, n=self.n, sampling=tools.sampling)
        everything = yield from scored(drawn, tools, rank_by=self.rank_by)
        pool = [one for one in everything if one.score is not None]
        values = [one.score or 0.0 for one in pool]
        sims = self.similarity([one.text for one in pool])
        kept = without_near_copies(values, sims, threshold=self.dedup_threshold)
        picks = select(
            [values[i] for i in kept],
            sims[kept][:, kept],
            count=self.pick,
            weight=self.weight,
            lengths=[pool[i].n_tokens for i in kept],
        )
        taken = tuple(pool[kept[one.index]] for one in picks)
        return Found(
            problem_id=problem.id,
            solution=taken[0] if taken else best_of(everything),
            candidates=taken,
            fallback=not taken,
            details={"drawn": len(everything), "mmr": [one.mmr for one in picks]},
        )


@dataclass(frozen=True, kw_only=True)
class Ensemble(Search):
    """A weighted vote, and a text that merges the winners, taken only if it gives their answer and scores as high."""

    n: int | None = 8
    """Solutions; None: as many as the budget allows."""
    weighted: bool = True
    """Add scores up; False: count."""
    synthesise: bool = True
    """Let the model merge the best solutions of the winning answer."""
    merged: int = 3
    """Solutions that it is shown."""
    template: str = (
        "{problem}\n\nHere are solutions that agree on the answer.\n\n{solutions}\n\nWrite one clear solution that "
        "keeps what is best in them."
    )
    """What it is asked; has the slots {problem} and {solutions}."""
    rank_by: RankBy | None = None
    """None: the scorer if there is one, else how likely the model finds it."""
    given: tuple[Solution, ...] | None = None
    """Solutions with their scores, in the place of drawn ones."""

    def begin(self, problem: Problem, tools: Tools, spending: Spending) -> Strategy:
        """As `Search.begin`."""
        solutions = list(self.given or ())
        if self.given is None:
            drawn = yield from draw(problem, tools, spending, n=self.n, sampling=tools.sampling)
            solutions = yield from scored(drawn, tools, rank_by=self.rank_by)
        won = add_scores(tools, solutions) if self.weighted else count_heads(tools, solutions)
        found = elected(problem, tools, solutions, won)
        if not self.synthesise or won.best is None:
            return found
        members = sorted(won.members, key=lambda i: (-(solutions[i].score or 0.0), i))[: self.merged]
        shown = "\n\n".join(f"Solution {k}:\n{solutions[i].text}" for k, i in enumerate(members, 1))
        prompt = self.template.format(problem=problem.problem, solutions=shown)
        written = yield from draw(problem, tools, spending, n=1, sampling=tools.sampling, prompt=prompt)
        merged = best_of((yield from scored(written, tools, rank_by=self.rank_by)))
        kept = merged is not None and self._agrees(tools, merged, won, solutions[won.best])
        details = found.details | {"method": "synthesis" if kept else found.details["method"]}
        return dataclasses.replace(found, solution=merged if kept else found.solution, details=details)

    def _agrees(self, tools: Tools, merged: Solution, won: Vote, best: Solution) -> bool:
        if merged.final_answer is None or won.winner is None or merged.score is None:
            return False
        same = merged.final_answer == won.winner or bool(tools.answers.same(won.winner, merged.final_answer))
        return same and merged.score >= (best.score or 0.0)


def count_heads(tools: Tools, solutions: list[Solution]) -> Vote:
    """A majority vote; a tie of single votes goes to the best score, where there are scores."""
    scores = [one.score for one in solutions]
    answers = [one.final_answer for one in solutions]
    return vote(answers, [1.0] * len(solutions), same=tools.answers.same, scores=scores)


def add_scores(tools: Tools, solutions: list[Solution]) -> Vote:
    """A vote in which each has its score; without any score a majority."""
    scores = [one.score for one in solutions]
    if all(one is None for one in scores):
        return count_heads(tools, solutions)
    return vote([one.final_answer for one in solutions], scores, same=tools.answers.same)


def elected(problem: Problem, tools: Tools, solutions: list[Solution], won: Vote) -> Found:
    """What a vote found; where nobody gave an answer, the best solution."""
    details: dict[str, Any] = {
        "answer": won.winner,
        "votes": won.totals,
        "agreement": won.agreement,
        "method": won.method,
        "members": list(won.members),
    }
    chosen = best_of(solutions) if won.best is None else solutions[won.best]
    return Found(
        problem_id=problem.id,
        solution=chosen,
        candidates=tuple(solutions),
        fallback=won.best is None,
        details=details,
    )
