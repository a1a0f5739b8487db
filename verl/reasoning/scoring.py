"""Scores solutions, and hands a reward to verl.

One decision: a solution whose reward failed keeps `score=None` and says why in `meta["reward_note"]`; how many there
are is part of the result, so that nobody averages what was left out.

    >>> scored = score_solutions(math_reward(), problems, solutions)
    >>> scored.solutions[0].score, scored.failed, scored.line
    (1.0, 0, '64 solutions scored')
    >>> compute_score = to_verl_compute_score(math_reward())        # reward.custom_reward_function of a trainer
"""

import asyncio
import functools
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tqdm import tqdm

from verl.reasoning.blocking import await_here
from verl.reasoning.reading import read_solution
from verl.reasoning.records import Problem, Solution, as_problem, problem_id
from verl.reasoning.rewards import TIMEOUT_S, Reward, RewardContext, RewardResult, as_reward, failed, score
from verl.utils.reward_score.cot_monitor import get_verifier, known_data_sources

MATH_SOURCE = "openai/gsm8k"
"""Whose verifier reads an answer of a problem without a source: it takes any mark, a box, `####` or words."""


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Solutions with their scores, and how many have none."""

    solutions: tuple[Solution, ...]
    """In the order in which they were given."""
    results: tuple[RewardResult, ...]
    """What the reward said of each."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Why there is no score -> how often, the most frequent first."""

    @property
    def failed(self) -> int:
        """Solutions without a score."""
        return sum(self.reasons.values())

    @property
    def line(self) -> str:
        """For a log."""
        line = f"{len(self.solutions) - self.failed} solutions scored"
        if self.failed:
            why = ", ".join(f"{times}x {reason}" for reason, times in list(self.reasons.items())[:3])
            line += f", {self.failed} left out ({why})"
        return line


def score_solutions(
    reward: Callable[..., Any],
    problems: "Problem | Sequence[Problem] | Mapping[str, Problem]",
    solutions: Sequence[Solution],
    context: RewardContext | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    progress: bool = False,
) -> Scored:
    """Every solution with what the reward says of it; `context.group` is set to all given solutions of its problem.

    Args:
        reward: or a user's function, see `as_reward`.
        problems: the one of all, or those of the solutions, found by `problem_id`.
        solutions: to be scored; they stay as they are, and copies are returned.
        context: where training stands.
        timeout_s: longest time of one call, in seconds.
        progress: whether to show a bar.

    Raises:
        ValueError: a solution's problem is not among those given.
    """
    return await_here(score_all(reward, problems, solutions, context, timeout_s=timeout_s, progress=progress))


async def score_all(
    reward: Callable[..., Any],
    problems: "Problem | Sequence[Problem] | Mapping[str, Problem]",
    solutions: Sequence[Solution],
    context: RewardContext | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    progress: bool = False,
) -> Scored:
    """`score_solutions` for callers that are async."""
    function, context = as_reward(reward), context or RewardContext()
    of = _problems_of(problems, solutions)
    known = await _known_correct(function, of, solutions, context, timeout_s)
    groups: dict[str, list[Solution]] = {}
    for one in known:
        groups.setdefault(one.problem_id, []).append(one)
    bar = tqdm(total=len(solutions), desc="rewards", disable=not progress)

    async def result(problem: Problem, solution: Solution) -> RewardResult:
        around = replace(context, group=tuple(groups[solution.problem_id]))
        said = await score(function, problem, solution, around, timeout_s=timeout_s)
        bar.update()
        return said

    with bar:
        results = await asyncio.gather(*(result(p, s) for p, s in zip(of, known, strict=True)))
    reasons = Counter(one.note or "no reason given" for one in results if not one.valid)
    scored = tuple(with_result(*pair) for pair in zip(solutions, results, strict=True))
    return Scored(solutions=scored, results=tuple(results), reasons=dict(reasons.most_common()))


def with_result(solution: Solution, result: RewardResult) -> Solution:
    """A copy of the solution that knows its score; what an earlier reward said of it is replaced."""
    meta = {key: value for key, value in solution.meta.items() if key != "reward_note"}
    return replace(
        solution,
        score=result.score,
        reward=dict(result.components),
        correct=result.correct,
        final_answer=result.final_answer if result.final_answer is not None else solution.final_answer,
        meta={**meta, "reward_note": result.note} if result.note else meta,
    )


