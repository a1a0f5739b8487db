"""The models of an evaluation as engines: teachers are two more frozen models beside the students.

One decision: where a model fits beside all others they are started once; on GPUs, as many at a time as there are
devices, so that one is enough for an evaluation of any number of models.

    >>> with Serving.open(source, models, on_event=print) as serving:
    ...     serving.run(["classmate/0"], lambda client: client.complete("classmate/0", ids, params))
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from verl.classmate.config import ClassmateRewardModelConfig
from verl.classmate.errors import ClassmateEngineError, ConfigError
from verl.classmate.frozen import FrozenModel, frozen_readers
from verl.classmate.reply import Reply
from verl.evaluation.teaching.sources import Source
from verl.trainer.run.session import Needs, open_ray
from verl.utils.device import get_device_name
from verl.utils.model_servers.mapping import MappingFile
from verl.workers.classmates.client import ClassmateClient
from verl.workers.classmates.group import ClassmateGroup, create_classmate_workers
from verl.workers.classmates.placement import DEDICATED_CPUS, LOCAL, Engine, engines, resolved_engine

TEACHER, UNTRAINED = "teacher", "untrained"
"""Names of the teachers among the frozen models."""

_T = TypeVar("_T")


def frozen_students(source: Source) -> tuple[FrozenModel, ...]:
    """The students, in the order of their numbers. One that is the policy itself is the teacher's checkpoint."""
    found = []
    for one in frozen_readers(source.run.reward):
        if one.weights == "policy_live":
            one = dataclasses.replace(one, model=source.teacher, engine="auto", weights="own")
        found.append(_placed(one))
    return tuple(found)


def frozen_teacher(source: Source, name: str, model: str, *, engine: str | None) -> FrozenModel:
    """A teacher, trained or not.

    Args:
        source: whose lengths it has.
        name: `TEACHER` or `UNTRAINED`.
        model: path or hub name.
        engine: None: a server where one is named for it, else as the machine has it.
    """
    run = source.run
    mapping = MappingFile(run.reward.classmate_cot_reward_configs.host_classmate_name_to_url_json_fn)
    resolved: Any = engine or "auto"
    if resolved == "auto" and mapping.find(model) is not None:
        resolved = "openai"
    return _placed(
        FrozenModel(
            name=name,
            label=name if name == TEACHER else f"{name} teacher",
            keys=f"--{name} ",
            model=model,
            engine=resolved,
            dtype=run.reward.classmate_dtype,
            gpu_memory_utilization=run.reward.classmate_vllm_configs.gpu_memory_utilization,
            tensor_parallel_size=run.reward.classmate_vllm_configs.tensor_parallel_size if resolved != "openai" else 1,
            context=run.max_prompt_length + run.max_response_length,
            max_new_tokens=run.max_response_length,
            request_timeout=run.reward.request_timeout(resolved),
        )
    )


def _placed(one: FrozenModel) -> FrozenModel:
    """A model as it stands where nothing is trained: on devices of its own."""
    if resolved_engine(one) not in LOCAL or (get_device_name() != "cuda" and resolved_engine(one) == "hf"):
        return one
    return dataclasses.replace(one, placement="dedicated", replicas=1)


def _check_servers(source: Source, models: Sequence[FrozenModel]) -> None:
    """Every model that is asked on a server has one; else all its trials would be lost, one by one.

    Raises:
        ConfigError: the mapping file names none.
    """
    file = source.run.reward.classmate_cot_reward_configs.host_classmate_name_to_url_json_fn
    mapping = MappingFile(file)
    for one in models:
        if resolved_engine(one) == "openai" and mapping.find(one.model) is None:
            raise ConfigError(
                f"{one.model}: {file} names no server for it; start one (docs/hosting.md), or write --servers FILE"
            )


class Patiently:
    """A client whose requests wait here and not at the engine, where their time would run."""

    def __init__(self, client: ClassmateClient, at_once: int) -> None:
        """`at_once`: requests of a model that are under way."""
        self._client = client
        self._at_once = at_once
        self._open: dict[str, asyncio.Semaphore] = {}

    async def complete(self, model: str, prompt_ids: list[int], params: dict[str, Any]) -> Reply:
        """As `ClassmateClient.complete`."""
        if model not in self._open:
            self._open[model] = asyncio.Semaphore(self._at_once)
        async with self._open[model]:
            return await self._client.complete(model, prompt_ids, params)


