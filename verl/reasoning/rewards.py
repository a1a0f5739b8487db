"""Rewards of the pipeline: whatever a user writes becomes one async call with one kind of result.

One decision: a reward never raises and is never guessed. One that fails, hangs or says None gives a result that is not
`valid`: it stays out of every statistic, and is counted.

    >>> reward = as_reward(lambda problem, solution: float("7" in solution))
    >>> result = await score(reward, problem, solution, RewardContext())
    >>> result.score, result.valid
    (1.0, True)
"""

import asyncio
import bdb
import contextlib
import contextvars
import inspect
import math
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from verl.reasoning.records import Problem, Solution

TIMEOUT_S = 60.0
"""Longest time of one call, from its start."""
MOST_AT_ONCE = 64
"""Calls of one event loop at the same time; others wait for their turn, which counts as no time."""


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
    """In 0..1, unless the reward has another `reward_range`; None where it is not valid."""
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

    It may be async, and may return a number, a bool (which also says whether the solution is correct), a mapping with
    `score`, or a `RewardResult`. One that is not async is called in a thread of its own: a call that hangs is given up
    after `score`'s time limit, and neither keeps other calls waiting nor the process from ending.
    It is taken for the second kind if its third argument has no default, or is named `ctx` or `context`.

    Raises:
        TypeError: it takes neither two nor three arguments.
    """
    if getattr(function, "is_reward", False):
        return function
    if not callable(function):
        raise TypeError(f"reward_fn is a {type(function).__name__}; write a function of (problem, solution)")
    return FunctionReward(function, native=_is_native(function))


class FunctionReward:
    """A user's function as a reward; can be pickled if the function can."""

    is_reward = True

    def __init__(self, function: Callable[..., Any], *, native: bool) -> None:
        """`native`: it takes records and a context, not texts."""
        self.function, self.native = function, native

    @property
    def reward_range(self) -> tuple[float | None, float | None]:
        """Lowest and highest score, by the function's own attribute of this name; else 0 and 1."""
        return getattr(self.function, "reward_range", (0.0, 1.0))

    async def __call__(self, problem: Problem, solution: Solution, context: RewardContext) -> RewardResult:
        """What the function says."""
        given = (problem, solution, context) if self.native else (problem.problem, solution.text)
        is_async = any(map(inspect.iscoroutinefunction, (self.function, type(self.function).__call__)))
        said = self.function(*given) if is_async else await in_a_thread(self.function, given)
        return as_result(await said if inspect.isawaitable(said) else said)


async def score(
    reward: Reward, problem: Problem, solution: Solution, context: RewardContext, *, timeout_s: float = TIMEOUT_S
) -> RewardResult:
    """What the reward says; what goes wrong in it is a result that is not valid."""
    limit = asyncio.timeout(None)
    try:
        async with _turn(), limit:
            limit.reschedule(asyncio.get_running_loop().time() + timeout_s)
            return _checked(await reward(problem, solution, context))
    except bdb.BdbQuit:
        # `q` at a breakpoint in a reward ends the program, as it does anywhere else.
        raise
    except (Exception, SystemExit) as error:  # A user's function may raise anything.
        if limit.expired():
            return failed(f"no score within {timeout_s:g} s")
        return failed(f"{type(error).__name__}: {error}")


async def score_together(
    reward: Reward, pairs: Sequence[tuple[Problem, Solution]], context: RewardContext, *, timeout_s: float = TIMEOUT_S
) -> list[RewardResult]:
    """What the reward says of many, in their order."""
    calls = (score(reward, *pair, context, timeout_s=timeout_s) for pair in pairs)
    return list(await asyncio.gather(*calls))


def failed(note: str) -> RewardResult:
    """No score, and why."""
    return RewardResult(score=None, valid=False, note=" ".join(note.split())[:200])


def as_result(said: Any) -> RewardResult:
    """A result from what a user's function returned."""
    if isinstance(said, RewardResult):
        return said
    parts: dict[str, float] = {}
    if isinstance(said, Mapping):
        if "score" not in said:
            return failed(f"reward_fn returned a mapping without score: {str(said)[:60]}")
        numbers = {str(key): value for key, value in said.items() if isinstance(value, int | float | np.number)}
        parts = {key: float(value) for key, value in numbers.items() if key != "score"}
        said = said["score"]
    try:
        number = None if said is None else float(said)
    except (TypeError, ValueError):
        return failed(f"reward_fn returned {str(said)[:60]!r}, which is no number")
    correct = bool(said) if isinstance(said, bool | np.bool_) else None
    return _checked(RewardResult(score=number, components=parts, correct=correct))


def _checked(result: RewardResult) -> RewardResult:
    """A result that is not valid has no score, and the other way round."""
    if result.valid and (result.score is None or not math.isfinite(result.score)):
        note = result.note or f"reward_fn returned {result.score}"
        return replace(result, score=None, valid=False, note=note)
    return result if result.valid else replace(result, score=None)


def _is_native(function: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(function)
    except ValueError:
        return False
    taken = [
        one for one in signature.parameters.values() if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    third = taken[2] if len(taken) > 2 else None
    native = third is not None and (third.default is third.empty or third.name in ("ctx", "context"))
    try:
        signature.bind(*[None] * (3 if native else 2))
    except TypeError:
        raise TypeError("reward_fn takes neither (problem, solution) nor (problem, solution, context)") from None
    return native


async def in_a_thread(function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """As `asyncio.to_thread`, in a thread of its own that nobody waits for at the end of the process."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    said: list[Any] = []
    inside = contextvars.copy_context()

    def work() -> None:
        error = None
        try:
            said.append(inside.run(function, *given))
        except BaseException as raised:
            error = raised
        said.append(error)
        # The loop may have ended meanwhile, after the call was given up.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=work, name="reward", daemon=True).start()
    await done.wait()
    if said[-1] is None:
        return said[0]
    if isinstance(said[-1], Exception | SystemExit) and not isinstance(said[-1], StopIteration):
        raise said[-1]
    raise RuntimeError(f"{type(said[-1]).__name__}: {said[-1]}") from said[-1]


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
_has_turn = contextvars.ContextVar("_has_turn", default=False)


@contextlib.asynccontextmanager
async def _turn() -> Any:
    """Waits until few enough calls run; a call within a call has its turn already."""
    if _has_turn.get():
        yield
        return
    loop = asyncio.get_running_loop()
    async with _turns.setdefault(loop, asyncio.Semaphore(MOST_AT_ONCE)):
        token = _has_turn.set(True)
        try:
            yield
        finally:
            _has_turn.reset(token)
