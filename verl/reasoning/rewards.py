"""Rewards of the pipeline: whatever a user writes becomes one async call with one kind of result.

One decision: a reward never raises and is never guessed. One that fails, hangs or says None gives a result that is not
`valid`: it stays out of every statistic, and is counted.

    >>> reward = as_reward(lambda problem, solution: float("7" in solution))
    >>> result = await score(reward, problem, solution, RewardContext())
    >>> result.score, result.valid
    (1.0, True)
"""

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from verl.reasoning.records import Problem, Solution

TIMEOUT_S = 60.0
"""Longest time of one call."""


@dataclass(frozen=True, kw_only=True)
class RewardContext:
    """Where training stands when a reward is asked."""

    step: int = 0
    """Training steps taken."""
    total_steps: int = 1
    """Of the whole training."""
    stage: str = ""
    """Name of the pipeline's stage."""
    tokenizer: Any = None
    """The policy's."""
    group: tuple[Solution, ...] = ()
    """All solutions of this problem's group, where the stage knows them."""


@dataclass(frozen=True, kw_only=True)
class RewardResult:
    """What a reward says of one solution."""

    score: float | None
    """In 0..1; None where it is not valid."""
    components: dict[str, float] = field(default_factory=dict)
    """What it is made of."""
    final_answer: str | None = None
    """The answer that was read out of the solution."""
    correct: bool | None = None
    """Whether that answer is right; None: not decided."""
    valid: bool = True
    """False: the reward failed, so that there is no score."""
    note: str = ""
    """Why, for a person."""


Reward = Callable[[Problem, Solution, RewardContext], Awaitable[RewardResult]]
"""What everything in the pipeline calls; `as_reward` makes one of a user's function."""


def as_reward(function: Callable[..., Any]) -> Reward:
    """A reward from a function of (problem text, solution text) or of (Problem, Solution, RewardContext).

    It may be async, and may return a number, a bool or a `RewardResult`. It is called in a thread if it is not async.

    Raises:
        TypeError: it takes neither two nor three arguments.
    """
    if getattr(function, "is_reward", False):
        return function
    if not callable(function):
        raise TypeError(f"reward_fn is a {type(function).__name__}; write a function of (problem, solution)")
    native = _arity(function) == 3

    async def reward(problem: Problem, solution: Solution, context: RewardContext) -> RewardResult:
        given = (problem, solution, context) if native else (problem.problem, solution.text)
        said = function(*given) if inspect.iscoroutinefunction(function) else asyncio.to_thread(function, *given)
        said = await said
        return said if isinstance(said, RewardResult) else _result(said)

    reward.is_reward = True  # type: ignore[attr-defined]
    return reward


async def score(
    reward: Reward, problem: Problem, solution: Solution, context: RewardContext, *, timeout_s: float = TIMEOUT_S
) -> RewardResult:
    """What the reward says; what goes wrong in it is a result that is not valid."""
    try:
        result = await asyncio.wait_for(reward(problem, solution, context), timeout_s)
    except TimeoutError:
        return RewardResult(score=None, valid=False, note=f"no score within {timeout_s:g} s")
    except Exception as error:  # A user's function may raise anything.
        return RewardResult(score=None, valid=False, note=" ".join(f"{type(error).__name__}: {error}".split())[:200])
    return result


async def score_together(
    reward: Reward,
    pairs: Sequence[tuple[Problem, Solution]],
    context: RewardContext,
    *,
    timeout_s: float = TIMEOUT_S,
    at_once: int = 32,
) -> list[RewardResult]:
    """What the reward says of many, in their order, `at_once` calls at a time; a call's time runs from its start."""
    waiting = asyncio.Semaphore(at_once)

    async def one(problem: Problem, solution: Solution) -> RewardResult:
        async with waiting:
            return await score(reward, problem, solution, context, timeout_s=timeout_s)

    return list(await asyncio.gather(*(one(*pair) for pair in pairs)))


def _arity(function: Callable[..., Any]) -> int:
    try:
        inspect.signature(function).bind(None, None, None)
    except TypeError:
        pass
    except ValueError:
        return 2
    else:
        return 3
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        raise TypeError("reward_fn takes neither (problem, solution) nor (problem, solution, context)") from None
    return 2


def _result(said: Any) -> RewardResult:
    try:
        number = None if said is None else float(said)
    except (TypeError, ValueError):
        return RewardResult(score=None, valid=False, note=f"reward_fn returned {str(said)[:60]!r}, which is no number")
    if number is None or not math.isfinite(number):
        return RewardResult(score=None, valid=False, note=f"reward_fn returned {said}")
    return RewardResult(score=number)
