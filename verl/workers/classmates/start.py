"""Starts the engines of frozen models: Ray actors with the embedded engine, upstream's replicas with vLLM.

One decision: an engine is started from its value and from nothing else that distinguishes models, so that a restart is
the same call as the start.

    >>> starter = EngineStarter(config, reward_config)
    >>> await starter.start(member)
"""

import dataclasses
import os
from typing import Any

import ray
from omegaconf import DictConfig, OmegaConf
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from verl.classmate.config import ClassmateRewardModelConfig
from verl.plugin.platform import get_platform
from verl.workers.classmates.engines import ENGINE_CLASSES, hf_engine_config, vllm_rollout_config
from verl.workers.classmates.members import Member, own_processes
from verl.workers.classmates.placement import DEDICATED_CPUS, Engine, vllm_suffix
from verl.workers.engine_health import CONCURRENT_CALLS


class EngineStarter:
    """Knows what all engines of a run have in common."""

    def __init__(self, config: DictConfig, reward_config: ClassmateRewardModelConfig, *, device: str) -> None:
        """Starts nothing.

        Args:
            config: the whole resolved config.
            reward_config: its typed `reward_model` node.
            device: `cuda` or `cpu`.
        """
        self._config = config
        self._reward_config = reward_config
        self._device = device
        self.pool: Any = None
        """The trainer's resource pool, once it is known."""

    async def start(self, member: Member) -> None:
        """Starts an engine; returns when it serves, for those outside the trainer's pool with hf at once.

        Raises:
            ClassmateEngineError: naming the engine.
        """
        with member.starting():
            if member.engine.backend == "vllm":
                await self._start_vllm(member)
            else:
                self.start_hf(member)
                if member.pooled:
                    await self.until_serving(member)

    async def until_serving(self, member: Member) -> None:
        """Returns when an hf engine has loaded its model."""
        await member.handle.ready.remote()
        member.processes = await member.handle.__ray_call__.remote(own_processes)

    def start_hf(self, member: Member) -> None:
        """Starts an engine with hf, which loads its model while the caller goes on."""
        on_gpu = self._device == "cuda"
        frozen = member.engine.frozen
        engine = hf_engine_config(self._config, self._reward_config, frozen)
        if on_gpu and member.pooled:
            engine = dataclasses.replace(engine, memory_fraction=frozen.memory_share)
        cpus = DEDICATED_CPUS if member.engine.dedicated else 1
        if "OMP_NUM_THREADS" not in os.environ:
            engine = dataclasses.replace(engine, num_threads=cpus)
        options: dict[str, Any] = {"num_cpus": cpus}
        if member.pooled:
            groups = self.pool.get_placement_groups(device_name=self._device)
            group, bundle = divmod(member.gpus[0], self.pool.store[0])
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                groups[group], placement_group_bundle_index=bundle
            )
            options |= get_platform().ray_resource_options(1 / self.pool.max_colocate_count)
        elif on_gpu:
            options |= get_platform().ray_resource_options(1)
        member.handle = (
            ray.remote(ENGINE_CLASSES[frozen.task])
            .options(name=member.engine.name, max_concurrency=CONCURRENT_CALLS, **options)
            .remote(engine, frees_memory=member.sleeps, patience_s=frozen.request_timeout)
        )

    async def _start_vllm(self, member: Member) -> None:
        from verl.single_controller.ray.base import split_resource_pool
        from verl.workers.classmates.vllm_server import ClassmateVllmReplica

        engine, frozen = member.engine, member.engine.frozen
        rollout: Any = vllm_rollout_config(self._config, frozen, sleeps=member.sleeps)
        model = {
            "_target_": "verl.workers.config.HFModelConfig",
            "path": frozen.model,
            "trust_remote_code": self._reward_config.classmate_trust_remote_code,
        }
        member.replica = ClassmateVllmReplica(
            replica_rank=engine.replica,
            config=rollout,
            model_config=OmegaConf.create(model),
            gpus_per_node=engine.width if engine.dedicated else self._config.trainer.n_gpus_per_node,
            is_reward_model=True,
            name_suffix=vllm_suffix(frozen),
        )
        if engine.dedicated and member.pool is None:
            member.pool = self._own_pool(engine)
        elif not engine.dedicated:
            member.pool = split_resource_pool(self.pool, split_size=engine.width)[member.gpus[0] // engine.width]
        await member.replica.init_colocated(member.pool)
        member.handle = member.replica.server_handle
        await member.handle.set_patience.remote(frozen.request_timeout)
        found = [await server.__ray_call__.remote(own_processes) for server in member.replica.servers]
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
