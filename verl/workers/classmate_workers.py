"""Classmates as running things: one engine each, a group that keeps them alive, a client that asks them from anywhere.

Decision: an engine is a *named* Ray actor, and its name follows from the config. Whoever holds the config can ask it, a
restarted engine is found under the same name, and no handle has to travel.

    >>> group = create_classmate_workers(config, reward_config)           # in the trainer
    >>> client = ClassmateClient(reward_config, max_model_len=2048)       # in any worker
    >>> replies = await client.sample(0, prompt_ids, seeds=[11, 12], validate=False)
    >>> replies[0].outcome, replies[0].token_ids
"""

import asyncio
import contextlib
import dataclasses
import os
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal
from uuid import uuid4

import ray
from omegaconf import DictConfig, OmegaConf, open_dict
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from verl.classmate.config import ClassmateRewardModelConfig, ClassmateSpec, JudgeEngineSpec
from verl.classmate.errors import ClassmateEngineError, ConfigError
from verl.classmate.outcome import Outcome
from verl.classmate.record import RowRecord
from verl.classmate.reply import Reply
from verl.classmate.seeds import fresh_engine_seed, sends_seed
from verl.plugin.platform import get_platform
from verl.utils.device import get_device_name
from verl.utils.ray_utils import auto_await
from verl.workers.classmates.engine_health import CONCURRENT_CALLS, Patience, hangs
from verl.workers.classmates.placement import (
    DEDICATED_CPUS,
    POLICY,
    Engine,
    actor_name,
    assign_gpus,
    engines,
    resolved_backend,
    resolved_schedule,
    start_waves,
)
from verl.workers.classmates.remote import RemoteClassmate, RemoteWatch
from verl.workers.rollout.hf_rollout_server.engine import EngineConfig
from verl.workers.rollout.hf_rollout_server.server import HFServer
from verl.workers.rollout.replica import TokenOutput
from verl.workers.scoring_worker import ScoringJudgeWorker

RETRIES = 1
"""Times that a request is sent again after the engine, not the request, failed."""

RETRY_DELAY_S = 0.5
"""Wait before the first retry; doubled for each further one."""

DOWN_S = 10.0
"""For so long the other engines of a classmate are asked before one that has died or hangs, and a hanging one is not
pinged again."""

RESTART_TIMEOUT_S = 1800.0
"""A restarted engine serves within this time, or counts as failed again; large models are loaded in minutes."""

_KILL_TIMEOUT_S = 10.0
"""The operating system ends a killed process within this time; what takes longer is left to it."""


class ClassmateWorker(HFServer):
    """The Ray actor of one classmate on the embedded engine; `sample_cot_continuation` adds S samples in one call."""

    def __init__(self, config: EngineConfig, *, frees_memory: bool = False, patience_s: float | None = None) -> None:
        """Loads the model.

        Args:
            config: the engine.
            frees_memory: whether `sleep` moves the weights to the host's memory.
            patience_s: longest time of a request; None: no limit.
        """
        super().__init__(config, frees_memory=frees_memory)
        self._patience = Patience(patience_s)

    async def generate(self, *args: Any, **kwargs: Any) -> TokenOutput:
        """As `HFServer.generate`; a request whose time is over is aborted.

        Raises:
            TimeoutError: it is over.
        """
        return await self._patience.wait(super().generate(*args, **kwargs))

    async def ping(self) -> int:
        """How many requests in a row ran out of time; a living engine answers."""
        return self._patience.unanswered

    async def sample_cot_continuation(
        self, prompt_ids: list[int], sampling_params: list[dict[str, Any]], request_id: str
    ) -> list[Any]:
        """One upstream `TokenOutput` for each entry of `sampling_params`; all S requests join the same batch."""
        return list(
            await asyncio.gather(
                *(
                    self.generate(prompt_ids, params, f"{request_id}-{sample}")
                    for sample, params in enumerate(sampling_params)
                )
            )
        )


ClassmateCoTWorker = ClassmateWorker
"""The name of the design readme."""


