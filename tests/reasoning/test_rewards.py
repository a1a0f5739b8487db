"""Rewards: whatever a user's function does becomes a result, and a hanging one keeps nobody waiting."""

import asyncio
import functools
import pickle
import threading
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl.reasoning.records import Problem, Solution, as_problem
from verl.reasoning.rewards import RewardContext, RewardResult, as_reward, score

PROBLEM = as_problem({"problem": "What is 3 + 4?", "answer": "7"})
SOLUTION = Solution(problem_id=PROBLEM.id, text="It is 7.")


def ask(function: Any, timeout_s: float = 10.0) -> RewardResult:
    return asyncio.run(score(as_reward(function), PROBLEM, SOLUTION, RewardContext(), timeout_s=timeout_s))


def seven(problem: str, solution: str) -> float:
    return float("7" in solution)


class Callable7:
    async def __call__(self, problem: str, solution: str) -> bool:
        return "7" in solution


async def native(problem: Problem, solution: Solution, ctx: RewardContext) -> float:
    return float(problem.answer or 0) / 10


def with_option(problem: str, solution: str, strict: bool = True) -> float:
    return 1.0 if strict is True and isinstance(problem, str) else 0.0


def test_every_form_of_function_is_understood() -> None:
    assert ask(seven) == RewardResult(score=1.0)
    assert ask(Callable7()) == RewardResult(score=1.0, correct=True)
    assert ask(native).score == 0.7
    assert ask(with_option).score == 1.0, "a third argument with a default is not the context"
    assert ask(functools.partial(with_option, strict=True)).score == 1.0
    assert ask(lambda problem, solution: native(PROBLEM, SOLUTION, RewardContext())).score == 0.7
    assert ask(lambda problem, solution: np.float32(0.5)).score == 0.5
    assert ask(lambda problem, solution: {"score": 0.5, "style": 1, "note": "x"}).components == {"style": 1.0}
    assert as_reward(as_reward(seven)) is not None
    for wrong in ("text", lambda: 1.0, lambda a: 1.0):
        with pytest.raises(TypeError, match="reward_fn"):
            as_reward(wrong)  # type: ignore[arg-type]


@given(st.one_of(st.none(), st.text(), st.floats(), st.booleans(), st.lists(st.integers()), st.integers(), st.binary()))
@pytest.mark.guards("failed reward scored 0")
def test_only_a_finite_number_is_a_score(said: Any) -> None:
    result = ask(lambda problem, solution: said)
    try:
        expected = float(said)
    except (TypeError, ValueError):
        expected = float("nan")
    if np.isfinite(expected):
        assert result.valid
        assert result.score == expected
    else:
        assert not result.valid
        assert result.score is None
        assert result.note


@pytest.mark.parametrize(
    "error", [ValueError("no"), SystemExit(3), StopIteration(), TimeoutError("server"), KeyError(1)]
)
@pytest.mark.guards("failed reward scored 0")
def test_what_a_reward_raises_is_no_score(error: BaseException) -> None:
    def raises(problem: str, solution: str) -> float:
        raise error

    async def raises_later(problem: str, solution: str) -> float:
        raise error

    results = [ask(raises)] if isinstance(error, SystemExit | StopIteration) else [ask(raises), ask(raises_later)]
    for result in results:
        assert (result.valid, result.score) == (False, None)
        assert type(error).__name__ in result.note
        assert "\n" not in result.note
        assert "within" not in result.note, "its own TimeoutError is not our limit"


def test_a_result_that_contradicts_itself_is_put_right() -> None:
    assert not ask(lambda problem, solution: RewardResult(score=None)).valid
    assert not ask(lambda problem, solution: RewardResult(score=float("nan"))).valid
    assert ask(lambda problem, solution: RewardResult(score=0.0, valid=False)).score is None


def test_calls_that_hang_keep_no_other_waiting() -> None:
    async def both() -> tuple[list[RewardResult], list[RewardResult]]:
        hangs, fast = as_reward(lambda problem, solution: time.sleep(30)), as_reward(seven)
        stuck = [score(hangs, PROBLEM, SOLUTION, RewardContext(), timeout_s=0.2) for _ in range(100)]
        quick = [score(fast, PROBLEM, SOLUTION, RewardContext(), timeout_s=5) for _ in range(300)]
        found = await asyncio.gather(*stuck, *quick)
        return found[:100], found[100:]

    started = time.monotonic()
    stuck, quick = asyncio.run(both())
    assert time.monotonic() - started < 5
    assert {result.note for result in stuck} == {"no score within 0.2 s"}
    assert {result.score for result in quick} == {1.0}


def test_waiting_for_a_turn_takes_no_time_of_the_call() -> None:
    async def many() -> list[RewardResult]:
        slow = as_reward(lambda problem, solution: time.sleep(0.2) or 1.0)
        return await asyncio.gather(
            *(score(slow, PROBLEM, SOLUTION, RewardContext(), timeout_s=1.0) for _ in range(384))
        )

    assert {result.score for result in asyncio.run(many())} == {1.0}


def test_a_reward_within_a_reward_does_not_wait_for_a_turn() -> None:
    inner = as_reward(seven)

    async def outer(problem: Problem, solution: Solution, ctx: RewardContext) -> RewardResult:
        await asyncio.sleep(0.01)
        return await score(inner, problem, solution, ctx)

    async def many() -> list[RewardResult]:
        calls = (score(as_reward(outer), PROBLEM, SOLUTION, RewardContext(), timeout_s=5) for _ in range(200))
        return await asyncio.gather(*calls)

    assert {result.score for result in asyncio.run(many())} == {1.0}


def test_a_reward_that_hangs_does_not_keep_the_process() -> None:
    goes_on = threading.Event()
    started = time.monotonic()
    assert ask(lambda problem, solution: goes_on.wait(60), timeout_s=0.1).note == "no score within 0.1 s"
    assert time.monotonic() - started < 5, "the loop does not wait for its threads"
    left = [thread for thread in threading.enumerate() if thread.name == "reward" and thread.is_alive()]
    assert left
    assert all(thread.daemon for thread in left), "Python ends without waiting for such"
    goes_on.set()


def test_a_reward_can_be_pickled() -> None:
    again = pickle.loads(pickle.dumps(as_reward(seven)))
    assert ask(again).score == 1.0
