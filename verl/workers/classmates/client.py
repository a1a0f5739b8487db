"""Asks the frozen models of a run from any process; made once per process.

One decision: an engine is a *named* Ray actor, and its name follows from the config. Whoever holds the config can ask
it, a restarted engine is found under the same name, and no handle has to travel. A failure is an outcome.

    >>> client = ClassmateClient(reward_config, max_model_len=2048)
    >>> replies = await client.sample(0, prompt_ids, seeds=[11, 12], validate=False)
    >>> replies[0].outcome, replies[0].token_ids
    >>> await client.complete("judge", prompt_ids, {"temperature": 0.0, "max_tokens": 64})
"""

import asyncio
import math
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import ray

from verl.classmate.config import ClassmateRewardModelConfig
from verl.classmate.frozen import POLICY, FrozenModel, frozen_models, frozen_readers
from verl.classmate.outcome import Outcome
from verl.classmate.reply import Reply
from verl.classmate.seeds import sends_seed
from verl.stepwise.step import StepScore
from verl.workers.classmates.placement import actor_name, resolved_engine, scores_at_any_temperature
from verl.workers.classmates.remote import RemoteClassmate
from verl.workers.engine_health import why_it_hangs

RETRIES = 1
"""Times that a request is sent again after the engine, not the request, failed."""

RETRY_DELAY_S = 0.5
"""Wait before the first retry; doubled for each further one."""

DOWN_S = 10.0
"""Seconds for which an engine that died or hangs is asked only after its classmate's other engines. For so long an
engine that hangs is not pinged again."""


