"""The frozen models of a run as running engines, which a group starts, puts to sleep and wakes, and keeps alive.

One decision: the group knows its engines by the names of their models. `FrozenModel.required` and
`classmate_failure_policy` decide what happens to an engine that cannot be kept alive.

    >>> group = create_classmate_workers(config, reward_config)
    >>> group.heal()
    >>> group.excluded
    frozenset()
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import ray
from omegaconf import DictConfig

from verl.classmate.config import ClassmateRewardModelConfig
from verl.classmate.errors import ClassmateEngineError, ConfigError
from verl.classmate.frozen import FrozenModel, frozen_classmates, frozen_models, frozen_readers
from verl.classmate.record import RowRecord
from verl.utils.device import get_device_name
from verl.utils.ray_utils import auto_await
from verl.workers.classmates.engines import context_length
from verl.workers.classmates.members import RESTART_TIMEOUT_S, Failure, Member, last_line
from verl.workers.classmates.placement import (
    Engine,
    assign_gpus,
    engines,
    resolved_engine,
    resolved_schedule,
    start_waves,
)
from verl.workers.classmates.remote import RemoteWatch
from verl.workers.classmates.start import EngineStarter, trainer_pool
from verl.workers.engine_health import why_it_hangs


class ClassmateGroup:
    """All frozen models of a run: placed, put to sleep and woken with the policy, watched, restarted or excluded."""

    def __init__(
        self,
        config: DictConfig,
        reward_config: ClassmateRewardModelConfig,
        *,
        on_event: Callable[[str], None] = print,
        models: Sequence[FrozenModel] | None = None,
    ) -> None:
        """Starts nothing.

        Args:
            config: the whole resolved config.
            reward_config: its typed `reward_model` node.
            on_event: gets one line per change of state of a classmate.
            models: the frozen models of the run; None: those of `reward_config`.
        """
        self._reward_config = reward_config
        self._on_event = on_event
        self._device = get_device_name()
        self._models = frozen_models(reward_config) if models is None else tuple(models)
        self._classmates, self._readers = frozen_classmates(reward_config), frozen_readers(reward_config)
        self._members = [self._member(engine) for engine in engines(self._models)]
        self._pooled = [member for member in self._members if member.pooled]
        self._sleepers = [member for member in self._members if member.sleeps]
        self._starter = EngineStarter(config, reward_config, device=self._device)
        # Servers of unseen readers are left alone in training: each request in validation tells by itself what failed.
        self._remotes = RemoteWatch(
            {m: one.model for m, one in enumerate(self._classmates) if resolved_engine(one) == "openai"},
            reward_config.classmate_cot_reward_configs.host_classmate_name_to_url_json_fn,
            called=reward_config.readers_called,
            on_event=on_event,
        )
        self._excluded_remotes: set[int] = set()
        self.max_model_len = context_length(config, reward_config)
        self.schedule = resolved_schedule(config, reward_config)
        """`streamed` or `batched`."""

    @classmethod
    def of_run(
        cls, config: DictConfig, reward_config: ClassmateRewardModelConfig, *, on_event: Callable[[str], None]
    ) -> "ClassmateGroup | None":
        """The group of a trainer, whose unplaced engines have begun to load; None where a run has no frozen models.

        Args:
            config: the whole resolved config.
            reward_config: its typed `reward_model` node.
            on_event: gets one line per change of state of a classmate.
        """
        if not frozen_models(reward_config):
            return None
        group = cls(config, reward_config, on_event=on_event)
        group.start_unplaced()
        return group

    def _member(self, engine: Engine) -> Member:
        pooled = engine.in_policy_pool(self._device)
        sleeps = pooled and self._device == "cuda" and self._reward_config.classmate_free_cache_engine
        return Member(engine=engine, pooled=pooled, sleeps=sleeps)

    @property
    def excluded(self) -> frozenset[int]:
        """The numbers (`frozen_readers`) of classmates and unseen readers that were taken out of the run: all engines
        of each are given up."""
        started = {member.name for member in self._members}
        lost = started - {member.name for member in self._members if not member.out}
        ours = {m for m, one in enumerate(self._readers) if one.name in lost}
        return frozenset(ours | self._excluded_remotes)

    @property
    def restarts(self) -> int:
        """Restarts so far, of all engines."""
        return sum(member.restarts for member in self._members)

    def start_unplaced(self) -> None:
        """Starts the engines that need no place in a GPU pool; they load while the caller goes on."""
        for member in self._members:
            if member.engine.backend == "hf" and not member.pooled:
                self._starter.start_hf(member)

    @auto_await
    async def start_placed(self, pool_manager: Any = None) -> None:
        """Starts the engines on vllm and those that share the trainer's pool; returns when they serve.

        Args:
            pool_manager: upstream's `ResourcePoolManager` of the trainer; not needed when no engine shares its pool.

        Raises:
            ClassmateEngineError: naming the classmate that did not start.
        """
        if self._pooled:
            pool = self._starter.pool = trainer_pool(pool_manager)
            blocks = assign_gpus([member.engine for member in self._pooled], pool.world_size)
            for member, block in zip(self._pooled, blocks, strict=True):
                member.gpus = block
        alone = [member for member in self._members if member.engine.dedicated and member.engine.backend == "vllm"]
        await asyncio.gather(self._start_pooled(), *(self._starter.start(member) for member in alone))

    async def _start_pooled(self) -> None:
        # One after the other on each GPU: an engine measures how much of it is free while it starts.
        for wave in start_waves([member.gpus for member in self._pooled]):
            await asyncio.gather(*(self._start_and_sleep(self._pooled[place]) for place in wave))

    async def _start_and_sleep(self, member: Member) -> None:
        await self._starter.start(member)
        await self._sleep_in_turn(member)

    async def _sleep_in_turn(self, member: Member) -> None:
        """An engine that is woken by `awake` only sleeps from its start on."""
        if self._waits_its_turn(member):
            await self._switch([member], "sleep")

    def _waits_its_turn(self, member: Member) -> bool:
        """Whether an engine is awake only while its model is asked: with the schedule `batched` each that shares the
        policy's GPU, and in any case those that are asked in validation only."""
        return member.sleeps and (self.schedule == "batched" or member.engine.frozen.validation_only)

    def wait_until_ready(self) -> None:
        """Blocks until every engine has loaded its model.

        Raises:
            ClassmateEngineError: naming the classmate that did not start.
        """
        for member in self._members:
            if member.engine.backend == "hf":
                with member.starting():
                    auto_await(self._starter.until_serving)(member)

    def heal(self) -> None:
        """Finds engines that died or hang and restarts, excludes or raises by `classmate_failure_policy`.

        To be called while the policy's engines sleep: a restarted engine needs its share of a GPU's memory at once.

        Raises:
            ClassmateEngineError: with the policy `raise`.
        """
        self._heal_remotes()
        living = [member for member in self._members if not member.out]
        pings = {i: member.handle.ping.remote() for i, member in enumerate(living) if member.failure is None}
        if pings:
            ray.wait(list(pings.values()), num_returns=len(pings), timeout=self._ping_timeout)
        failures = [member.failure or self._failure_of(pings[i]) for i, member in enumerate(living)]
        for member, failure in zip(living, failures, strict=True):
            if failure is not None:
                self._react(member, failure)

    @property
    def _ping_timeout(self) -> float:
        return self._reward_config.classmate_ping_timeout

    def _failure_of(self, ping: Any) -> Failure | None:
        """Why an engine is of no use, by its answer to a ping, which has had its time; None if it serves."""
        try:
            reason = why_it_hangs(ray.get(ping, timeout=0))
        except ray.exceptions.GetTimeoutError:
            reason = f"no answer to a ping within {self._ping_timeout:g} s"
        except ray.exceptions.RayError as error:
            return Failure(what="died", reason=last_line(error))
        return None if reason is None else Failure(what="hangs", reason=reason)

    def heed(self, rows: Sequence[RowRecord]) -> None:
        """Learns from a step's rows which remote classmates answer no requests; `heal` reacts to it.

        Only the processes that ask them can know. Engines of the run count their unanswered requests themselves.
        """
        self._remotes.heed(rows)

    def _heal_remotes(self) -> None:
        """Only its owner restarts a server: with the policy `restart`, its rows have no score until it is back."""
        for index, reason in self._remotes.check(without=self.excluded).items():
            label = f"{self._classmates[index].label} ({self._classmates[index].model})"
            if self._reward_config.classmate_failure_policy == "raise":
                raise ClassmateEngineError(f"{label} is down: it {reason}")
            if self._reward_config.classmate_failure_policy == "exclude":
                self._excluded_remotes.add(index)
                self._on_event(f"{label} is excluded from the rest of the run")

    def _react(self, member: Member, failure: Failure) -> None:
        label = f"{member.engine.label} {failure.what}"
        policy, limit = self._reward_config.classmate_failure_policy, self._reward_config.classmate_max_restarts
        if policy == "raise" and not member.engine.frozen.validation_only:
            raise ClassmateEngineError(f"{label}: {failure.reason}")
        member.release()
        if policy == "restart" and member.restarts < limit:
            member.restarts += 1
            self._on_event(f"{label}; restart {member.restarts} of {limit} ({failure.reason})")
            try:
                self._restart(member)
            except ClassmateEngineError as error:
                self._react(member, Failure(what="died", reason=str(error)))
            return
        member.give_back()
        member.out = True
        left = sum(not other.out for other in self._members if other.name == member.name)
        if left:
            self._on_event(f"{label} and is given up; {left} of its engines go on ({failure.reason})")
        elif member.engine.frozen.required:
            raise ClassmateEngineError(f"{label}, and without it no row has a score: {failure.reason}")
        else:
            self._on_event(f"{label} and is excluded from the rest of the run ({failure.reason})")

    def _restart(self, member: Member) -> None:
        async def restart() -> None:
            with member.starting():
                async with asyncio.timeout(RESTART_TIMEOUT_S):
                    await self._starter.start(member)
                    # Whoever asks next must not take its loading for a hang.
                    if member.engine.backend == "hf":
                        await self._starter.until_serving(member)
            member.failure = None
            await self._sleep_in_turn(member)

        auto_await(restart)()

    @auto_await
    async def sleep(self) -> None:
        """Frees the GPU memory of the engines that share the trainer's GPUs; nothing on the CPU.

        Those that wake in `awake` only sleep already: all with the schedule `batched`, else those that are asked in
        validation only.
        """
        await self._switch([member for member in self._sleepers if not self._waits_its_turn(member)], "sleep")

    @auto_await
    async def wake_up(self) -> None:
        """Undoes `sleep`."""
        await self._switch([member for member in self._sleepers if not self._waits_its_turn(member)], "wake_up")

    @contextlib.asynccontextmanager
    async def awake(self, model: str) -> AsyncIterator[None]:
        """Keeps the engines of one frozen model awake in the block, and puts them to sleep after it in any case.

        It is for the schedule `batched` and for models that are asked in validation only, while the policy sleeps. For
        all other engines, and for those that never sleep, it does nothing.

        Args:
            model: its name.
        """
        assert any(one.name == model for one in self._models), f"{model} is a frozen model of the run"
        members = [member for member in self._sleepers if self._waits_its_turn(member) and member.name == model]
        try:
            await self._switch(members, "wake_up")
            yield
        finally:
            await self._switch(members, "sleep")

    async def _switch(self, members: Sequence[Member], method: str) -> None:
        """`sleep` or `wake_up` of engines. One that died is left to `heal`; one that hangs is killed at once, since it
        would keep the memory that others need now, and is left to `heal` too."""

        async def one(member: Member) -> None:
            limit, seconds = self._ping_timeout, self._reward_config.classmate_sleep_timeout
            reason = f"no answer to a ping within {limit:g} s"
            try:
                async with asyncio.timeout(limit):
                    unanswered = await member.handle.ping.remote()
                seen = why_it_hangs(unanswered)
                reason = seen or f"{'not asleep' if method == 'sleep' else 'not awake'} within {seconds:g} s"
                if seen is None:
                    async with asyncio.timeout(seconds):
                        await switch(member)
                    return
            except TimeoutError:
                pass
            except ray.exceptions.RayError as error:
                member.failure = Failure(what="died", reason=last_line(error))
                return
            member.failure = Failure(what="hangs", reason=reason)
            member.release()

        async def switch(member: Member) -> None:
            if member.replica is not None:
                await getattr(member.replica, method)()
                return
            if method == "sleep":
                await member.handle.wait_for_requests_to_drain.remote()
            await getattr(member.handle, method).remote()

        await asyncio.gather(*(one(member) for member in members if not member.out and member.failure is None))

    def shutdown(self) -> None:
        """Ends the engines."""
        for member in self._members:
            if (member.handle is not None or member.replica is not None) and not member.out:
                member.release()
                member.give_back()


def create_classmate_workers(
    config: DictConfig,
    reward_config: ClassmateRewardModelConfig,
    *,
    on_event: Callable[[str], None] = print,
    models: Sequence[FrozenModel] | None = None,
) -> ClassmateGroup:
    """Starts the group of a run whose frozen models need no place in the trainer's pool, and waits for it.

    Args:
        config: the whole resolved config.
        reward_config: its typed `reward_model` node.
        on_event: gets one line per change of state of a classmate.
        models: the frozen models of the run; None: those of `reward_config`.

    Raises:
        ConfigError: when a classmate needs that pool, which only a trainer has.
        ClassmateEngineError: when an engine does not start.
    """
    models = frozen_models(reward_config) if models is None else models
    if any(engine.in_policy_pool(get_device_name()) for engine in engines(models)):
        raise ConfigError(
            "only a trainer can start classmates that share its GPUs; write placement=dedicated, or without a GPU "
            "backend=hf"
        )
    group = ClassmateGroup(config, reward_config, on_event=on_event, models=models)
    try:
        group.start_unplaced()
        group.start_placed()
        group.wait_until_ready()
    except ClassmateEngineError:
        group.shutdown()
        raise
    return group
