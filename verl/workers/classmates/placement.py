"""Which engines the frozen models of a run have, where each one stands, whether they fit beside the policy.

Decision: all of it is pure and follows from the config. So a worker can name an engine without being told, and what
does not fit is refused before anything starts.

    >>> [engine.name for engine in engines(frozen_models(reward_config))]
    ['classmate_0', 'vllm_server_reward_0_0_classmate1', 'vllm_server_reward_1_0_classmate1']
    >>> resolved_schedule(config, reward_config)
    'streamed'
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from verl.classmate.config import ClassmateRewardModelConfig
from verl.classmate.frozen import POLICY, FrozenModel, frozen_models
from verl.utils.device import get_device_name

Schedule = Literal["streamed", "batched"]

LOCAL = ("hf", "vllm")
"""Engines that this run starts."""

DEDICATED_CPUS = 2
"""Logical CPUs of each device of a dedicated engine."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One engine of one frozen model."""

    frozen: FrozenModel
    """The model that it runs."""
    replica: int
    """Counts the engines of the model."""
    backend: str
    """`hf` or `vllm`."""

    @property
    def name(self) -> str:
        """Name of its Ray actor."""
        return actor_name(self.frozen, self.replica)

    @property
    def label(self) -> str:
        """For a person: the model, and which of its engines where it has several."""
        which = f", engine {self.replica}" if self.frozen.replicas != 1 else ""
        return f"{self.frozen.label} ({self.frozen.model}{which})"

    @property
    def width(self) -> int:
        """Devices it is spread over."""
        return self.frozen.tensor_parallel_size if self.backend == "vllm" else 1

    @property
    def dedicated(self) -> bool:
        """Whether it has devices of its own, and never sleeps."""
        return self.frozen.placement == "dedicated"

    def in_policy_pool(self, device: str) -> bool:
        """Whether it stands in the trainer's resource pool; hf engines on the CPU need no place in one."""
        return not self.dedicated and (self.backend == "vllm" or device == "cuda")


def resolved_engine(frozen: FrozenModel) -> str:
    """Who runs a model: its `engine`, where `auto` is vllm on a GPU, else hf."""
    if frozen.engine != "auto":
        return frozen.engine
    return "vllm" if get_device_name() == "cuda" else "hf"


def scores_at_any_temperature(frozen: FrozenModel, *, policy_engine: str) -> bool:
    """Whether a model tells log-probs of given tokens at another temperature than 1: the embedded engine can.

    Args:
        frozen: a reader.
        policy_engine: the policy's, for a reader whose weights those are.
    """
    engine = resolved_engine(frozen)
    return (policy_engine if engine == POLICY else engine) == "hf"


def actor_name(frozen: FrozenModel, replica: int = 0) -> str:
    """Name of the Ray actor that answers for one engine of a model."""
    if resolved_engine(frozen) == "vllm":
        return f"vllm_server_reward_{replica}_0_{vllm_suffix(frozen)}"
    return frozen.name.replace("/", "_") + (f"_{replica}" if replica else "")


def vllm_suffix(frozen: FrozenModel) -> str:
    """What upstream's replica puts behind the names of a model's servers."""
    return frozen.name.replace("/", "")


def engines(models: Sequence[FrozenModel]) -> tuple[Engine, ...]:
    """Every engine that the run starts for its frozen models, one model after the other.

    Raises:
        ValueError: when two engines would have one name.
    """
    started = tuple(
        Engine(frozen=frozen, replica=replica, backend=resolved_engine(frozen))
        for frozen in models
        if resolved_engine(frozen) in LOCAL
        for replica in range(frozen.replicas)
    )
    taken: dict[str, Engine] = {}
    for engine in started:
        other = taken.setdefault(engine.name, engine)
        if other is not engine:
            names = f"{other.frozen.name!r} and {engine.frozen.name!r}"
            raise ValueError(f"the frozen models {names} have engines of one name, {engine.name}; give each its own")
    return started


def assign_gpus(pooled: Sequence[Engine], gpus: int) -> list[tuple[int, ...]]:
    """For each engine of the trainer's pool the GPUs (of `gpus`) it takes: the aligned block with most memory left.

    Raises:
        ValueError: when an engine is wider than the pool, or does not divide it.
    """
    load = [0.0] * gpus
    assigned = []
    for engine in pooled:
        width = engine.width
        if width > gpus or gpus % width:
            raise ValueError(f"{engine.label} asks for {width} of {gpus} GPUs")
        first = min(range(0, gpus, width), key=lambda start: (round(max(load[start : start + width]), 6), start))
        block = tuple(range(first, first + width))
        for gpu in block:
            load[gpu] += engine.frozen.memory_share
        assigned.append(block)
    return assigned


