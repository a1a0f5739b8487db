"""The resource plan that a run prints at its start: what runs where, and what it needs against what is there.

>>> print("\\n".join(resource_plan(config, reward_config)))
"""

import os
from pathlib import Path

from omegaconf import DictConfig

from verl.classmate.config import ClassmateRewardModelConfig
from verl.workers.classmate_workers import resolved_backend

PROCESS_GIB = 0.45
"""Memory of a process that has imported torch, transformers and verl."""

VLLM_CPU_GIB = 2.5
"""Memory of a vLLM engine on the CPU beside its weights."""

TRAINING_COPIES = 4
"""Weights, gradients and Adam's two moments."""


def weights_gib(path: str) -> float | None:
    """Size of a local model's weight files in GiB; None for a hub name."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        return None
    return sum(file.stat().st_size for file in folder.glob("*.safetensors")) / 2**30


def resource_plan(config: DictConfig, reward: ClassmateRewardModelConfig) -> list[str]:
    """Lines for a person: one per part, then the sums."""
    rollout = config.actor_rollout_ref.rollout
    device, gpus = config.trainer.device, config.trainer.n_gpus_per_node * config.trainer.nnodes
    where = "CPU" if device == "cpu" else f"{gpus} GPU{'s' if gpus > 1 else ''}"
    policy = weights_gib(config.actor_rollout_ref.model.path)
    lines = [
        _line(
            "policy, training",
            f"{config.actor_rollout_ref.actor.strategy}, {gpus} rank(s)",
            where,
            policy,
            TRAINING_COPIES,
        )
    ]
    lines.append(_line("policy, rollout", rollout.name, where, policy, 1))
    engines = [rollout.name]
    needed = (policy or 0.0) * (TRAINING_COPIES + 1)
    for index, spec in enumerate(reward.classmates):
        weights = weights_gib(spec.model)
        engine = resolved_backend(spec)
        engines.append(engine)
        needed += weights or 0.0
        lines.append(_line(f"classmate {index}", engine, where, weights, 1, Path(spec.model).name))
    if device == "cpu":
        # Driver, trainer rank(s), agent workers, queue and storage, one process an engine.
        processes = 3 + gpus + rollout.agent.num_workers + len(engines)
        needed += processes * PROCESS_GIB + engines.count("vllm") * VLLM_CPU_GIB
        lines.append(f"memory      about {needed:.1f} GiB in {processes} processes, {_memory_gib():.1f} GiB there")
    else:
        share = rollout.gpu_memory_utilization + sum(
            spec.gpu_memory_utilization for spec in reward.classmates if resolved_backend(spec) == "vllm"
        )
        lines.append(
            f"GPU memory  {share:.0%} of each GPU for engines while rows are made, asleep while the policy trains"
        )
    return lines


def _line(part: str, engine: str, where: str, weights: float | None, copies: int, name: str = "") -> str:
    size = "size unknown until loaded" if weights is None else f"{weights * copies:.3f} GiB"
    return f"{part:<18}{engine:<16}{where:<8}{size:<12} {name}".rstrip()


def _memory_gib() -> float:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
