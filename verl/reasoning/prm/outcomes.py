"""Whether whole solutions are right, as a reward says; many are asked at once.

One decision: a reward's own verdict (`correct`) counts, and its score only where it has none: above 0.5 is right.
"""

import asyncio
from collections.abc import Sequence

from verl.reasoning.blocking import await_here
from verl.reasoning.records import Problem, Solution
from verl.reasoning.rewards import Reward, RewardContext, RewardResult, score

_AT_ONCE = 64


def are_right(reward: Reward, solutions: Sequence[tuple[Problem, str]]) -> list[bool | None]:
    """The verdict on each text; None where the reward failed."""
    if not solutions:
        return []
    return [_verdict(result) for result in await_here(_all(reward, solutions))]


async def _all(reward: Reward, solutions: Sequence[tuple[Problem, str]]) -> list[RewardResult]:
    room = asyncio.Semaphore(_AT_ONCE)
    context = RewardContext(stage="prm")

    async def one(problem: Problem, text: str) -> RewardResult:
        async with room:
            return await score(reward, problem, Solution(problem_id=problem.id, text=text), context)

    return await asyncio.gather(*(one(problem, text) for problem, text in solutions))


def _verdict(result: RewardResult) -> bool | None:
    if not result.valid:
        return None
    if result.correct is not None:
        return result.correct
    return None if result.score is None else result.score > 0.5