def start_waves(blocks: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Which engines of the pool may start at the same time: those without a GPU in common, in the order given.

    Args:
        blocks: the GPUs of each engine.
    """
    waves: list[list[int]] = []
    begun: dict[int, int] = {}
    for place, block in enumerate(blocks):
        wave = max((begun.get(gpu, 0) for gpu in block), default=0)
        if wave == len(waves):
            waves.append([])
        waves[wave].append(place)
        begun.update(dict.fromkeys(block, wave + 1))
    return waves


def gpu_memory_share(config: Mapping[str, Any], reward: ClassmateRewardModelConfig, schedule: Schedule) -> float:
    """The share of the fullest GPU's memory that engines hold at the same time, the policy's with them; 0 on the CPU.

    `streamed`: the policy's and all that stand beside it; `batched`: the largest single one. Engines that are asked in
    validation only are awake while the policy sleeps.
    """
    if config["trainer"]["device"] != "cuda":
        return 0.0
    gpus = trainer_gpus(config)
    rollout = config["actor_rollout_ref"]["rollout"]
    policy = float(rollout["gpu_memory_utilization"]) if rollout["name"] == "vllm" else 0.0
    pooled = [engine for engine in engines(frozen_models(reward)) if engine.in_policy_pool("cuda")]
    in_turn = taking_turns(reward, schedule, validate=True) if reward.classmate_free_cache_engine else frozenset()
    together, turns = [0.0] * gpus, [dict.fromkeys(in_turn, 0.0) for _ in range(gpus)]
    for engine, block in zip(pooled, assign_gpus(pooled, gpus), strict=True):
        name, share = engine.frozen.name, engine.frozen.memory_share
        for gpu in block:
            if name in in_turn:
                # Engines of one model wake together.
                turns[gpu][name] += share
            else:
                together[gpu] += share
    return max(together[gpu] + max([policy, *turns[gpu].values()]) for gpu in range(gpus))


def resolved_schedule(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> Schedule:
    """`streamed` or `batched`: `auto` streams wherever policy and colocated classmates fit side by side."""
    if reward.classmate_schedule != "auto":
        return reward.classmate_schedule
    fits = gpu_memory_share(config, reward, "streamed") <= 1 + 1e-9
    return "streamed" if fits or not reward.classmate_free_cache_engine else "batched"


def taking_turns(reward: ClassmateRewardModelConfig, schedule: Schedule, *, validate: bool = False) -> frozenset[str]:
    """Names of the models that are asked when all rows are written: with `batched`, those with colocated engines; in
    validation, with either schedule, those with colocated engines that are asked then only.

    All others are asked row by row, live self-play while the policy is awake.

    Args:
        reward: the typed node `reward_model`.
        schedule: of the run.
        validate: whether the rows are those of a validation.
    """
    colocated = [engine.frozen for engine in engines(frozen_models(reward)) if not engine.dedicated]
    return frozenset(one.name for one in colocated if (validate if one.validation_only else schedule == "batched"))


def read_beside_log_probs(config: Mapping[str, Any], reward: ClassmateRewardModelConfig, *, estimator: str) -> bool:
    """Whether classmates go on reading training rows after the policy has answered, and are awaited where advantages
    need them.

    They do if none of them shares the trainer's GPUs, takes turns with others or is the policy itself, and if nothing
    needs rewards earlier.

    Args:
        config: of the run.
        reward: its typed node `reward_model`.
        estimator: its `algorithm.adv_estimator`.
    """
    asked = [one for one in frozen_models(reward) if not one.validation_only]
    colocated = any(not engine.dedicated for engine in engines(asked))
    on_trainers_gpu = config["trainer"]["device"] != "cpu" and colocated
    needed_earlier = estimator == "remax" or config["algorithm"]["filter_groups"]["enable"]
    in_turn = bool(taking_turns(reward, resolved_schedule(config, reward)))
    live = reward.live_classmate is not None
    return bool(reward.classmates) and not (on_trainers_gpu or needed_earlier or in_turn or live)


def trainer_gpus(config: Mapping[str, Any]) -> int:
    """GPUs (on the CPU: ranks) of the trainer's pool."""
    return int(config["trainer"]["n_gpus_per_node"] * config["trainer"]["nnodes"])


def dedicated_gpus(reward: ClassmateRewardModelConfig, device: str) -> int:
    """GPUs beside the trainer's; on the CPU the logical ones that vLLM's workers are scheduled by."""
    return sum(
        engine.width
        for engine in engines(frozen_models(reward))
        if engine.dedicated and (device == "cuda" or engine.backend == "vllm")
    )


def max_colocate_count(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> int:
    """Actors that share one bundle of the trainer's pool, each with an equal part of its GPU and one logical CPU.

    With upstream's 3 (training, rollout, one to spare) a fourth would wait for ever, so classmates in the pool add
    theirs.
    """
    gpus = trainer_gpus(config)
    pooled = [engine for engine in engines(frozen_models(reward)) if engine.in_policy_pool(config["trainer"]["device"])]
    blocks = assign_gpus(pooled, gpus)
    return 3 + max(sum(gpu in block for block in blocks) for gpu in range(gpus))


def engine_cpus(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> int:
    """Logical CPUs of the engines outside the trainer's pool: one for each hf engine, two a device for dedicated."""
    device = config["trainer"]["device"]
    return sum(
        DEDICATED_CPUS * engine.width if engine.dedicated else 1
        for engine in engines(frozen_models(reward))
        if not engine.in_policy_pool(device)
    )
