"""Who sleeps when, on a GPU: its engines are played, since what counts is when each is told to sleep and to wake."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import ray
from omegaconf import OmegaConf

from verl.classmate.config import from_mapping
from verl.classmate.errors import ClassmateEngineError
from verl.workers.classmates import group as classmate_group
from verl.workers.classmates.group import ClassmateGroup
from verl.workers.classmates.members import Failure


class Method:
    """A method of an actor."""

    def __init__(self, call: Callable[[], Awaitable[Any]]) -> None:
        self.remote = call


class Engine:
    """What the group sees of upstream's replica, and of the actor behind it."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.dead = False
        self.killed = False
        self.slow: set[str] = set()
        """Calls that never end."""
        self.unanswered = 0
        """What it says to a ping."""
        self.servers, self.workers = (self,), ()
        self.ping = Method(self._ping)

    async def sleep(self) -> None:
        await self._called("sleep")

    async def wake_up(self) -> None:
        await self._called("wake_up")

    async def _ping(self) -> int:
        if self.dead:
            raise ray.exceptions.ActorDiedError()
        if "ping" in self.slow:
            await asyncio.Event().wait()
        return self.unanswered

    async def _called(self, method: str) -> None:
        if method in self.slow:
            await asyncio.Event().wait()
        self.calls.append(method)


def make(monkeypatch: pytest.MonkeyPatch, schedule: str, **keys: Any) -> tuple[ClassmateGroup, list[Engine]]:
    """A group of two colocated classmates, the first on two engines, and a dedicated one."""
    monkeypatch.setattr(classmate_group, "get_device_name", lambda: "cuda")
    config = OmegaConf.create(
        {
            "data": {"max_prompt_length": 32, "max_response_length": 16},
            "trainer": {"device": "cuda", "n_gpus_per_node": 1, "nnodes": 1, "deterministic": False},
            "actor_rollout_ref": {"rollout": {"name": "vllm", "gpu_memory_utilization": 0.4}},
        }
    )
    specs = [{"model": "a", "replicas": 2}, {"model": "b"}, {"model": "c", "placement": "dedicated"}]
    reward = from_mapping(
        {
            "classmates": [{"backend": "vllm", "gpu_memory_utilization": 0.2, **spec} for spec in specs],
            "classmate_schedule": schedule,
            **keys,
        }
    )
    group = ClassmateGroup(config, reward)
    engines = [Engine() for _ in group._members]
    for member, engine in zip(group._members, engines, strict=True):
        member.replica = member.handle = engine
    monkeypatch.setattr(ray, "kill", lambda engine: setattr(engine, "killed", True))
    return group, engines


def calls(engines: list[Engine]) -> list[list[str]]:
    return [engine.calls for engine in engines]


def test_streamed_all_colocated_sleep_and_wake_with_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    group, engines = make(monkeypatch, "streamed")
    group.sleep()
    assert calls(engines) == [["sleep"]] * 3 + [[]]
    group.wake_up()
    assert calls(engines) == [["sleep", "wake_up"]] * 3 + [[]]

    async def ask() -> None:
        async with group.awake("classmate/0"):
            assert calls(engines) == [["sleep", "wake_up"]] * 3 + [[]]

    asyncio.run(ask())
    assert calls(engines) == [["sleep", "wake_up"]] * 3 + [[]]


def test_batched_classmates_wake_in_turn_and_sleep_on_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group, engines = make(monkeypatch, "batched")
    group.sleep()
    group.wake_up()
    assert calls(engines) == [[], [], [], []], "they sleep from their start on"

    async def ask(classmate: int) -> None:
        async with group.awake(f"classmate/{classmate}"):
            expected = [["wake_up"] if classmate == owner else [] for owner in (0, 0, 1)]
            assert calls(engines) == [*expected, []]
            raise KeyError("an error while it is asked")

    with pytest.raises(KeyError):
        asyncio.run(ask(0))
    assert calls(engines) == [["wake_up", "sleep"], ["wake_up", "sleep"], [], []]
    for engine in engines:
        engine.calls.clear()
    with pytest.raises(KeyError):
        asyncio.run(ask(1))
    assert calls(engines) == [[], [], ["wake_up", "sleep"], []]