class ClassmateClient:
    """Asks classmates; made once per process. A failure is an outcome, never an exception."""

    def __init__(
        self,
        reward_config: ClassmateRewardModelConfig,
        *,
        max_model_len: int,
        deterministic: bool = False,
        policy: Any = None,
        policy_engine: str = "hf",
    ) -> None:
        """Starts nothing; engines are looked up by name at their first request.

        Args:
            reward_config: the typed `reward_model` node.
            max_model_len: context of every classmate engine, in its own tokens.
            deterministic: every request carries its seed, and alone decides which engine of a classmate gets it, not
                their load.
            policy: upstream's `LLMServerClient` of the rollout, which answers for live self-play.
            policy_engine: its engine.
        """
        self._config = reward_config
        self._models = reward_config.frozen_models
        self._max_model_len = max_model_len
        self._deterministic = deterministic
        self._policy = policy
        self._policy_engine = policy_engine
        self._handles: dict[str, ray.actor.ActorHandle] = {}
        self._load: Counter[str] = Counter()
        self._down_until: dict[str, float] = {}
        self._hanging: dict[str, str] = {}
        self._checks: dict[str, asyncio.Task[None]] = {}
        self._remotes = {
            index: RemoteClassmate(
                spec.model,
                reward_config.classmate_cot_reward_configs.host_classmate_name_to_url_json_fn,
                timeout_s=reward_config.request_timeout("openai"),
            )
            for index, spec in enumerate(reward_config.classmates)
            if resolved_backend(spec) == "openai"
        }

    async def sample(
        self,
        classmate: int,
        prompt_ids: list[int],
        *,
        seeds: Sequence[int],
        validate: bool,
        excluded: frozenset[int] = frozenset(),
        max_new_tokens: int | None = None,
    ) -> list[Reply]:
        """One reply per seed, in order (S of them).

        Args:
            classmate: index m.
            prompt_ids: in the classmate's own tokens.
            seeds: one per sample; sent to engines that are to draw from them (`sends_seed`).
            validate: use the validation's sampling settings.
            excluded: classmates that were taken out of the run.
            max_new_tokens: a tighter limit than that of the settings.
        """
        if classmate in excluded:
            return [Reply(outcome=Outcome.excluded) for _ in seeds]
        settings = self._config.classmate_generation_configs.sampling(validate=validate)
        room = min(max_new_tokens or settings.max_new_tokens, max(1, self._max_model_len - len(prompt_ids)))
        backend = resolved_backend(self._models[classmate])
        seeded = sends_seed(self._policy_engine if backend == POLICY else backend, deterministic=self._deterministic)
        params = [
            {
                "temperature": settings.temperature,
                "top_p": settings.top_p,
                "top_k": settings.top_k,
                "max_tokens": min(settings.max_new_tokens, room),
                **({"seed": seed} if seeded else {}),
            }
            for seed in seeds
        ]
        ask = self._remotes[classmate].complete if classmate in self._remotes else partial(self._one, classmate)
        return list(await asyncio.gather(*(ask(prompt_ids, one) for one in params)))

    async def close(self) -> None:
        """Closes what connections there are."""
        await asyncio.gather(*(remote.close() for remote in self._remotes.values()))

    async def complete(self, model: int, prompt_ids: list[int], params: dict[str, Any]) -> Reply:
        """One answer of an engine of the run, to whatever it is asked.

        Args:
            model: place in `frozen_models`.
            prompt_ids: in the model's own tokens.
            params: sampling parameters under vLLM's names.
        """
        return await self._one(model, prompt_ids, params)

    async def score_tokens(self, model: int, token_ids: list[int]) -> float | Reply:
        """The number that a reward model of the run gives a text, or why there is none."""
        return await self._ask_engines(model, "score", {"prompt_ids": token_ids})

    async def _one(self, model: int, prompt_ids: list[int], params: dict[str, Any]) -> Reply:
        arguments = {"prompt_ids": prompt_ids, "sampling_params": dict(params), "request_id": uuid4().hex}
        output = await self._ask_engines(model, "generate", arguments)
        return output if isinstance(output, Reply) else reply_of(output, max_tokens=params["max_tokens"])

    async def _ask_engines(self, model: int, method: str, arguments: dict[str, Any]) -> Any:
        """What the first engine of a model says that can say something; a `Reply` with the failure if none can."""
        limit = request_timeout(self._config, self._models[model])
        deadline = time.monotonic() + limit
        names = self._engine_names(model)
        untried = list(names)
        for attempt in range(len(names) + RETRIES):
            name = self._choose(untried or names, arguments)
            untried = [other for other in untried if other != name]
            self._load[name] += 1
            try:
                return await self._answer(name, method, arguments, deadline)
            except TimeoutError:
                return Reply(outcome=Outcome.timeout, error=f"no answer within {limit:g} s")
            except EngineHangs as error:
                failure = Reply(outcome=Outcome.timeout, error=f"{name} hangs: {error}")
                if not untried:
                    break
            except (ray.exceptions.RayError, ValueError) as error:
                if isinstance(error, ray.exceptions.RayTaskError) and not _is_dead_engine(error):
                    # The engine lives and refused this request; asking again would change nothing.
                    return Reply(outcome=Outcome.engine_error, error=str(error.cause))
                self._handles.pop(name, None)
                self._down_until[name] = time.monotonic() + DOWN_S
                failure = Reply(outcome=Outcome.engine_error, error=str(error))
            finally:
                self._load[name] -= 1
            if not untried and attempt < len(names) + RETRIES - 1:
                await asyncio.sleep(RETRY_DELAY_S * 2 ** (attempt - len(names) + 1))
        return failure

    async def _answer(self, name: str, method: str, arguments: dict[str, Any], deadline: float) -> Any:
        """What one engine says. While it says nothing it is pinged, so that nobody waits long for one that hangs.

        Raises:
            TimeoutError: nothing before `deadline` (`time.monotonic`).
            EngineHangs: it will say nothing.
        """
        if name in self._hanging:
            await asyncio.shield(self._check(name))
        call = asyncio.ensure_future(self._call(name, method, arguments))
        try:
            while True:
                left = max(0.0, deadline - time.monotonic())
                await asyncio.wait({call}, timeout=min(left, self._config.classmate_ping_timeout / 2))
                if not call.done() and name != POLICY and time.monotonic() < deadline:
                    check = self._check(name)
                    left = max(0.0, deadline - time.monotonic())
                    await asyncio.wait({call, check}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                    if not call.done() and check.done():
                        check.result()
                if call.done():
                    return call.result()
                if time.monotonic() >= deadline:
                    raise TimeoutError
        finally:
            call.cancel()

    def _check(self, name: str) -> "asyncio.Task[None]":
        """Pings an engine, once for all requests that wait for it, and for those that come soon after it hung."""
        task = self._checks.get(name)
        known = name in self._hanging and time.monotonic() < self._down_until[name]
        if task is None or task.get_loop() is not asyncio.get_running_loop() or (task.done() and not known):
            task = self._checks[name] = asyncio.create_task(self._ping(name))
            # Those who asked may have their answers before it is done.
            task.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        return task

    async def _ping(self, name: str) -> None:
        seconds = self._config.classmate_ping_timeout
        try:
            unanswered = await asyncio.wait_for(self._call(name, "ping", {}), seconds)
            reason = why_it_hangs(unanswered)
        except TimeoutError:
            reason = f"no answer to a ping within {seconds:g} s"
        if reason is not None:
            # A restarted engine has the same name and another handle.
            self._handles.pop(name, None)
            self._down_until[name] = time.monotonic() + DOWN_S
            self._hanging[name] = reason
            raise EngineHangs(reason)
        self._hanging.pop(name, None)

    def _engine_names(self, model: int) -> list[str]:
        spec = self._models[model]
        if resolved_backend(spec) == POLICY:
            return [POLICY]
        return [actor_name(model, spec, replica) for replica in range(spec.replicas or 1)]

    def _choose(self, names: list[str], arguments: dict[str, Any]) -> str:
        """The engine with the fewest requests of this process, or in deterministic runs what the request itself
        decides; those that serve before those that died or hang."""
        now = time.monotonic()
        up = [name for name in names if self._down_until.get(name, 0.0) <= now] or names
        if self._deterministic:
            request = (arguments["prompt_ids"], arguments.get("sampling_params"))
            return up[zlib.crc32(repr(request).encode()) % len(up)]
        return min(up, key=self._load.__getitem__)

    async def _call(self, name: str, method: str, arguments: dict[str, Any]) -> Any:
        if name == POLICY:
            if self._policy is None:
                raise ValueError("self_play=live is answered by the engines of a training run only")
            return await getattr(self._policy, method)(**arguments)
        if name not in self._handles:
            self._handles[name] = ray.get_actor(name)
        return await getattr(self._handles[name], method).remote(**arguments)


def reply_of(output: Any, *, max_tokens: int) -> Reply:
    """An engine's `TokenOutput` as a reply; one that was aborted is a failure.

    Upstream's vLLM server calls both an answer that ended and one that was cut "completed". One of `max_tokens` tokens
    counts as cut, though its last token may have ended it.
    """
    if output.stop_reason == "aborted":
        return Reply(outcome=Outcome.engine_error, error="the engine aborted the request")
    reason = output.extra_fields.get("finish_reason")
    if reason is None:
        reason = output.stop_reason
        if reason == "completed":
            reason = "length" if len(output.token_ids) >= max_tokens else "stop"
    return Reply(
        outcome=Outcome.ok,
        token_ids=tuple(output.token_ids),
        finish_reason=reason,
        log_probs=tuple(output.log_probs or ()),
    )


def _is_dead_engine(error: ray.exceptions.RayTaskError) -> bool:
    """vLLM's server survives the process that computes, and says so with an exception of this name."""
    return type(error.cause).__name__ == "EngineDeadError"


class EngineHangs(Exception):
    """An engine lives and will not answer; the text says what was seen."""


def why_it_hangs(unanswered: int) -> str | None:
    """What the answer to a ping says of an engine; None: that it serves."""
    return f"it let {unanswered} requests in a row run out of time" if hangs(unanswered) else None


def request_timeout(reward_config: ClassmateRewardModelConfig, spec: ClassmateSpec) -> float:
    """Longest time of a request to an engine of the run, in seconds, with its retries."""
    if isinstance(spec, JudgeEngineSpec):
        return reward_config.llm_judge_timeout
    return reward_config.request_timeout(resolved_backend(spec))


@dataclass(frozen=True, kw_only=True)
class _Failure:
    """Why an engine is of no use any more."""

    what: Literal["died", "hangs"]
    """As the verb of a sentence about it."""
    reason: str
    """What was seen."""


@dataclass
class _Member:
    """One engine as the group knows it."""

    engine: Engine
    gpus: tuple[int, ...] = ()
    """Bundles of the trainer's pool."""
    handle: Any = None
    replica: Any = None
    """Upstream's replica, with vllm."""
    pool: Any = None
    """Upstream's pool in which it stands, with vllm."""
    processes: Sequence[tuple[str, int, float]] = ()
    """Node, process id and creation time of the engine's process and of those that it has started."""
    failure: _Failure | None = None
    """Found while it was to sleep or wake; `heal` reacts to it."""
    restarts: int = 0
    out: bool = False
    """Given up for the rest of the run."""


class ClassmateGroup:
    """All classmates of a run: placed, put to sleep and woken with the policy, watched, restarted or excluded."""

    def __init__(
        self,
        config: DictConfig,
        reward_config: ClassmateRewardModelConfig,
        *,
        on_event: Callable[[str], None] = print,
    ) -> None:
        """Starts nothing.

        Args:
            config: the whole resolved config.
            reward_config: its typed `reward_model` node.
            on_event: gets one line per change of state of a classmate.
        """
        self._config = config
        self._reward_config = reward_config
        self._on_event = on_event
        self._pool: Any = None
        self._device = get_device_name()
        self._members = [_Member(engine=engine) for engine in engines(reward_config)]
        self._pooled = [member for member in self._members if member.engine.in_policy_pool(self._device)]
        self._sleepers = [
            member for member in self._pooled if self._device == "cuda" and reward_config.classmate_free_cache_engine
        ]
        self._remotes = RemoteWatch(
            {i: spec.model for i, spec in enumerate(reward_config.classmates) if resolved_backend(spec) == "openai"},
            reward_config.classmate_cot_reward_configs.host_classmate_name_to_url_json_fn,
            on_event=on_event,
        )
        self._excluded_remotes: set[int] = set()
        self.max_model_len = context_length(config, reward_config)
        self.schedule = resolved_schedule(config, reward_config)
        """`streamed` or `batched`."""

    @property
    def excluded(self) -> frozenset[int]:
        """Indices of classmates that were taken out of the run: all their engines are given up."""
        ours = {member.engine.classmate for member in self._members}
        living = {member.engine.classmate for member in self._members if not member.out}
        return frozenset((ours - living) | self._excluded_remotes)

    @property
    def restarts(self) -> int:
        """Restarts so far, of all engines."""
        return sum(member.restarts for member in self._members)

    def start_unplaced(self) -> None:
        """Starts the engines that need no place in a GPU pool; they load while the caller goes on."""
        for member in self._members:
            if member.engine.backend == "hf" and member not in self._pooled:
                self._start_hf(member)

    @auto_await
    async def start_placed(self, pool_manager: Any = None) -> None:
        """Starts the engines on vllm and those that share the trainer's pool; returns when they serve.

        Args:
            pool_manager: upstream's `ResourcePoolManager` of the trainer; not needed when no engine shares its pool.

        Raises:
            ClassmateEngineError: naming the classmate that did not start.
        """
        if self._pooled:
            self._pool = trainer_pool(pool_manager)
            blocks = assign_gpus([member.engine for member in self._pooled], self._pool.world_size)
            for member, block in zip(self._pooled, blocks, strict=True):
                member.gpus = block
        alone = [member for member in self._members if member.engine.dedicated and member.engine.backend == "vllm"]
        await asyncio.gather(self._start_pooled(), *(self._start(member) for member in alone))

    async def _start_pooled(self) -> None:
        # One after the other on each GPU: an engine measures how much of it is free while it starts.
        for wave in start_waves([member.gpus for member in self._pooled]):
            await asyncio.gather(*(self._start_and_sleep(self._pooled[place]) for place in wave))

    async def _start_and_sleep(self, member: _Member) -> None:
        await self._start(member)
        await self._sleep_in_turn(member)

    async def _sleep_in_turn(self, member: _Member) -> None:
        """With the schedule `batched` an engine that shares the policy's GPU sleeps from its start on."""
        if self.schedule == "batched" and member in self._sleepers:
            await self._switch([member], "sleep")

    def wait_until_ready(self) -> None:
        """Blocks until every engine has loaded its model.

        Raises:
            ClassmateEngineError: naming the classmate that did not start.
        """
        for member in self._members:
            if member.engine.backend == "hf":
                with _named(member):
                    auto_await(self._until_serving)(member)

    async def _until_serving(self, member: _Member) -> None:
        """Returns when an hf engine has loaded its model."""
        await member.handle.ready.remote()
        member.processes = await member.handle.__ray_call__.remote(_own_processes)

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

    def _failure_of(self, ping: Any) -> _Failure | None:
        """What the answer to a ping says, for which there was time enough."""
        try:
            reason = why_it_hangs(ray.get(ping, timeout=0))
        except ray.exceptions.GetTimeoutError:
            reason = f"no answer to a ping within {self._ping_timeout:g} s"
        except ray.exceptions.RayError as error:
            return _Failure(what="died", reason=_last_line(error))
        return None if reason is None else _Failure(what="hangs", reason=reason)

    def heed(self, rows: Sequence[RowRecord]) -> None:
        """Learns from a step's rows which remote classmates answer no requests; `heal` reacts to it.

        Only those who ask them can know. Engines of the run count for themselves.
        """
        self._remotes.heed(rows)

    def _heal_remotes(self) -> None:
        """A server is its owner's to restart: with the policy `restart`, its rows are lost until it is back."""
        for index, reason in self._remotes.check(without=self.excluded).items():
            label = f"classmate {index} ({self._reward_config.classmates[index].model})"
            if self._reward_config.classmate_failure_policy == "raise":
                raise ClassmateEngineError(f"{label} is down: it {reason}")
            if self._reward_config.classmate_failure_policy == "exclude":
                self._excluded_remotes.add(index)
                self._on_event(f"{label} is excluded from the rest of the run")

    def _react(self, member: _Member, failure: _Failure) -> None:
        label = f"{member.engine.label} {failure.what}"
        policy, limit = self._reward_config.classmate_failure_policy, self._reward_config.classmate_max_restarts
        if policy == "raise":
            raise ClassmateEngineError(f"{label}: {failure.reason}")
        self._release(member)
        if policy == "restart" and member.restarts < limit:
            member.restarts += 1
            self._on_event(f"{label}; restart {member.restarts} of {limit} ({failure.reason})")
            try:
                self._restart(member)
            except ClassmateEngineError as error:
                self._react(member, _Failure(what="died", reason=str(error)))
            return
        self._give_back(member)
        member.out = True
        left = sum(not m.out for m in self._members if m.engine.classmate == member.engine.classmate)
        if left:
            self._on_event(f"{label} and is given up; {left} of its classmate's engines go on ({failure.reason})")
        elif member.engine.judges:
            raise ClassmateEngineError(f"{label}, and without it no row has a score: {failure.reason}")
        else:
            self._on_event(f"{label} and is excluded from the rest of the run ({failure.reason})")

    def _restart(self, member: _Member) -> None:
        async def restart() -> None:
            with _named(member):
                async with asyncio.timeout(RESTART_TIMEOUT_S):
                    await self._start(member)
                    # Whoever asks next must not take its loading for a hang.
                    if member.engine.backend == "hf":
                        await self._until_serving(member)
            member.failure = None
            await self._sleep_in_turn(member)

        auto_await(restart)()

    @auto_await
    async def sleep(self) -> None:
        """Frees the GPU memory of the engines that share the trainer's GPUs; nothing on the CPU.

        With the schedule `batched` they sleep already: they wake in `awake` only.
        """
        if self.schedule == "streamed":
            await self._switch(self._sleepers, "sleep")

    @auto_await
    async def wake_up(self) -> None:
        """Undoes `sleep`."""
        if self.schedule == "streamed":
            await self._switch(self._sleepers, "wake_up")

    @contextlib.asynccontextmanager
    async def awake(self, classmate: int) -> AsyncIterator[None]:
        """The engines of one classmate are awake inside, and asleep again after it, whatever happens in between.

        With the schedule `batched`, and while the policy sleeps; with `streamed`, and for engines that never sleep,
        nothing happens.
        """
        in_turn = self.schedule == "batched"
        members = [m for m in self._sleepers if in_turn and m.engine.classmate == classmate]
        try:
            await self._switch(members, "wake_up")
            yield
        finally:
            await self._switch(members, "sleep")

    async def _switch(self, members: Sequence[_Member], method: str) -> None:
        """`sleep` or `wake_up` of engines. One that died is left to `heal`; one that hangs is killed at once, since it
        would keep the memory that others need now, and is left to `heal` too."""

        async def one(member: _Member) -> None:
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
                member.failure = _Failure(what="died", reason=_last_line(error))
                return
            member.failure = _Failure(what="hangs", reason=reason)
            self._release(member)

        async def switch(member: _Member) -> None:
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
                self._release(member)
                self._give_back(member)

    def _give_back(self, member: _Member) -> None:
        """Frees the GPUs of a dedicated engine that will not start again."""
        if member.engine.dedicated and member.pool is not None:
            for group in member.pool.pgs or ():
                ray.util.remove_placement_group(group)

    def _release(self, member: _Member) -> None:
        """Gives up what is left of an engine, also a second time: Ray keeps a dead actor's name until the actor is
        killed, and vLLM's own processes outlive a killed server, with their memory."""
        actors = [member.handle] if member.replica is None else [*member.replica.servers, *member.replica.workers]
        for actor in actors:
            ray.kill(actor)
        # Ray asks a process to end before it kills it, which takes one that hangs some seconds.
        _end_processes(member.processes)
        member.processes = ()

    async def _start(self, member: _Member) -> None:
        with _named(member):
            if member.engine.backend == "vllm":
                await self._start_vllm(member)
            else:
                self._start_hf(member)
                if member in self._pooled:
                    await self._until_serving(member)

    def _start_hf(self, member: _Member) -> None:
        on_gpu = self._device == "cuda"
        engine = hf_engine_config(self._config, self._reward_config, member.engine.spec)
        if on_gpu and member in self._pooled:
            engine = dataclasses.replace(engine, memory_fraction=member.engine.spec.gpu_memory_utilization)
        cpus = DEDICATED_CPUS if member.engine.dedicated else 1
        if "OMP_NUM_THREADS" not in os.environ:
            engine = dataclasses.replace(engine, num_threads=cpus)
        options: dict[str, Any] = {"num_cpus": cpus}
        if member in self._pooled:
            groups = self._pool.get_placement_groups(device_name=self._device)
            group, bundle = divmod(member.gpus[0], self._pool.store[0])
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                groups[group], placement_group_bundle_index=bundle
            )
            options |= get_platform().ray_resource_options(1 / self._pool.max_colocate_count)
        elif on_gpu:
            options |= get_platform().ray_resource_options(1)
        member.handle = (
            ray.remote(engine_class(member.engine.spec))
            .options(name=member.engine.name, max_concurrency=CONCURRENT_CALLS, **options)
            .remote(
                engine,
                frees_memory=member in self._sleepers,
                patience_s=request_timeout(self._reward_config, member.engine.spec),
            )
        )

    async def _start_vllm(self, member: _Member) -> None:
        from verl.single_controller.ray.base import split_resource_pool
        from verl.workers.classmates.vllm_server import ClassmateVllmReplica

        engine = member.engine
        rollout: Any = vllm_rollout_config(
            self._config, engine.spec, self._reward_config, sleeps=member in self._sleepers
        )
        model = {
            "_target_": "verl.workers.config.HFModelConfig",
            "path": engine.spec.model,
            "trust_remote_code": self._reward_config.classmate_trust_remote_code,
        }
        member.replica = ClassmateVllmReplica(
            replica_rank=engine.replica,
            config=rollout,
            model_config=OmegaConf.create(model),
            gpus_per_node=engine.width if engine.dedicated else self._config.trainer.n_gpus_per_node,
            is_reward_model=True,
            name_suffix=f"classmate{engine.classmate}",
        )
        if engine.dedicated and member.pool is None:
            member.pool = self._own_pool(engine)
        elif not engine.dedicated:
            member.pool = split_resource_pool(self._pool, split_size=engine.width)[member.gpus[0] // engine.width]
        await member.replica.init_colocated(member.pool)
        member.handle = member.replica.server_handle
        await member.handle.set_patience.remote(request_timeout(self._reward_config, engine.spec))
        found = [await server.__ray_call__.remote(_own_processes) for server in member.replica.servers]
        member.processes = [process for processes in found for process in processes]

    def _own_pool(self, engine: Engine) -> Any:
        """GPUs of one node for one dedicated engine, which keeps them over its restarts."""
        from verl.single_controller.ray.base import RayResourcePool

        return RayResourcePool(
            process_on_nodes=[engine.width], max_colocate_count=DEDICATED_CPUS, name_prefix=f"{engine.name}_"
        )


def trainer_pool(pool_manager: Any) -> Any:
    """The pool of the policy, whatever else its workers are."""
    from verl.trainer.ppo.utils import Role

    roles = (Role.ActorRollout, Role.ActorRolloutRef, Role.Actor)
    return pool_manager.get_resource_pool(next(role for role in roles if role in pool_manager.mapping))


@contextlib.contextmanager
def _named(member: _Member) -> Any:
    try:
        yield
    except TimeoutError as error:
        reason = f"not within {RESTART_TIMEOUT_S:g} s"
        raise ClassmateEngineError(f"{member.engine.label} did not start: {reason}") from error
    except (ray.exceptions.RayError, ValueError) as error:
        raise ClassmateEngineError(f"{member.engine.label} did not start: {_last_line(error)}") from error


def _own_processes(_: Any) -> list[tuple[str, int, float]]:
    """Runs in an engine's process: node, id and creation time of it and of every process below it."""
    import psutil

    node, own = ray.get_runtime_context().get_node_id(), psutil.Process()
    return [(node, process.pid, process.create_time()) for process in (own, *own.children(recursive=True))]


def _end_processes(processes: Sequence[tuple[str, int, float]]) -> None:
    """Kills what is left of them, each on its node."""

    def end(ids: list[tuple[int, float]]) -> None:
        import psutil

        for pid, created in ids:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                if process.create_time() == created:
                    process.kill()
                    process.wait(_KILL_TIMEOUT_S)

    for node in {node for node, _, _ in processes}:
        ids = [(pid, created) for place, pid, created in processes if place == node]
        if node == ray.get_runtime_context().get_node_id():
            end(ids)
        else:
            affinity = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
            ray.get(ray.remote(end).options(num_cpus=0, scheduling_strategy=affinity).remote(ids))


def engine_class(spec: ClassmateSpec) -> type[ClassmateWorker | ScoringJudgeWorker]:
    """What an engine without vLLM runs."""
    scoring = isinstance(spec, JudgeEngineSpec) and spec.judge.scoring
    return ScoringJudgeWorker if scoring else ClassmateWorker


def context_length(config: DictConfig, reward_config: ClassmateRewardModelConfig) -> int:
    """Most tokens of a classmate's prompt and answer together."""
    return reward_config.classmate_generation_configs.context_length(
        max_prompt_length=config.data.max_prompt_length, max_response_length=config.data.max_response_length
    )


def hf_engine_config(
    config: DictConfig, reward_config: ClassmateRewardModelConfig, spec: ClassmateSpec
) -> EngineConfig:
    """The embedded engine of a classmate."""
    judges = isinstance(spec, JudgeEngineSpec)
    return EngineConfig(
        model_path=spec.model,
        dtype=_dtype(reward_config, spec),
        device="cuda" if get_device_name() == "cuda" else "cpu",
        max_model_len=reward_config.llm_judge_max_context if judges else context_length(config, reward_config),
        max_batch_size=reward_config.classmate_batch_size,
        seed=reward_config.seed,
        deterministic=bool(config.trainer.deterministic),
        trust_remote_code=reward_config.classmate_trust_remote_code,
    )


def _dtype(reward_config: ClassmateRewardModelConfig, spec: ClassmateSpec) -> str:
    """Name of the torch dtype of an engine's weights."""
    dtype = spec.judge.dtype if isinstance(spec, JudgeEngineSpec) else reward_config.classmate_dtype
    if dtype != "auto":
        return dtype
    return "bfloat16" if get_device_name() == "cuda" else "float32"


def vllm_rollout_config(
    config: DictConfig,
    spec: ClassmateSpec,
    reward_config: ClassmateRewardModelConfig,
    *,
    sleeps: bool,
) -> DictConfig:
    """The policy's rollout node as a frozen helper needs it: own memory share, own context, weights from disk."""
    rollout: Any = OmegaConf.create(OmegaConf.to_container(config.actor_rollout_ref.rollout, resolve=True))
    max_model_len, new_tokens = (
        (reward_config.llm_judge_max_context, reward_config.llm_judge_max_tokens)
        if isinstance(spec, JudgeEngineSpec)
        else (context_length(config, reward_config), reward_config.classmate_generation_configs.max_new_tokens)
    )
    with open_dict(rollout):
        rollout.update(
            name="vllm",
            seed=fresh_engine_seed(),
            load_format="auto",
            gpu_memory_utilization=spec.gpu_memory_utilization,
            tensor_model_parallel_size=spec.tensor_parallel_size,
            data_parallel_size=1,
            pipeline_model_parallel_size=1,
            dtype=_dtype(reward_config, spec),
            max_model_len=max_model_len,
            prompt_length=max_model_len - new_tokens,
            response_length=new_tokens,
            calculate_log_probs=False,
            free_cache_engine=sleeps,
            enable_sleep_mode=sleeps,
        )
    return rollout


def create_classmate_workers(
    config: DictConfig, reward_config: ClassmateRewardModelConfig, *, on_event: Callable[[str], None] = print
) -> ClassmateGroup:
    """Starts the group of a run whose classmates need no place in the trainer's pool, and waits for it.

    Raises:
        ConfigError: when a classmate needs that pool, which only a trainer has.
        ClassmateEngineError: when an engine does not start.
    """
    if any(engine.in_policy_pool(get_device_name()) for engine in engines(reward_config)):
        raise ConfigError(
            "classmates that share the trainer's pool are the trainer's to start; write placement=dedicated, or "
            "without a GPU backend=hf"
        )
    group = ClassmateGroup(config, reward_config, on_event=on_event)
    try:
        group.start_unplaced()
        group.start_placed()
        group.wait_until_ready()
    except ClassmateEngineError:
        group.shutdown()
        raise
    return group


def _last_line(error: BaseException) -> str:
    """The first sentence of the last line: Ray's go on with all that may have been the cause."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip().split(". ")[0] if lines else type(error).__name__
