"""What a run needs against what is there: the plan printed at its start, and the numbers that the checks compare.

Decision: only what is known before models are loaded is counted: sizes of weights, processes, Ray's logical CPUs. What
GPUs hold at each time is reckoned when a start fills in what nobody typed (`gpu_plan`), and told there.

    >>> print("\\n".join(resource_plan(config, reward_config)))
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from verl.classmate.config import ClassmateRewardModelConfig, JudgeEngineSpec
from verl.trainer.resources.model_sizes import model_size
from verl.utils.model_servers.mapping import MappingFile
from verl.workers.classmates.placement import (
    POLICY,
    asked_in_turn,
    dedicated_gpus,
    engine_cpus,
    engines,
    gpu_memory_share,
    max_colocate_count,
    resolved_backend,
    resolved_schedule,
    trainer_gpus,
)

PROCESS_GIB = 0.45
"""Memory of a process that has imported torch, transformers and verl."""

VLLM_CPU_GIB = 2.5
"""Memory of a vLLM engine on the CPU beside its weights."""

TRAINING_COPIES = 4
"""Weights, gradients and Adam's two moments."""


def needed_ray_cpus(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> int:
    """Logical CPUs without which an actor of the run would wait for ever.

    The queue's controller and storage units, the bundles of the pool, engines outside of it. Agent-loop workers and
    vLLM servers hold none, since Ray's default for an actor is 0; remote classmates are
    no actors.
    """
    storage = config["transfer_queue"]["backend"]["SimpleStorage"]["num_data_storage_units"]
    return 1 + storage + trainer_gpus(config) * max_colocate_count(config, reward) + engine_cpus(config, reward)


def needed_gpus(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> int:
    """GPUs of the trainer and of dedicated classmates; on the CPU the logical ones that Ray schedules ranks by."""
    return trainer_gpus(config) + dedicated_gpus(reward, config["trainer"]["device"])


def certain_memory_gib(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> float:
    """Memory on the CPU of all weights whose size is known: the least that the run takes. 0 on a GPU."""
    if config["trainer"]["device"] != "cpu":
        return 0.0
    copies = TRAINING_COPIES + 1 + _has_reference(config)
    needed = (weights_gib(config["actor_rollout_ref"]["model"]["path"], as_float32=True) or 0.0) * copies
    if config["algorithm"]["adv_estimator"] == "gae":
        needed += (weights_gib(config["critic"]["model"]["path"], as_float32=True) or 0.0) * TRAINING_COPIES
    return needed + sum(weights_gib(engine.spec.model, as_float32=True) or 0.0 for engine in engines(reward))


def resource_plan(config: DictConfig, reward: ClassmateRewardModelConfig) -> list[str]:
    """Lines for a person: a table with one row per part, then what is needed against what is there."""
    rollout, trainer = config.actor_rollout_ref.rollout, config.trainer
    on_cpu, ranks = trainer.device == "cpu", trainer_gpus(config)
    where = "CPU" if on_cpu else _plural(ranks, "GPU")
    path = config.actor_rollout_ref.model.path
    actor_fsdp = config.actor_rollout_ref.actor.fsdp_config
    trained = weights_gib(path, as_float32=on_cpu or actor_fsdp.model_dtype == "fp32")
    training = f"{config.actor_rollout_ref.actor.strategy}, {_plural(ranks, 'rank')}"
    parts = [
        ("policy, training", training, where, trained, TRAINING_COPIES, "weights, gradients, Adam"),
        ("policy, rollout", rollout.name, where, weights_gib(path, as_float32=on_cpu), 1, ""),
    ]
    if _has_reference(config):
        ref_fsdp = config.actor_rollout_ref.ref.fsdp_config
        reference = weights_gib(path, as_float32=on_cpu or ref_fsdp.model_dtype == "fp32")
        # Upstream's FSDP2 keeps a model that is not trained in the host's memory.
        parts.insert(1, ("reference", training, "CPU", reference, 1, "start weights"))
    if config.algorithm.adv_estimator == "gae":
        critic = weights_gib(config.critic.model.path, as_float32=on_cpu or config.critic.fsdp.model_dtype == "fp32")
        parts.insert(1, ("critic, training", training, where, critic, TRAINING_COPIES, "weights, gradients, Adam"))
    judges: list[tuple[str, str, str, float | None, int, str]] = []
    running = engines(reward)
    for index, spec in enumerate(reward.classmates):
        own = [engine for engine in running if engine.classmate == index]
        weights = 0.0 if resolved_backend(spec) == POLICY else weights_gib(spec.model, as_float32=on_cpu)
        place = where if not own or not own[0].dedicated else _own_place(own[0].width, on_cpu)
        backend = resolved_backend(spec) + (f" x {len(own)}" if len(own) > 1 else "")
        parts.append((f"classmate {index}", backend, place, weights, len(own), Path(spec.model).name))
    for one in reward.judges:
        own = [engine for engine in running if isinstance(engine.spec, JudgeEngineSpec) and engine.spec.judge == one]
        name = "judge" if one.role == "llm_judge" else "judge, validation"
        weights = weights_gib(one.model, as_float32=on_cpu) if own else 0.0
        place = "remote" if not own else _own_place(own[0].width, on_cpu) if own[0].dedicated else where
        backend = one.backend + (f" x {len(own)}" if len(own) > 1 else "")
        at = f" at {one.base_url}" if one.backend == "openai" else ""
        judges.append((name, backend, place, weights, len(own), f"{Path(one.model).name}{at}"))
    servers = MappingFile(reward.classmate_cot_reward_configs.host_classmate_name_to_url_json_fn)
    table = [("part", "engine", "where", "memory", "")]
    first = len(parts) - len(reward.classmates)
    for index, (part, engine, place, weights, copies, note) in enumerate(parts):
        if engine == "openai":
            server = servers.find(reward.classmates[index - first].model)
            table.append((part, engine, "remote", "its own", f"{note} at {server.url if server else 'no server'}"))
        else:
            table.append((part, engine, place, "not known yet" if weights is None else _size(weights * copies), note))
    for part, engine, place, weights, copies, note in judges:
        size = "not known yet" if weights is None else _size(weights * copies)
        table.append((part, engine, place, "its own" if place == "remote" else size, note))
    widths = [max(len(row[column]) for row in table) for column in range(5)]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]

    schedule = resolved_schedule(config, reward)
    if asked_in_turn(reward, schedule):
        lines.append("schedule     batched: all rows are written first, then one classmate after the other reads them")
    if not on_cpu:
        share = gpu_memory_share(config, reward, schedule)
        lines += [
            f"GPUs         {needed_gpus(config, reward)} needed, {_gpus_there()}",
            f"GPU memory   {share:.0%} of the fullest GPU for engines that make rows, asleep while the policy trains",
        ]
        return lines
    # Driver, two of the queue, training ranks, agent workers, one process an engine.
    backends = [rollout.name, *(engine.backend for engine in running)]
    processes = 1 if config.debug else 3 + ranks + rollout.agent.num_workers + len(backends)
    needed = processes * PROCESS_GIB + backends.count("vllm") * VLLM_CPU_GIB + certain_memory_gib(config, reward)
    total, free = memory_gib()
    lines.append(
        f"memory       about {needed:.1f} GiB needed by {_plural(processes, 'process', 'processes')}; "
        f"{total:.1f} GiB there, {free:.1f} free"
    )
    if needed > free:
        lines.append(
            "warning: memory may not suffice; close other programs, take smaller models, fewer classmates or engine hf"
        )
    return lines


def _has_reference(config: Mapping[str, Any]) -> bool:
    """Whether the start weights stay beside the trained ones, for a KL term."""
    return bool(config["actor_rollout_ref"]["actor"]["use_kl_loss"])


def _own_place(width: int, on_cpu: bool) -> str:
    return "own CPUs" if on_cpu else f"own {_plural(width, 'GPU')}"


def weights_gib(path: str, *, as_float32: bool) -> float | None:
    """Size in memory of a model's weights in GiB; None where it is neither here nor to be asked for.

    Args:
        path: the model.
        as_float32: whether the run holds them in float32, however they are stored.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        known = model_size(path)
        return None if known is None else known.parameters * (4 if as_float32 else 2) / 2**30
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors")) / 2**30
    config = json.loads((folder / "config.json").read_text())
    stored = config.get("dtype") or config.get("torch_dtype")
    return size * (2 if as_float32 and stored in ("bfloat16", "float16") else 1)


def _plural(count: int, noun: str, plural: str | None = None) -> str:
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def _size(gib: float) -> str:
    return f"{gib:.1f} GiB" if gib >= 1 else f"{gib * 1024:.1f} MiB"


def _gpus_there() -> str:
    import torch

    count = torch.cuda.device_count()
    if count == 0:
        return "none in this machine"
    first = torch.cuda.get_device_properties(0)
    return f"{count} in this machine ({first.name}, {first.total_memory / 2**30:.0f} GiB)"


def memory_gib() -> tuple[float, float]:
    """(total, free) memory of this machine or of the container that it is."""
    import psutil

    memory = psutil.virtual_memory()
    total, free = memory.total, memory.available
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if os.access(limit, os.R_OK) and limit.read_text().strip().isdigit():
        allowed = int(limit.read_text())
        total, free = min(total, allowed), min(free, max(allowed - int(used.read_text()), 0))
    return total / 2**30, free / 2**30
