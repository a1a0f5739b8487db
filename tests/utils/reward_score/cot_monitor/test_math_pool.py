"""Workers of math-verify: one that hangs or dies costs nobody a score, and none outlives its process."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from verl.utils.reward_score.cot_monitor import _math_pool, get_verifier
from verl.utils.reward_score.cot_monitor._math_pool import WORKERS, MathPool

SCRIPT = Path(_math_pool.__file__)
HANGS = "9^{9^{9^{9}}}"


@pytest.fixture
def pool() -> Iterator[MathPool]:
    made = MathPool()
    yield made
    made.close()
    assert made.pids == []


def alive(pid: int) -> bool:
    """Whether it runs: neither gone nor dead and not yet waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "never happened"
        time.sleep(0.02)


def test_a_hanging_comparison_has_no_result_and_the_next_one_has(
    pool: MathPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_math_pool, "CPU_SECONDS", 2.0)
    assert pool.same_value("x+1", "1+x") is True
    (first,) = pool.pids
    assert pool.same_value(HANGS, "1") is None
    assert pool.same_value("x+1", "1+x") is True
    assert pool.pids != [first]
    assert not alive(first)


def test_a_hanging_answer_is_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_math_pool, "CPU_SECONDS", 2.0)
    for name in ("openai/gsm8k", "hendrycks_math"):
        verifier = get_verifier(name)
        assert verifier.blocking, "the reward manager must not wait for it"
        assert verifier.compute_score("\\boxed{(x+1)^{99999}}", "1") is None
        assert verifier.compute_score(f"\\boxed{{{HANGS}}}", "1") == 0.0, "what it is can be seen without trying"


def test_a_worker_that_was_killed_is_replaced(pool: MathPool) -> None:
    assert pool.same_value("x+1", "1+x") is True
    (first,) = pool.pids
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not alive(first))
    assert pool.same_value("2x", "x+x") is True
    assert len(pool.pids) == 1


def test_a_worker_that_does_not_answer_is_given_up(pool: MathPool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pool.same_value("x+1", "1+x") is True
    (first,) = pool.pids
    os.kill(first, signal.SIGSTOP)
    monkeypatch.setattr(_math_pool, "WALL_SECONDS", 0.2)
    assert pool.same_value("2x", "x+x") is None
    assert not alive(first)


def test_many_threads_get_their_own_answers_from_few_workers(pool: MathPool) -> None:
    pairs = [(f"{i}x + {i % 7}", f"{i % 7} + {i + (i % 3 == 0)}x") for i in range(60)]
    with ThreadPoolExecutor(12) as threads:
        same = list(threads.map(lambda pair: pool.same_value(*pair), pairs))
    assert same == [i % 3 != 0 for i in range(60)]
    assert 1 <= len(pool.pids) <= WORKERS


def test_a_worker_is_small(pool: MathPool) -> None:
    assert pool.same_value("x+1", "1+x") is True
    loaded = Path(f"/proc/{pool.pids[0]}/maps").read_text()
    assert "sympy" in loaded or "python" in loaded
    assert "torch" not in loaded
    assert "numpy" not in loaded


def test_workers_that_cannot_start_are_an_error_and_no_score(pool: MathPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_math_pool, "_SCRIPT", Path("/nonexistent/worker.py"))
    with pytest.raises(RuntimeError, match="does not start"):
        pool.same_value("x+1", "1+x")
    assert pool.pids == []


PARENT = """
    import importlib.util, os, sys, threading
    spec = importlib.util.spec_from_file_location("pool", sys.argv[1])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.same_value("x+1", "1+x") is True
    print(*module.pool().pids, flush=True)
    {then}
"""


def parent(then: str) -> tuple[subprocess.Popen, int]:
    """A process with one worker, whose id it printed, and which then does something."""
    code = textwrap.dedent(PARENT).format(then=then)
    process = subprocess.Popen([sys.executable, "-c", code, str(SCRIPT)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


@pytest.mark.parametrize(
    "then",
    ["pass", "raise KeyboardInterrupt", "os.kill(os.getpid(), 9)"],
)
def test_workers_end_with_their_process(then: str) -> None:
    process, worker = parent(then)
    process.wait(60)
    wait_until(lambda: not alive(worker))


def test_a_hanging_worker_ends_although_nobody_is_left_to_end_it() -> None:
    """Its own timer does it, within `CPU_SECONDS`, also inside of one multiplication of large numbers."""
    ask = f"module.CPU_SECONDS = 5; threading.Timer(0.5, os._exit, [0]).start(); module.same_value({HANGS!r}, '1')"
    process, worker = parent(ask)
    process.wait(60)
    assert alive(worker), "this shows nothing unless it hangs when its parent ends"
    wait_until(lambda: not alive(worker))


def test_a_forked_copy_has_workers_of_its_own() -> None:
    then = "mine = module.pool().pids; child = os.fork(); same = module.same_value('2x', 'x+x')"
    check = "assert same is True; print(mine == module.pool().pids, flush=True); child and os.waitpid(child, 0)"
    process, worker = parent(f"{then}; {check}")
    assert process.stdout is not None
    assert sorted(process.stdout.read().split()) == ["False", "True"]
    assert process.wait(60) == 0
    wait_until(lambda: not alive(worker))


@pytest.mark.long
def test_workers_end_with_a_ray_actor() -> None:
    import ray

    class Scorer:
        def score(self) -> tuple[bool | None, list[int]]:
            from concurrent.futures import ThreadPoolExecutor

            from verl.utils.reward_score.cot_monitor._math_pool import pool

            with ThreadPoolExecutor(1) as threads:
                return threads.submit(pool().same_value, "2x", "x+x").result(), pool().pids

    ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR")
    try:
        actor = ray.remote(Scorer).remote()
        same, (worker,) = ray.get(actor.score.remote())
        assert same is True
        assert alive(worker)
        ray.kill(actor)
        wait_until(lambda: not alive(worker))
    finally:
        ray.shutdown()
