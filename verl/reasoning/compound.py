"""A reward of correctness, clarity and efficiency (`CompoundRewardFunction`).

One decision: gated by default. Clarity and efficiency count only as far as the solution is right; in the original's
weighted sum (`gate=False`) a wrong tidy answer earns half of everything.

    >>> reward = CompoundRewardFunction(correctness_weight=0.5, clarity_weight=0.3, efficiency_weight=0.2)
    >>> reward({"problem": "What is 3 + 4?", "answer": "7"}, "3 + 4 = 7. The answer is 7.")
    >>> score_solutions(reward, problems, solutions)        # as any reward; knows each problem's group

A subclass may override `evaluate_correctness(problem, solution)`, `evaluate_clarity(solution)` and
`evaluate_efficiency(solution)`; they are handed texts, and may return None for "cannot tell".
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from statistics import median
from typing import Any, overload

from verl.reasoning import cot_rewards
from verl.reasoning.blocking import await_here
from verl.reasoning.cot_reward import length_of
from verl.reasoning.reading import read_solution
from verl.reasoning.records import Problem, Solution, as_problem
from verl.reasoning.rewards import Reward, RewardContext, RewardResult, as_reward, failed, score
from verl.reasoning.scoring import math_reward

FACTOR = 2.0
"""A solution of so many times the reference's length earns nothing for efficiency."""


