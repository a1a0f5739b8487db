"""Refinement: a solution is criticised and written again, and replaced only by one that scores strictly higher.

One decision: the criticism comes from the scorer (its first doubtful step) or from the reward's note, and the gold
answer never reaches a prompt: a note that holds it is not shown. So what is refined was not told the answer.

    >>> Refine(rounds=3, candidates=4, temperature=0.5).run(problem, tools)
"""

import dataclasses
import re
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from verl.reasoning.records import Problem, Solution
from verl.reasoning.search.driver import Search
from verl.reasoning.search.moves import best_of, draw, scored
from verl.reasoning.search.requests import Found, Judge, Request, Reward, Spending, Strategy
from verl.reasoning.search.tools import RankBy, Tools

TEMPLATE = (
    "{problem}\n\nThis is a solution that may be wrong:\n\n{solution}\n\n{critique}\n\nWrite a correct and clear "
    "solution."
)
"""Slots: {problem}, {solution}, {critique}."""

UNKNOWN = "Look at each step again."
"""The criticism where nobody knows what is wrong."""

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


@dataclass(frozen=True, kw_only=True)
class Refine(Search):
    """Draws a solution and refines it."""

    start: int = 1
    """Solutions that are drawn at first; the best of them is refined."""
    rounds: int = 3
    """Most rounds."""
    candidates: int = 4
    """Texts of each round."""
    patience: int = 1
    """It ends after so many rounds without an improvement."""
    temperature: float = 0.5
    """Of the texts of a round."""
    template: str = TEMPLATE
    """What the model is asked; has the slots {problem}, {solution} and {critique}."""
    rank_by: RankBy | None = None
    """None: the scorer if there is one, else how likely the model finds it."""
    doubtful: float = 0.5
    """The first step below is the one that is criticised."""
    given: Solution | None = None
    """What is refined; None: the best of `start` solutions that are drawn."""

    def begin(self, problem: Problem, tools: Tools, spending: Spending) -> Strategy:
        """As `Search.begin`."""
        drawn = [self.given] if self.given is not None else []
        if not drawn:
            drawn = yield from draw(problem, tools, spending, n=self.start, sampling=tools.sampling)
        solutions = yield from scored(drawn, tools, rank_by=self.rank_by)
        first = best_of(solutions)
        if first is None:
            return Found(problem_id=problem.id, solution=None)
        best, history = yield from self.improve(problem, first, tools, spending)
        return Found(
            problem_id=problem.id,
            solution=best,
            candidates=(*solutions, *([best] if best is not first else [])),
            details={"history": history},
        )

    def improve(
        self, problem: Problem, solution: Solution, tools: Tools, spending: Spending
    ) -> Generator[Request, Any, tuple[Solution, list[dict[str, Any]]]]:
        """The refined solution, marked in its `meta`, and what became of each round."""
        best, history, idle = solution, [], 0
        for number in range(1, self.rounds + 1):
            prompt = self.template.format(
                problem=problem.problem,
                solution=best.text,
                critique=(yield from self._critique(problem, best, tools)),
            )
            # Rounds that failed are asked the same again, and shall draw anew.
            how = dataclasses.replace(
                tools.sampling, temperature=self.temperature, first_index=(number - 1) * self.candidates
            )
            written = yield from draw(problem, tools, spending, n=self.candidates, sampling=how, prompt=prompt)
            found = best_of((yield from scored(written, tools, rank_by=self.rank_by)))
            gain = _gain(found, best)
            history.append(
                {
                    "iteration": number,
                    "solution": None if found is None else found.text,
                    "score": None if found is None else found.score,
                    "improvement": gain,
                }
            )
            if found is not None and gain > 0:
                best = dataclasses.replace(found, meta={**found.meta, "refined": True, "rounds": number})
                idle = 0
            else:
                idle += 1
            if idle >= self.patience or not spending.worth_going_on:
                break
        return best, history

    def _critique(self, problem: Problem, solution: Solution, tools: Tools) -> Generator[Request, Any, str]:
        if tools.scorer is not None:
            (scores,) = yield Judge(texts=(solution.text,))
            steps = tools.steps(solution.text)
            wrong = next((i for i, one in enumerate(scores) if one is not None and one < self.doubtful), None)
            if wrong is not None:
                return f"Step {wrong + 1} is doubtful: {steps[wrong].strip()}"
        if self.rank_by == "reward" and tools.reward is not None:
            (result,) = yield Reward(solutions=(solution,))
            return without_gold(result.note, problem) or UNKNOWN
        return UNKNOWN


def without_gold(note: str, problem: Problem) -> str:
    """A note, if it does not hold the gold answer; else nothing."""
    gold = (problem.answer or "").strip()
    if gold and re.search(rf"(?<![\w.]){re.escape(gold)}(?!\w|\.\d)", note, re.IGNORECASE):
        return ""
    numbers = {_number(one) for one in _NUMBER.findall(note)}
    return "" if gold and _number(gold) in numbers - {None} else note.strip()


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def _gain(found: Solution | None, best: Solution) -> float:
    """How much better; 0 for one without a score, and all of the score where the best has none."""
    if found is None or found.score is None:
        return 0.0
    return found.score - (best.score or 0.0)