def test_an_engine_that_has_died_is_left_to_heal(monkeypatch: pytest.MonkeyPatch) -> None:
    group, engines = make(monkeypatch, "streamed")
    engines[0].dead = True
    group.sleep()
    assert calls(engines) == [[], ["sleep"], ["sleep"], []]


@pytest.mark.parametrize(
    ("hang", "reason"),
    [
        ({"slow": {"ping"}}, "no answer to a ping within 0.1 s"),
        ({"unanswered": 3}, "it let 3 requests in a row run out of time"),
        ({"slow": {"sleep"}}, "not asleep within 0.3 s"),
        ({"slow": {"wake_up"}}, "not awake within 0.3 s"),
    ],
)
@pytest.mark.parametrize("schedule", ["streamed", "batched"])
def test_a_hanging_one_holds_nobody_up_and_frees_its_memory(
    monkeypatch: pytest.MonkeyPatch, schedule: str, hang: dict[str, Any], reason: str
) -> None:
    group, engines = make(monkeypatch, schedule, classmate_ping_timeout=0.1, classmate_sleep_timeout=0.3)
    for name, value in hang.items():
        setattr(engines[1], name, value)

    async def ask() -> None:
        for classmate in (0, 1):
            async with group.awake(f"classmate/{classmate}"):
                pass

    if schedule == "streamed":
        group.sleep()
        group.wake_up()
    else:
        asyncio.run(ask())
    assert [engine.killed for engine in engines] == [False, True, False, False]
    others = ["sleep", "wake_up"] if schedule == "streamed" else ["wake_up", "sleep"]
    assert calls([engines[0], *engines[2:]]) == [others, others, []]
    failure = group._members[1].failure
    assert failure is not None
    assert (failure.what, failure.reason) == ("hangs", reason)
    before = list(engines[1].calls)
    group.sleep()
    group.wake_up()
    assert engines[1].calls == before, "it is left to heal"


UNSEEN = {"model": "u", "backend": "vllm", "gpu_memory_utilization": 0.2}


@pytest.mark.parametrize("schedule", ["streamed", "batched"])
def test_readers_in_validation_only_wake_for_their_turn(monkeypatch: pytest.MonkeyPatch, schedule: str) -> None:
    group, (*classmates, unseen) = make(monkeypatch, schedule, evaluation_classmates=[UNSEEN])
    asyncio.run(group._sleep_in_turn(group._members[-1]))
    assert unseen.calls == ["sleep"], "from its start on"
    group.sleep()
    group.wake_up()
    assert unseen.calls == ["sleep"], "the steps of training leave it alone"
    before = calls(classmates)

    async def ask() -> None:
        async with group.awake("unseen/0"):
            assert unseen.calls == ["sleep", "wake_up"]

    asyncio.run(ask())
    assert unseen.calls == ["sleep", "wake_up", "sleep"]
    assert calls(classmates) == before


@pytest.mark.parametrize("policy", ["exclude", "raise"])
def test_the_loss_of_an_unseen_reader_never_ends_a_run(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    given = {"evaluation_classmates": [UNSEEN], "classmate_failure_policy": policy}
    group, _ = make(monkeypatch, "streamed", **given)
    group._react(group._members[-1], Failure(what="died", reason="no reason"))
    assert group.excluded == {3}, "its number among all readers"
    if policy == "raise":
        with pytest.raises(ClassmateEngineError):
            group._react(group._members[0], Failure(what="died", reason="no reason"))


def test_memory_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    group, engines = make(monkeypatch, "streamed", classmate_free_cache_engine=False)
    group.sleep()
    group.wake_up()
    assert calls(engines) == [[], [], [], []]
