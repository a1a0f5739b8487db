"""Classmates as running things: one engine each, a group that keeps them alive, a client that asks them from anywhere.

Decision: an engine is a *named* Ray actor, and its name follows from the config. Whoever holds the config can ask it, a
restarted engine is found under the same name, and no handle has to travel.

    >>> group = create_classmate_workers(config, reward_config)           # in the trainer
    >>> client = ClassmateClient(reward_config, max_model_len=2048)       # in any worker
    >>> replies = await client.sample(0, prompt_ids, seeds=[11, 12], validate=False)
    >>> replies[0].outcome, replies[0].token_ids
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

import ray
from omegaconf import DictConfig, OmegaConf, open_dict

from verl.classmate.config import ClassmateRewardModelConfig, ClassmateSpec
from verl.classmate.errors import ClassmateEngineError, ConfigError
from verl.classmate.reply import Reply
from verl.classmate.scoring import Outcome
from verl.utils.device import get_device_name
from verl.utils.ray_utils import auto_await
from verl.workers.classmate_remote import RemoteClassmate, RemoteWatch
from verl.workers.rollout.hf_rollout_server.engine import EngineConfig
from verl.workers.rollout.hf_rollout_server.server import HFServer

RETRIES = 1
"""Times that a request is sent again after the engine, not the request, failed."""

RETRY_DELAY_S = 0.5
"""Wait before the first retry; doubled for each further one."""

PING_TIMEOUT_S = 20.0
"""A living engine answers a ping within this time, since pings do not queue behind requests."""


class ClassmateWorker(HFServer):
    """The Ray actor of one classmate on the embedded engine; `sample_cot_continuation` adds S samples in one call."""

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


def resolved_backend(spec: ClassmateSpec) -> str:
    """`hf`, `vllm` or `openai`: `auto` is vllm on a GPU, else hf (`with_hosted` has named the servers of others)."""
    if spec.backend != "auto":
        return str(spec.backend)
    return "vllm" if get_device_name() == "cuda" else "hf"


def actor_name(index: int, spec: ClassmateSpec) -> str:
    """Name of the Ray actor that answers for classmate `index`."""
    return f"vllm_server_reward_0_0_classmate{index}" if resolved_backend(spec) == "vllm" else f"classmate_{index}"


class ClassmateClient:
    """Asks classmates; made once per process. A failure is an outcome, never an exception."""

    def __init__(self, reward_config: ClassmateRewardModelConfig, *, max_model_len: int) -> None:
        """`max_model_len`: context of every classmate engine, in its own tokens."""
        self._config = reward_config
        self._max_model_len = max_model_len
        self._handles: dict[int, ray.actor.ActorHandle] = {}
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
            seeds: one per sample.
            validate: use the validation's sampling settings.
            excluded: classmates that were taken out of the run.
            max_new_tokens: a tighter limit than that of the settings.
        """
        if classmate in excluded:
            return [Reply(outcome=Outcome.excluded) for _ in seeds]
        settings = self._config.classmate_generation_configs.sampling(validate=validate)
        room = min(max_new_tokens or settings.max_new_tokens, max(1, self._max_model_len - len(prompt_ids)))
        params = [
            {
                "temperature": settings.temperature,
                "top_p": settings.top_p,
                "top_k": settings.top_k,
                "max_tokens": min(settings.max_new_tokens, room),
                "seed": seed,
            }
            for seed in seeds
        ]
        ask = self._remotes[classmate].complete if classmate in self._remotes else partial(self._one, classmate)
        return list(await asyncio.gather(*(ask(prompt_ids, one) for one in params)))

    async def close(self) -> None:
        """Closes what connections there are."""
        await asyncio.gather(*(remote.close() for remote in self._remotes.values()))

    async def _one(self, classmate: int, prompt_ids: list[int], params: dict[str, Any]) -> Reply:
        timeout = self._config.request_timeout(resolved_backend(self._config.classmates[classmate]))
        for attempt in range(RETRIES + 1):
            try:
                output = await asyncio.wait_for(self._generate(classmate, prompt_ids, params), timeout)
                reason = output.extra_fields.get("finish_reason", output.stop_reason)
                return Reply(outcome=Outcome.ok, token_ids=tuple(output.token_ids), finish_reason=reason)
            except TimeoutError:
                return Reply(outcome=Outcome.timeout, error=f"no answer within {timeout:g} s")
            except ray.exceptions.RayTaskError as error:
                # The engine lives and refused this request; asking again would change nothing.
                return Reply(outcome=Outcome.engine_error, error=str(error.cause))
            except (ray.exceptions.RayError, ValueError) as error:
                self._handles.pop(classmate, None)
                failure = str(error)
                if attempt < RETRIES:
                    await asyncio.sleep(RETRY_DELAY_S * 2**attempt)
        return Reply(outcome=Outcome.engine_error, error=failure)

    async def _generate(self, classmate: int, prompt_ids: list[int], params: dict[str, Any]) -> Any:
        if classmate not in self._handles:
            self._handles[classmate] = ray.get_actor(actor_name(classmate, self._config.classmates[classmate]))
        return await self._handles[classmate].generate.remote(
            prompt_ids=prompt_ids, sampling_params=params, request_id=uuid4().hex
        )


