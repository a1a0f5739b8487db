"""verl's rollout replica for the engine "hf": one server process, placed where verl wants it.

One decision: frozen helpers (reward and teacher models) get their server straight into a bundle of the resource pool.
Upstream first fills the pool with weight-receiving workers and puts the server beside them; a frozen model receives
none, and each such process costs seconds and most of a gigabyte.

    RolloutReplicaRegistry.register("hf", lambda: HFReplica)
    replica = HFReplica(replica_rank=0, config=rollout_config, model_config=model_config, gpus_per_node=1)
    await replica.init_hybrid(worker_group)
    await replica.server_handle.generate.remote(prompt_ids, sampling_params, request_id)
"""

import asyncio
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from verl.plugin.platform import get_platform
from verl.single_controller.ray import RayResourcePool, ResourcePoolManager
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.device import get_device_name, get_resource_name, get_visible_devices_keyword
from verl.workers.config import HFModelConfig, RolloutConfig
from verl.workers.rollout.hf_rollout_server.engine import EngineConfig
from verl.workers.rollout.hf_rollout_server.server import start_server
from verl.workers.rollout.replica import RolloutMode, RolloutReplica


def server_name(replica_rank: int, *, kind: str = "", suffix: str = "") -> str:
    """Name of a replica's server actor, by which `HFServerAdapter` finds it; `kind` is "", "reward_" or "teacher_"."""
    return f"hf_server_{kind}{replica_rank}_0{suffix}"


def engine_config(rollout: RolloutConfig, model: HFModelConfig, *, device: str, replica_rank: int) -> EngineConfig:
    """The engine of a policy's rollout. `rollout.engine_kwargs.hf` overrides fields of `EngineConfig` by name.

    Raises ValueError for parallelism, quantisation and fields that the engine lacks.
    """
    for key in ("tensor_model_parallel_size", "pipeline_model_parallel_size", "data_parallel_size"):
        if getattr(rollout, key) != 1:
            raise ValueError(f"rollout.{key}={getattr(rollout, key)}: engine 'hf' runs in one process, set it to 1")
    if rollout.quantization is not None:
        raise ValueError(
            f"rollout.quantization={rollout.quantization!r}: engine 'hf' does not quantise, set it to null"
        )
    overrides = dict((rollout.engine_kwargs or {}).get("hf") or {})
    unknown = sorted(overrides.keys() - EngineConfig.__dataclass_fields__.keys())
    if unknown:
        raise ValueError(
            f"rollout.engine_kwargs.hf {unknown}: unknown, known are {sorted(EngineConfig.__dataclass_fields__)}"
        )
    values: dict[str, Any] = {
        "model_path": model.local_path,
        "tokenizer_path": model.local_tokenizer_path,
        "dtype": rollout.dtype,
        "device": device,
        "load_format": rollout.load_format,
        "seed": rollout.seed + replica_rank,
        "max_model_len": rollout.max_model_len,
        "max_batch_size": rollout.max_num_seqs,
    }
    return EngineConfig(**{**values, **overrides})


class HFReplica(RolloutReplica):
    """One `HFServer`. `servers`, `server_handle` and `server_address` are set once an `init_...` has returned."""

    async def init_colocated(self, resource_pool: RayResourcePool) -> None:
        """Puts the server into the pool's processes; a frozen helper's server straight into the pool's first bundle."""
        if not self._is_frozen:
            return await super().init_colocated(resource_pool)
        self.rollout_mode = RolloutMode.COLOCATED
        await self._launch_in_pool(resource_pool)
        return None

    async def init_standalone(self) -> None:
        """Makes a pool of its own for the server."""
        if not self._is_frozen:
            return await super().init_standalone()
        self.rollout_mode = RolloutMode.STANDALONE
        name = f"rollout_pool_{self._kind}{self.replica_rank}{self.name_suffix}"
        manager = ResourcePoolManager(resource_pool_spec={name: [1]}, mapping={}, max_colocate_count=1)
        manager.create_resource_pool()
        await self._launch_in_pool(manager.resource_pool_dict[name])
        return None

    async def launch_servers(self) -> None:
        """Starts the server on the node and device of this replica's only worker."""
        assert len(self.workers) == 1, f"engine 'hf' serves one worker a replica, got {len(self.workers)}"
        node_id, devices = await self.workers[0].__ray_call__.remote(_node_and_devices)
        environment = dict.fromkeys(get_platform().ray_noset_envvars(), "1")
        await self._start(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node_id, soft=False),
            runtime_env={"env_vars": {**environment, get_visible_devices_keyword(): ",".join(devices)}},
        )

    async def sleep(self) -> None:
        """Lets the requests under way end, then sleeps."""
        await self.servers[0].wait_for_requests_to_drain.remote()
        await super().sleep()

    async def abort_request(self, request_id: str) -> dict[str, Any]:
        """Aborts one request, see `HFServer.abort_request`."""
        return await self.servers[0].abort_request.remote(request_id)

    @property
    def _is_frozen(self) -> bool:
        return self.is_reward_model or self.is_teacher_model

    @property
    def _kind(self) -> str:
        return "reward_" if self.is_reward_model else "teacher_" if self.is_teacher_model else ""

    async def _launch_in_pool(self, pool: RayResourcePool) -> None:
        self.resource_pool = pool
        groups = await asyncio.to_thread(pool.get_placement_groups, device_name=get_device_name())
        # A sub-pool shares the groups of the pool that it was split from, and starts at one of their bundles.
        group, bundle = divmod(getattr(pool, "start_bundle_index", 0), pool.store[0])
        await self._start(
            scheduling_strategy=PlacementGroupSchedulingStrategy(groups[group], placement_group_bundle_index=bundle),
            num_cpus=1,
            **get_platform().ray_resource_options(1 / pool.max_colocate_count),
        )

    async def _start(self, **options: Any) -> None:
        model: Any = omega_conf_to_dataclass(self.model_config, dataclass_type=HFModelConfig)  # type: ignore[arg-type]
        config = engine_config(self.config, model, device=get_device_name(), replica_rank=self.replica_rank)
        name = server_name(self.replica_rank, kind=self._kind, suffix=self.name_suffix)
        server = start_server(
            config,
            name=name,
            server_kwargs={
                "response_length": self.config.response_length,
                "total_length": self.config.prompt_length + self.config.response_length,
                "frees_memory": self.config.free_cache_engine and self.rollout_mode != RolloutMode.STANDALONE,
            },
            **options,
        )
        await server.ready.remote()
        self.servers = [server]
        self._server_handle = server
        self._server_address = name


def _node_and_devices(worker: Any) -> tuple[str, list[str]]:
    context = ray.get_runtime_context()
    return context.get_node_id(), context.get_accelerator_ids()[get_resource_name()]