def to_verl_compute_score(reward: Callable[..., Any], *, timeout_s: float = TIMEOUT_S) -> Callable[..., Any]:
    """An async function of (data_source, solution_str, ground_truth, extra_info) for verl's trainers; can be pickled.

    `extra_info` holds `problem`, `id` and `level`. It returns the same keys for every row: `score`, `valid`, `correct`
    (NaN: not decided) as numbers, `components`, `final_answer` and `note` as texts. A reward that failed has the score
    None, which the trainers of this project count as not judged (`Outcome.judge_error`) and leave out of statistics.
    """
    return functools.partial(_verl_score, as_reward(reward), timeout_s)


async def _verl_score(
    reward: Reward,
    timeout_s: float,
    data_source: str,
    solution_str: str,
    ground_truth: Any = None,
    extra_info: Mapping[str, Any] | None = None,
    **_: Any,
) -> dict[str, Any]:
    told = dict(extra_info or {})
    text = told.get("problem") or told.get("question") or ""
    problem = Problem(
        id=str(told.get("id") or problem_id(str(text))),
        problem=str(text),
        answer=None if ground_truth is None else str(ground_truth),
        source=data_source,
        level=told.get("level"),
        meta=told,
    )
    solution = read_solution(solution_str, problem_id=problem.id)
    where = RewardContext(step=int(told.get("step") or 0), total_steps=int(told.get("total_steps") or 1))
    result = await score(reward, problem, solution, where, timeout_s=timeout_s)
    return {
        "score": result.score,
        "valid": float(result.valid),
        "correct": float("nan") if result.correct is None else float(result.correct),
        "components": json.dumps(result.components),
        "final_answer": result.final_answer or "",
        "note": result.note,
    }


def math_reward() -> Reward:
    """1 for an answer that math-verify, or the verifier of the problem's source, accepts; else 0.

    The answer part alone is read. Without a gold answer there is no score; a text without an answer is wrong.
    """
    return as_reward(_verified)


def _verified(problem: Problem, solution: Solution, context: RewardContext) -> RewardResult:
    if problem.answer is None or not problem.answer.strip():
        return failed("the problem has no gold answer; write {'problem': ..., 'answer': ...}")
    source = problem.source if problem.source in known_data_sources() else MATH_SOURCE
    verifier = get_verifier(source)
    text = solution.answer_text if solution.answer_text or solution.thinking else solution.text
    if not verifier.has_answer(text):
        return RewardResult(score=0.0, correct=False, note="no answer")
    said = verifier.compute_score(text, problem.answer)
    if said is None:
        return failed("the verifier cannot tell whether the answer is right")
    correct = said >= verifier.main_correct_threshold
    answer = verifier.reference_answer(text)
    return RewardResult(
        score=float(said), components={"correctness": float(said)}, final_answer=answer, correct=correct
    )


async def _known_correct(
    reward: Reward, problems: Sequence[Problem], solutions: Sequence[Solution], context: RewardContext, timeout_s: float
) -> list[Solution]:
    """The solutions with `correct`, as far as a reward that compares a group's correct ones wants to know it."""
    correctness = getattr(reward, "group_correctness", None)
    if correctness is None:
        return list(solutions)
    pairs = zip(problems, solutions, strict=True)
    said = await asyncio.gather(*(score(correctness, p, s, context, timeout_s=timeout_s) for p, s in pairs))
    return [replace(one, correct=result.correct) for one, result in zip(solutions, said, strict=True)]


def _problems_of(
    problems: "Problem | Sequence[Problem] | Mapping[str, Problem]", solutions: Sequence[Solution]
) -> list[Problem]:
    if isinstance(problems, Problem):
        others = {one.problem_id for one in solutions} - {problems.id}
        if others:
            raise ValueError(f"solutions of {sorted(others)[0]!r} beside those of {problems.id!r}; give all problems")
        return [problems] * len(solutions)
    found = dict(problems) if isinstance(problems, Mapping) else {one.id: one for one in map(as_problem, problems)}
    missing = [one.problem_id for one in solutions if one.problem_id not in found]
    if missing:
        raise ValueError(f"no problem has the id {missing[0]!r} of a solution ({len(missing)} such); give all problems")
    return [found[one.problem_id] for one in solutions]