@dataclass
class _Member:
    """One classmate as the group knows it."""

    spec: ClassmateSpec
    handle: Any = None
    replica: Any = None
    restarts: int = 0
    excluded: bool = False


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
        self._pool_manager: Any = None
        self._members = [_Member(spec=spec) for spec in reward_config.classmates]
        self._remotes = RemoteWatch(
            {i: m.spec.model for i, m in enumerate(self._members) if resolved_backend(m.spec) == "openai"},
            reward_config.classmate_cot_reward_configs.host_classmate_name_to_url_json_fn,
            on_event=on_event,
        )
        self.max_model_len = context_length(config, reward_config)

    @property
    def excluded(self) -> frozenset[int]:
        """Indices of classmates that were taken out of the run."""
        return frozenset(index for index, member in enumerate(self._members) if member.excluded)

    @property
    def restarts(self) -> int:
        """Restarts so far, of all classmates."""
        return sum(member.restarts for member in self._members)

    def start_unplaced(self) -> None:
        """Starts the engines that need no place in a GPU pool; they load while the caller goes on."""
        for index, member in enumerate(self._members):
            if resolved_backend(member.spec) == "hf":
                self._start_hf(index)

    def start_placed(self, pool_manager: Any) -> None:
        """Starts the engines that share the trainer's pools. Blocks until they serve."""
        self._pool_manager = pool_manager
        for index, member in enumerate(self._members):
            if resolved_backend(member.spec) == "vllm":
                self._start_vllm(index)

    def wait_until_ready(self) -> None:
        """Blocks until every engine has loaded its model.

        Raises:
            ClassmateEngineError: naming the classmate that did not start.
        """
        for index, member in enumerate(self._members):
            if resolved_backend(member.spec) == "hf":
                try:
                    ray.get(member.handle.ready.remote())
                except ray.exceptions.RayError as error:
                    raise ClassmateEngineError(
                        f"classmate {index} ({member.spec.model}) did not start: {_last_line(error)}"
                    ) from error

    def heal(self) -> None:
        """Finds dead engines and restarts, excludes or raises by `classmate_failure_policy`.

        Raises:
            ClassmateEngineError: with the policy `raise`.
        """
        self._heal_remotes()
        pings = {
            index: member.handle.clear_kv_cache.remote()
            for index, member in enumerate(self._members)
            if not member.excluded and member.handle is not None
        }
        for index, ping in pings.items():
            try:
                ray.get(ping, timeout=PING_TIMEOUT_S)
            except ray.exceptions.GetTimeoutError:
                continue
            except ray.exceptions.RayError as error:
                self._react(index, _last_line(error))

    def _heal_remotes(self) -> None:
        """A server is its owner's to restart: with the policy `restart`, its rows are lost until it is back."""
        for index, reason in self._remotes.check(without=self.excluded).items():
            label = f"classmate {index} ({self._members[index].spec.model})"
            if self._reward_config.classmate_failure_policy == "raise":
                raise ClassmateEngineError(f"{label} is down: it {reason}")
            if self._reward_config.classmate_failure_policy == "exclude":
                self._members[index].excluded = True
                self._on_event(f"{label} is excluded from the rest of the run")

    def _react(self, index: int, reason: str) -> None:
        member = self._members[index]
        label = f"classmate {index} ({member.spec.model})"
        policy = self._reward_config.classmate_failure_policy
        if policy == "raise":
            raise ClassmateEngineError(f"{label} died: {reason}")
        if policy == "restart" and member.restarts < self._reward_config.classmate_max_restarts:
            member.restarts += 1
            self._on_event(
                f"{label} died; restart {member.restarts} of {self._reward_config.classmate_max_restarts} ({reason})"
            )
            self._release(member)
            if resolved_backend(member.spec) == "hf":
                self._start_hf(index)
            else:
                self._start_vllm(index)
        else:
            member.excluded = True
            self._on_event(f"{label} died and is excluded from the rest of the run ({reason})")

    @auto_await
    async def sleep(self) -> None:
        """Frees the GPU memory of the engines that share the trainer's GPUs; nothing on the CPU."""
        await self._each_replica("sleep")

    @auto_await
    async def wake_up(self) -> None:
        """Undoes `sleep`."""
        await self._each_replica("wake_up")

    async def _each_replica(self, method: str) -> None:
        if get_device_name() == "cpu":
            return
        alive = [m.replica for m in self._members if m.replica is not None and not m.excluded]
        await asyncio.gather(*(getattr(replica, method)() for replica in alive))

    def shutdown(self) -> None:
        """Ends the engines."""
        for member in self._members:
            if member.handle is not None:
                self._release(member)

    def _release(self, member: _Member) -> None:
        """Gives up what is left of a dead engine: Ray keeps a dead actor's name until the actor is killed."""
        actors = [member.handle] if member.replica is None else [*member.replica.servers, *member.replica.workers]
        for actor in actors:
            ray.kill(actor)

    def _start_hf(self, index: int) -> None:
        member = self._members[index]
        on_gpu = get_device_name() == "cuda"
        dtype = self._reward_config.classmate_dtype
        engine = EngineConfig(
            model_path=member.spec.model,
            dtype=("bfloat16" if on_gpu else "float32") if dtype == "auto" else dtype,
            device="cuda" if on_gpu else "cpu",
            max_model_len=self.max_model_len,
            max_batch_size=self._reward_config.classmate_batch_size,
            seed=self._reward_config.seed,
            deterministic=bool(self._config.trainer.deterministic),
        )
        environment = {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"} if on_gpu else {}
        member.handle = (
            ray.remote(ClassmateWorker)
            .options(
                name=actor_name(index, member.spec),
                num_cpus=1,
                max_concurrency=2 * engine.max_batch_size + 1000,
                runtime_env={"env_vars": environment},
            )
            .remote(engine)
        )

    def _start_vllm(self, index: int) -> None:
        from verl.single_controller.ray.base import split_resource_pool
        from verl.trainer.ppo.utils import Role
        from verl.workers.rollout.replica import get_rollout_replica_class

        member = self._members[index]
        rollout = vllm_rollout_config(self._config, member.spec, self.max_model_len, self._reward_config)
        pool = self._pool_manager.get_resource_pool(Role.ActorRollout)
        pools = split_resource_pool(pool, split_size=member.spec.tensor_parallel_size)
        member.replica = get_rollout_replica_class("vllm")(
            replica_rank=0,
            config=rollout,
            model_config=OmegaConf.create({"_target_": "verl.workers.config.HFModelConfig", "path": member.spec.model}),
            gpus_per_node=self._config.trainer.n_gpus_per_node,
            is_reward_model=True,
            name_suffix=f"classmate{index}",
        )
        auto_await(member.replica.init_colocated)(pools[index % len(pools)])
        member.handle = member.replica.server_handle


def context_length(config: DictConfig, reward_config: ClassmateRewardModelConfig) -> int:
    """Most tokens of a classmate's prompt and answer together."""
    return reward_config.classmate_generation_configs.context_length(
        max_prompt_length=config.data.max_prompt_length, max_response_length=config.data.max_response_length
    )


def vllm_rollout_config(
    config: DictConfig, spec: ClassmateSpec, max_model_len: int, reward_config: ClassmateRewardModelConfig
) -> DictConfig:
    """The policy's rollout node as a frozen helper needs it: own memory share, own context, weights from disk."""
    rollout = OmegaConf.create(OmegaConf.to_container(config.actor_rollout_ref.rollout, resolve=True))
    new_tokens = reward_config.classmate_generation_configs.max_new_tokens
    with open_dict(rollout):
        rollout.update(
            name="vllm",
            load_format="auto",
            gpu_memory_utilization=spec.gpu_memory_utilization,
            tensor_model_parallel_size=spec.tensor_parallel_size,
            max_model_len=max_model_len,
            prompt_length=max_model_len - new_tokens,
            response_length=new_tokens,
            calculate_log_probs=False,
        )
    return rollout


def create_classmate_workers(
    config: DictConfig, reward_config: ClassmateRewardModelConfig, *, on_event: Callable[[str], None] = print
) -> ClassmateGroup:
    """Starts the group of a run whose classmates need no place in a GPU pool, and waits for it.

    Raises:
        ConfigError: when a classmate needs a pool, which only a trainer has.
        ClassmateEngineError: when an engine does not start.
    """
    group = ClassmateGroup(config, reward_config, on_event=on_event)
    if any(resolved_backend(spec) == "vllm" for spec in reward_config.classmates):
        raise ConfigError(
            "classmates on vllm share the trainer's pools; let the trainer start them, or write backend=hf"
        )
    group.start_unplaced()
    group.wait_until_ready()
    return group


def _last_line(error: BaseException) -> str:
    """The first sentence of the last line: Ray's go on with all that may have been the cause."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip().split(". ")[0] if lines else type(error).__name__