class CompoundRewardFunction:
    """The reward, 0 to 1: called with records it is async, with a problem and a text it returns a number."""

    is_reward = True
    reward_range = (0.0, 1.0)

    def __init__(
        self,
        correctness_weight: float = 0.5,
        clarity_weight: float = 0.3,
        efficiency_weight: float = 0.2,
        *,
        gate: bool = True,
        correctness: Callable[..., Any] | None = None,
        reference_length: int | None = None,
        max_length: int | None = None,
    ) -> None:
        """Weights are divided by their sum.

        Args:
            correctness_weight: of the verifier's score.
            clarity_weight: of clear steps (`cot_rewards.clarity`).
            efficiency_weight: of shortness.
            gate: multiply all with the correctness.
            correctness: a reward; None: math-verify on the gold answer. Where it fails there is no reward.
            reference_length: tokens that cost nothing; None: the median of the group's right solutions, or the
                solution's own where none is known to be right.
            max_length: tokens from which on efficiency is 0; None: `FACTOR` times the reference.

        Raises:
            ValueError: weights of which nothing can be made, or a maximum not above the reference.
        """
        given = {"correctness": correctness_weight, "clarity": clarity_weight, "efficiency": efficiency_weight}
        if min(given.values()) < 0 or not 0 < sum(given.values()) < float("inf"):
            raise ValueError(f"weights {given}; write 0 or more, and one above 0")
        if reference_length is not None and max_length is not None and max_length <= reference_length:
            raise ValueError(f"max_length={max_length} is not above reference_length={reference_length}; write more")
        self.weights = {name: weight / sum(given.values()) for name, weight in given.items()}
        self.gate, self.reference_length, self.max_length = gate, reference_length, max_length
        self._correctness = as_reward(correctness) if correctness is not None else math_reward()

    @overload
    def __call__(
        self, problem: Problem, solution: Solution, context: RewardContext | None = None
    ) -> Awaitable[RewardResult]: ...
    @overload
    def __call__(self, problem: str | Mapping[str, Any], solution: str, context: None = None) -> float: ...
    def __call__(self, problem: Any, solution: Any, context: RewardContext | None = None) -> Any:
        """A result, or for a text the number alone.

        Raises:
            ValueError: a text's correctness cannot be told; says why.
        """
        if isinstance(solution, Solution):
            return self.score(as_problem(problem), solution, context or RewardContext())
        result = self._of_text(problem, solution)
        if result.score is None:
            raise ValueError(f"no score: {result.note}")
        return result.score

    def components(self, problem: "Problem | str | Mapping[str, Any]", solution: "Solution | str") -> dict[str, float]:
        """Correctness, clarity and efficiency of a solution, each 0 to 1; empty where correctness cannot be told."""
        return dict(self._of_text(problem, solution).components)

    async def score(self, problem: Problem, solution: Solution, context: RewardContext) -> RewardResult:
        """The reward with its parts."""
        said = await score(self.group_correctness, problem, solution, context)
        if not said.valid or said.score is None:
            return said
        known = replace(solution, correct=said.correct)
        clear = (
            self._said("evaluate_clarity", solution.text) if self._overrides("evaluate_clarity") else _clarity(known)
        )
        if self._overrides("evaluate_efficiency"):
            short = self._said("evaluate_efficiency", solution.text)
        else:
            short = self._efficiency(known, context)
        if clear is None or short is None:
            return failed("evaluate_clarity or evaluate_efficiency returned None")
        parts = {"correctness": said.score, "clarity": clear, "efficiency": short}
        return replace(said, score=combine(parts, self.weights, gate=self.gate), components=parts)

    @property
    def group_correctness(self) -> Reward:
        """The correctness alone; `score_solutions` asks it first, so that a group's right solutions are known."""
        if not self._overrides("evaluate_correctness"):
            return self._correctness
        return as_reward(self._overridden_correctness)

    def evaluate_correctness(self, problem: str, solution: str) -> float | None:
        """Whether a solution is right, 0 to 1. Of a text alone no gold answer is known; see `correctness`."""
        result = await_here(_ask(self._correctness, as_problem(problem), read_solution(solution)))
        return result.score

    def evaluate_clarity(self, solution: str) -> float | None:
        """How clear its steps are, 0 to 1."""
        return _clarity(read_solution(solution))

    def evaluate_efficiency(self, solution: str) -> float | None:
        """How short it is, 0 to 1; needs `reference_length`, without which every text is its own reference."""
        return self._efficiency(read_solution(solution), RewardContext())

    def _overridden_correctness(self, problem: Problem, solution: Solution, context: RewardContext) -> RewardResult:
        said = self._said("evaluate_correctness", problem.problem, solution.text)
        if said is None:
            return failed("evaluate_correctness returned None")
        return RewardResult(score=said, correct=said >= 0.5)

    def _overrides(self, hook: str) -> bool:
        return getattr(type(self), hook) is not getattr(CompoundRewardFunction, hook)

    def _said(self, hook: str, *texts: str) -> float | None:
        """What an overridden hook returned.

        Raises:
            ValueError: it is not within 0 and 1, so that the gate would turn its sense round.
        """
        said = getattr(self, hook)(*texts)
        if said is None:
            return None
        if not 0 <= float(said) <= 1:
            raise ValueError(f"{hook} returned {said}; return a number of 0 to 1, or None")
        return float(said)

    def _efficiency(self, solution: Solution, context: RewardContext) -> float:
        reference = float(self.reference_length or 0)
        if not reference:
            right = [length_of(one) for one in context.group if one.correct]
            reference = float(median(right)) if right else float(length_of(solution))
        longest = float(self.max_length) if self.max_length is not None else FACTOR * reference
        over = length_of(solution) - reference
        if over <= 0:
            return 1.0
        return 1 - min(1.0, over / (longest - reference)) if longest > reference else 0.0

    def _of_text(self, problem: Any, solution: "Solution | str") -> RewardResult:
        of = as_problem(problem)
        written = solution if isinstance(solution, Solution) else read_solution(solution, problem_id=of.id)
        return await_here(_ask(self.score, of, written))


def combine(parts: Mapping[str, float], weights: Mapping[str, float], *, gate: bool = True) -> float:
    """Gated: c * (w_c + w_l * clarity + w_e * efficiency); else the weighted sum. Weights of sum 1."""
    if not gate:
        return sum(weight * parts[name] for name, weight in weights.items())
    style = weights["clarity"] * parts["clarity"] + weights["efficiency"] * parts["efficiency"]
    return parts["correctness"] * (weights["correctness"] + style)


def _clarity(solution: Solution) -> float:
    steps = solution.steps or read_solution(solution.text).steps
    return cot_rewards.clarity([step.text for step in steps])


async def _ask(reward: Reward, problem: Problem, solution: Solution) -> RewardResult:
    return await score(reward, problem, solution, RewardContext())