class Serving:
    """The models, those that are needed now started."""

    def __init__(
        self, source: Source, models: Sequence[FrozenModel], *, devices: int | None, on_event: Callable[[str], None]
    ) -> None:
        """Starts nothing.

        Args:
            source: with the config.
            models: all that are asked in the evaluation.
            devices: GPUs for engines; None: all models may run at the same time.
            on_event: gets a line when an engine fails or comes back.
        """
        self._source = source
        self._models = tuple(models)
        self._devices = devices
        self._on_event = on_event
        self._group: ClassmateGroup | None = None
        self._served: frozenset[str] = frozenset()
        self._runner = asyncio.Runner()
        reward = source.run.reward
        client = ClassmateClient(
            reward,
            max_model_len=source.run.context_length,
            deterministic=source.run.deterministic,
            models=self._models,
        )
        self._raw = client
        self.client = Patiently(client, 2 * reward.classmate_batch_size)
        """Asks them."""

    @classmethod
    @contextmanager
    def open(
        cls, source: Source, models: Sequence[FrozenModel], *, on_event: Callable[[str], None]
    ) -> Iterator["Serving"]:
        """Opens Ray where an engine needs it, and ends all of it.

        Raises:
            ConfigError: the machine has too few devices for one of the models, or nobody serves it.
        """
        _check_servers(source, models)
        local = engines(models)
        with contextlib.ExitStack() as stack:
            if local:
                stack.enter_context(opened_ray(source, local))
            serving = cls(source, models, devices=_devices(local), on_event=on_event)
            stack.callback(serving.close)
            yield serving

    def batches(self, names: Sequence[str]) -> list[list[str]]:
        """Models that can be asked at the same time, in as few lots as the devices allow."""
        if self._devices is None:
            return [list(names)] if names else []
        lots: list[list[str]] = []
        left = 0
        for name in names:
            width = sum(engine.width for engine in engines([self._model(name)]))
            if not lots or width > left:
                lots.append([])
                left = self._devices
            lots[-1].append(name)
            left -= width
        return lots

    def run(self, names: Sequence[str], work: Callable[[Patiently], Awaitable[_T]]) -> _T:
        """Lets the models serve, and does the work.

        Raises:
            ClassmateEngineError: one of them does not start.
        """
        self._start(names)

        async def working() -> _T:
            return await work(self.client)

        return self._runner.run(working())

    def heal(self) -> None:
        """Restarts what died or hangs."""
        if self._group is not None:
            with contextlib.suppress(ClassmateEngineError):
                self._group.heal()

    def close(self) -> None:
        """Ends the engines."""
        self._end()
        with contextlib.suppress(Exception):
            self._runner.run(self._raw.close())
        self._runner.close()

    def _model(self, name: str) -> FrozenModel:
        return next(one for one in self._models if one.name == name)

    def _start(self, names: Sequence[str]) -> None:
        local = [one for one in self._models if resolved_engine(one) in LOCAL]
        wanted = [one for one in local if self._devices is None or one.name in names]
        if {one.name for one in wanted if one.name in names} <= self._served:
            return
        self._end()
        self._group = create_classmate_workers(
            self._source.config, self._reward, on_event=self._on_event, models=wanted
        )
        self._served = frozenset(one.name for one in wanted)

    @property
    def _reward(self) -> ClassmateRewardModelConfig:
        # Servers that others started are watched by their requests alone.
        return dataclasses.replace(self._source.run.reward, classmate_failure_policy="restart")

    def _end(self) -> None:
        if self._group is not None:
            self._group.shutdown()
        self._group, self._served = None, frozenset()


def _devices(local: Sequence[Engine]) -> int | None:
    """GPUs of the machine; on the CPU one where vLLM stands, which takes its share of the memory at once, else None.

    Raises:
        ConfigError: too few for one of the engines.
    """
    if get_device_name() != "cuda":
        return 1 if any(engine.backend == "vllm" for engine in local) else None
    import ray

    there = int(ray.cluster_resources().get("GPU", 0)) if local else 0
    for engine in local:
        if engine.width > there:
            raise ConfigError(
                f"{engine.label} is spread over {engine.width} GPUs, and there are {there}; write "
                "reward_model.classmate_vllm_configs.tensor_parallel_size=1"
            )
    return there


@contextmanager
def opened_ray(source: Source, local: Sequence[Engine]) -> Iterator[None]:
    """Ray for the engines; one that this process has opened already stays open.

    Raises:
        ConfigError: it has too few logical CPUs, so that an engine would wait for ever.
    """
    import ray

    each = [DEDICATED_CPUS * engine.width if engine.dedicated else 1 for engine in local]
    together = get_device_name() != "cuda" and not any(engine.backend == "vllm" for engine in local)
    needed = sum(each) if together else max(each)

    def check(there: Mapping[str, float]) -> None:
        if there.get("CPU", 0) < needed:
            raise ConfigError(
                f"Ray has {there.get('CPU', 0):g} logical CPUs, and the engines ask for {needed}; write "
                f"ray_kwargs.ray_init.num_cpus={needed}, or name a larger cluster in RAY_ADDRESS"
            )

    if ray.is_initialized():
        check(ray.cluster_resources())
        yield
        return
    gpus = sum(engine.width for engine in local if engine.backend == "vllm")
    # A driver and its helpers beside the engines.
    session = open_ray(source.config, source.run, Needs(cpus=2 + sum(each), gpus=gpus, check=check))
    try:
        yield
    finally:
        session.close()
