"""What a run needs against what is there: the plan printed at its start, and the numbers that the checks compare.

Decision: only what is known before models are loaded is counted: sizes of weight files, processes, Ray's logical CPUs.

    >>> print("\\n".join(resource_plan(config, reward_config)))
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from verl.classmate.config import ClassmateRewardModelConfig
from verl.workers.classmate_mapping import MappingFile
from verl.workers.classmate_workers import resolved_backend

PROCESS_GIB = 0.45
"""Memory of a process that has imported torch, transformers and verl."""

VLLM_CPU_GIB = 2.5
"""Memory of a vLLM engine on the CPU beside its weights."""

TRAINING_COPIES = 4
"""Weights, gradients and Adam's two moments."""


def max_colocate_count(reward: ClassmateRewardModelConfig) -> int:
    """Actors that share one bundle of the pool, each with as large a part of its GPU and one logical CPU.

    Upstream's 3 (training, rollout, one to spare) makes a fourth wait for ever, so each classmate on vllm adds one.
    """
    return 3 + _vllm_classmates(reward)


def needed_ray_cpus(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> int:
    """Logical CPUs without which an actor of the run would wait for ever.

    The queue's controller and storage units, the bundles of the pool, each hf classmate. Agent-loop workers and vLLM
    servers hold none, since Ray's default for an actor is 0; remote classmates are no actors.
    """
    storage = config["transfer_queue"]["backend"]["SimpleStorage"]["num_data_storage_units"]
    ranks = config["trainer"]["n_gpus_per_node"] * config["trainer"]["nnodes"]
    hf_classmates = sum(resolved_backend(spec) == "hf" for spec in reward.classmates)
    return 1 + storage + ranks * max_colocate_count(reward) + hf_classmates


def gpu_memory_share(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> float:
    """The share of the fullest GPU's memory that engines of policy and classmates ask for together; 0 on the CPU."""
    if config["trainer"]["device"] != "cuda":
        return 0.0
    gpus = config["trainer"]["n_gpus_per_node"] * config["trainer"]["nnodes"]
    rollout = config["actor_rollout_ref"]["rollout"]
    shares = [float(rollout["gpu_memory_utilization"]) if rollout["name"] == "vllm" else 0.0] * gpus
    for index, spec in enumerate(reward.classmates):
        if resolved_backend(spec) == "vllm":
            width = spec.tensor_parallel_size or 1
            first = index % max(gpus // width, 1) * width
            for gpu in range(first, min(first + width, gpus)):
                shares[gpu] += spec.gpu_memory_utilization or 0.0
    return max(shares)


def _vllm_classmates(reward: ClassmateRewardModelConfig) -> int:
    return sum(resolved_backend(spec) == "vllm" for spec in reward.classmates)


def resource_plan(config: DictConfig, reward: ClassmateRewardModelConfig) -> list[str]:
    """Lines for a person: a table with one row per part, then what is needed against what is there."""
    rollout, trainer = config.actor_rollout_ref.rollout, config.trainer
    on_cpu, ranks = trainer.device == "cpu", trainer.n_gpus_per_node * trainer.nnodes
    where = "CPU" if on_cpu else _plural(ranks, "GPU")
    policy = weights_gib(config.actor_rollout_ref.model.path, as_float32=on_cpu)
    training = f"{config.actor_rollout_ref.actor.strategy}, {_plural(ranks, 'rank')}"
    parts = [
        ("policy, training", training, policy, TRAINING_COPIES, "weights, gradients, Adam"),
        ("policy, rollout", rollout.name, policy, 1, ""),
    ]
    if config.algorithm.adv_estimator == "gae":
        critic = weights_gib(config.critic.model.path, as_float32=on_cpu)
        parts.insert(1, ("critic, training", training, critic, TRAINING_COPIES, "weights, gradients, Adam"))
    for index, spec in enumerate(reward.classmates):
        weights = weights_gib(spec.model, as_float32=on_cpu)
        parts.append((f"classmate {index}", resolved_backend(spec), weights, 1, Path(spec.model).name))
    servers = MappingFile(reward.classmate_cot_reward_configs.host_classmate_name_to_url_json_fn)
    table = [("part", "engine", "where", "memory", "")]
    for index, (part, engine, weights, copies, note) in enumerate(parts):
        if engine == "openai":
            server = servers.find(reward.classmates[index - 2].model)
            table.append((part, engine, "remote", "its own", f"{note} at {server.url if server else 'no server'}"))
        else:
            table.append((part, engine, where, "not known yet" if weights is None else _size(weights * copies), note))
    parts = [part for part in parts if part[1] != "openai"]
    widths = [max(len(row[column]) for row in table) for column in range(5)]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]

    if not on_cpu:
        share = gpu_memory_share(config, reward)
        return [
            *lines,
            f"GPUs         {ranks} needed, {_gpus_there()}",
            f"GPU memory   {share:.0%} of the fullest GPU for engines that make rows, asleep while the policy trains",
        ]
    # Driver, two of the queue, training ranks, agent workers, one process an engine.
    engines = [engine for part, engine, *_ in parts if not part.endswith("training")]
    processes = 3 + ranks + rollout.agent.num_workers + len(engines)
    needed = processes * PROCESS_GIB + engines.count("vllm") * VLLM_CPU_GIB
    needed += sum((weights or 0.0) * copies for _, _, weights, copies, _ in parts)
    total, free = _memory_gib()
    lines.append(
        f"memory       about {needed:.1f} GiB needed by {processes} processes; {total:.1f} GiB there, {free:.1f} free"
    )
    if needed > free:
        lines.append(
            "warning: memory may not suffice; close other programs, take smaller models, fewer classmates or engine hf"
        )
    return lines


def weights_gib(path: str, *, as_float32: bool) -> float | None:
    """Size in memory of a local model's weights in GiB; None for a hub name.

    Args:
        path: the model.
        as_float32: whether the run holds them in float32, however they are stored.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        return None
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors")) / 2**30
    config = json.loads((folder / "config.json").read_text())
    stored = config.get("dtype") or config.get("torch_dtype")
    return size * (2 if as_float32 and stored in ("bfloat16", "float16") else 1)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _size(gib: float) -> str:
    return f"{gib:.1f} GiB" if gib >= 1 else f"{gib * 1024:.1f} MiB"


def _gpus_there() -> str:
    import torch

    count = torch.cuda.device_count()
    if count == 0:
        return "none in this machine"
    device = torch.cuda.get_device_properties(0)
    return f"{count} in this machine ({device.name}, {device.total_memory / 2**30:.0f} GiB)"


def _memory_gib() -> tuple[float, float]:
    """(total, free) memory of this machine or of the container that it is."""
    import psutil

    memory = psutil.virtual_memory()
    total, free = memory.total, memory.available
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if os.access(limit, os.R_OK) and limit.read_text().strip().isdigit():
        allowed = int(limit.read_text())
        total, free = min(total, allowed), min(free, max(allowed - int(used.read_text()), 0))
    return total / 2**30, free / 2**30
