"""Whether the machine has what a run asks for: Ray's logical CPUs, GPUs, and their memory.

>>> check_devices(config, reward_config)                      # raises ConfigError
"""

import math
import os
from collections.abc import Mapping
from typing import Any

from verl.classmate.config import ClassmateRewardModelConfig
from verl.classmate.errors import ConfigError
from verl.classmate.frozen import frozen_models
from verl.trainer.resources.plan import certain_memory_gib, memory_gib, needed_gpus, needed_ray_cpus
from verl.workers.classmates.placement import (
    assign_gpus,
    engines,
    gpu_memory_share,
    resolved_schedule,
    taking_turns,
    trainer_gpus,
)


def check_devices(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> None:
    """Ray's logical CPUs, GPUs and their memory. A cluster's are known only when Ray has connected.

    Raises:
        ConfigError: with the number that is needed, and the keys.
    """
    trainer = config["trainer"]
    _check_widths(config, reward)
    if not os.environ.get("RAY_ADDRESS"):
        check_ray_cpus(config, reward, config["ray_kwargs"]["ray_init"]["num_cpus"])
        if trainer["device"] == "cuda":
            import torch

            there, asked = torch.cuda.device_count(), trainer["n_gpus_per_node"]
            if there < asked:
                fix = f"trainer.n_gpus_per_node={there}" if there else "hardware=cpu"
                raise ConfigError(f"trainer.n_gpus_per_node={asked}, but this machine has {there} GPUs; write {fix}")
            if trainer["nnodes"] == 1:
                check_gpus(config, reward, there)
    _check_gpu_memory(config, reward)
    check_schedule(config, reward)


def check_gpus(config: Mapping[str, Any], reward: ClassmateRewardModelConfig, available: float) -> None:
    """The trainer's GPUs and those of dedicated classmates; on the CPU Ray's logical ones.

    Raises:
        ConfigError: with the numbers and what to write instead.
    """
    needed, own = needed_gpus(config, reward), trainer_gpus(config)
    if available >= needed:
        return
    if needed == own:
        raise ConfigError(
            f"the trainer asks for {own} GPUs, but Ray has {available:g}; write trainer.n_gpus_per_node=..."
        )
    many = reward.reader_words.many
    fewer = f"trainer.n_gpus_per_node={int(available) - needed + own} or " if available > needed - own else ""
    raise ConfigError(
        f"the trainer takes {own} GPUs and dedicated {many} {needed - own} more, but there are {available:g}; "
        f"write {fewer}reward_model.classmate_placement=colocated"
    )


def _check_widths(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> None:
    gpus = trainer_gpus(config)
    for engine in engines(frozen_models(reward)):
        if engine.in_policy_pool(config["trainer"]["device"]) and (engine.width > gpus or gpus % engine.width):
            raise ConfigError(
                f"{engine.frozen.keys}tensor_parallel_size={engine.width} does not divide the "
                f"trainer's {gpus} GPUs; write {math.gcd(engine.width, gpus)}, or placement: dedicated"
            )


def _check_gpu_memory(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> None:
    schedule = resolved_schedule(config, reward)
    share = gpu_memory_share(config, reward, schedule)
    if share <= 1 + 1e-9:
        return
    pooled = [engine for engine in engines(frozen_models(reward)) if engine.in_policy_pool(config["trainer"]["device"])]
    gpus = trainer_gpus(config)
    blocks = assign_gpus(pooled, gpus)
    beside = max(sum(gpu in block for block in blocks) for gpu in range(gpus))
    key = "reward_model.classmate_vllm_configs.gpu_memory_utilization"
    if schedule == "batched":
        raise ConfigError(
            f"the engines of one {reward.readers_called} ask for {share:.0%} of a GPU's memory; write for instance "
            f"{key}={int(90 / beside) / 100}, or fewer replicas"
        )
    each = int(90 / (1 + beside)) / 100
    in_turn = ", or reward_model.classmate_schedule=batched" if reward.classmate_free_cache_engine else ""
    raise ConfigError(
        f"policy and {reward.reader_words.many} are awake side by side and ask for {share:.0%} of a GPU's memory; "
        f"write for instance actor_rollout_ref.rollout.gpu_memory_utilization={each} and {key}={each}{in_turn}"
    )


def check_schedule(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> None:
    """Upstream's filter of groups needs rewards while rows are still written.

    Raises:
        ConfigError: for the schedule `batched`, which has no rewards by then.
    """
    filters = config["algorithm"].get("filter_groups") or {}
    if filters.get("enable") and taking_turns(reward, resolved_schedule(config, reward)):
        raise ConfigError(
            "algorithm.filter_groups.enable=True needs rewards while rows are written; classmate_schedule=batched "
            "gives them later; write reward_model.classmate_schedule=streamed, or classmate_placement=dedicated"
        )


def check_memory(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> None:
    """The weights alone fit into the machine's memory. Of memory that may be tight the plan only warns.

    Raises:
        ConfigError: with both numbers.
    """
    if os.environ.get("RAY_ADDRESS"):
        return
    needed, (total, _) = certain_memory_gib(config, reward), memory_gib()
    if needed > total:
        many = reward.reader_words.many
        raise ConfigError(
            f"the weights of policy and {many} alone take {needed:.1f} GiB, but this machine has {total:.1f}; take "
            f"smaller models, fewer {many}, or reward_model.classmate_replicas=1"
        )


def check_ray_cpus(config: Mapping[str, Any], reward: ClassmateRewardModelConfig, available: float | None) -> None:
    """Ray would wait for ever, without a message, for CPUs that it does not have. `None`: as many as are needed.

    Raises:
        ConfigError: with the number that is needed.
    """
    needed = needed_ray_cpus(config, reward)
    if available is not None and available < needed:
        raise ConfigError(
            f"Ray has {available:g} logical CPUs, but this run asks for {needed}; write ray_kwargs.ray_init.num_cpus="
            f"{needed} or more (logical: it may exceed the cores)"
        )