class ClassmateClient:
    """Asks classmates and whatever other frozen models there are. A failure is an outcome, never an exception."""

    def __init__(
        self,
        reward_config: ClassmateRewardModelConfig,
        *,
        max_model_len: int,
        deterministic: bool = False,
        policy: Any = None,
        policy_engine: str = "hf",
        models: Sequence[FrozenModel] | None = None,
    ) -> None:
        """Starts nothing; engines are looked up by name at their first request.

        Args:
            reward_config: the typed `reward_model` node.
            max_model_len: context of every classmate engine, in its own tokens.
            deterministic: every request carries its seed, and alone decides which engine of a classmate gets it, not
                their load.
            policy: upstream's `LLMServerClient` of the rollout, which answers for live self-play.
            policy_engine: its engine.
            models: the frozen models of the run; None: those of `reward_config`.
        """
        self._config = reward_config
        self._readers = tuple(one.name for one in frozen_readers(reward_config))
        self.requests: Counter[str] = Counter()
        """Requests of this process so far, by the name of the model."""
        self._models = {one.name: one for one in (frozen_models(reward_config) if models is None else models)}
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
            one.name: RemoteClassmate(
                one.model,
                reward_config.classmate_cot_reward_configs.host_classmate_name_to_url_json_fn,
                timeout_s=one.request_timeout,
                called=reward_config.readers_called,
            )
            for one in self._models.values()
            if resolved_engine(one) == "openai"
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
            classmate: m, or the number of an unseen reader (`frozen_readers`).
            prompt_ids: in the classmate's own tokens.
            seeds: one per sample; sent to engines that are to draw from them (`sends_seed`).
            validate: use the validation's sampling settings.
            excluded: readers that were taken out of the run.
            max_new_tokens: a tighter limit than that of the settings.
        """
        if classmate in excluded:
            return [Reply(outcome=Outcome.excluded) for _ in seeds]
        settings = self._config.classmate_generation_configs.sampling(validate=validate)
        room = min(max_new_tokens or settings.max_new_tokens, max(1, self._max_model_len - len(prompt_ids)))
        name = self._readers[classmate]
        engine = resolved_engine(self._models[name])
        seeded = sends_seed(self._policy_engine if engine == POLICY else engine, deterministic=self._deterministic)
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
        return list(await asyncio.gather(*(self.complete(name, prompt_ids, one) for one in params)))

    async def log_probs(
        self,
        classmate: int | str,
        prompt_ids: list[int],
        text_ids: list[int],
        *,
        temperature: float = 1.0,
        excluded: frozenset[int] = frozenset(),
    ) -> Reply:
        """The log-probabilities of a text's tokens behind a prompt, in one pass in which nothing is drawn.

        Args:
            classmate: m, or the number of an unseen reader (`frozen_readers`); any frozen model by its name.
            prompt_ids: in the classmate's own tokens.
            text_ids: one or more tokens that follow them.
            temperature: at which they are as likely as that; another than 1 only with `scores_at_any_temperature`.
            excluded: classmates that were taken out of the run.

        Raises:
            ValueError: its engine tells of a prompt at temperature 1 only.
        """
        if classmate in excluded:
            return Reply(outcome=Outcome.excluded)
        name = classmate if isinstance(classmate, str) else self._readers[classmate]
        hf = scores_at_any_temperature(self._models[name], policy_engine=self._policy_engine)
        if temperature != 1 and not hf:
            raise ValueError(f"{name}: its log-probs are told at temperature 1, not {temperature:g}; score it with hf")
        self.requests[name] += 1
        ids = [*prompt_ids, *text_ids]
        # vLLM's words; it reads a prompt only to write at least one token, and tells of all of the prompt.
        params: dict[str, Any] = {"temperature": 0.0, "max_tokens": 1, "prompt_logprobs": 0}
        if name in self._remotes:
            return await self._remotes[name].log_probs(ids, params, count=len(text_ids))
        if hf:
            params |= {"logprob_start_len": len(prompt_ids), "prompt_logprobs_temperature": temperature}
        arguments = {"prompt_ids": ids, "sampling_params": params, "request_id": uuid4().hex}
        output = await self._ask_engines(name, "generate", arguments)
        return output if isinstance(output, Reply) else told_by(output, count=len(text_ids))

    async def close(self) -> None:
        """Closes what connections there are."""
        await asyncio.gather(*(remote.close() for remote in self._remotes.values()))

    async def complete(self, model: str, prompt_ids: list[int], params: dict[str, Any]) -> Reply:
        """One answer of a frozen model, to whatever it is asked.

        Args:
            model: name of the frozen model.
            prompt_ids: in the model's own tokens.
            params: sampling parameters under vLLM's names.
        """
        self.requests[model] += 1
        if model in self._remotes:
            return await self._remotes[model].complete(prompt_ids, params)
        arguments = {"prompt_ids": prompt_ids, "sampling_params": dict(params), "request_id": uuid4().hex}
        output = await self._ask_engines(model, "generate", arguments)
        return output if isinstance(output, Reply) else reply_of(output, max_tokens=params["max_tokens"])

    async def score_tokens(self, model: str, token_ids: list[int]) -> float | Reply:
        """The number that a scoring model of the run gives a text, or why there is none."""
        return await self._ask_engines(model, "score", {"prompt_ids": token_ids})

    async def score_steps(self, model: str, problem: str, steps: Sequence[str]) -> "list[StepScore | None] | Reply":
        """What a process reward model of the run makes of each step (None: it does not fit), or why it says nothing."""
        return await self._ask_engines(model, "score_steps", {"problem": problem, "steps": list(steps)})

    async def _ask_engines(self, model: str, method: str, arguments: dict[str, Any]) -> Any:
        """The answer of the first engine of a model that gives one; a `Reply` with the failure if none does."""
        limit = self._models[model].request_timeout
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
        """The answer of one engine. It is pinged until it answers, so that nobody waits long for an engine that hangs.

        Raises:
            TimeoutError: there is no answer before `deadline` (`time.monotonic`).
            EngineHangs: it will not answer.
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

    def _engine_names(self, model: str) -> list[str]:
        frozen = self._models[model]
        if resolved_engine(frozen) == POLICY:
            return [POLICY]
        return [actor_name(frozen, replica) for replica in range(frozen.replicas)]

    def _choose(self, names: list[str], arguments: dict[str, Any]) -> str:
        """The engine with the fewest requests of this process; in deterministic runs the request itself decides.
        Engines that serve come before those that died or hang."""
        now = time.monotonic()
        up = [name for name in names if self._down_until.get(name, 0.0) <= now] or names
        if self._deterministic:
            request = (arguments.get("prompt_ids", arguments), arguments.get("sampling_params"))
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


def told_by(output: Any, *, count: int) -> Reply:
    """What an engine's `TokenOutput` tells of the last `count` tokens of the prompt.

    Upstream's list has the entry of a token in the place of the one before it, and a 0 in the last.
    """
    if output.stop_reason == "aborted":
        return Reply(outcome=Outcome.engine_error, error="the engine aborted the request")
    told = [entry[0] for entry in (output.extra_fields.get("prompt_logprobs") or ())[-count - 1 : -1]]
    if len(told) != count or not all(map(math.isfinite, told)):
        said = f"the engine tells no log-probs of the prompt's last {count} tokens"
        return Reply(outcome=Outcome.engine_error, error=said)
    return Reply(outcome=Outcome.ok, log_probs=tuple(map(float, told)))


def _is_dead_engine(error: ray.exceptions.RayTaskError) -> bool:
    """vLLM's server survives the process that computes, and says so with an exception of this name."""
    return type(error.cause).__name__ == "EngineDeadError"


class EngineHangs(Exception):
    """An engine lives and will not answer; the text says what was seen."""
