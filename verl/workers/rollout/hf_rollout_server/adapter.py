"""The trainer's side of the engine "hf": sends the policy's weights to the replica that this rank feeds.

One decision: weights go through Ray's object store, bucket after bucket, and the server copies each in place. That
works wherever Ray does; nothing is served from the first bucket to the last, so no response mixes two versions.

    adapter = HFServerAdapter(config=rollout_config, model_config=model_config, device_mesh=None)
    await adapter.update_weights(engine.get_per_tensor_param()[0], global_steps=3)
"""

import os
from collections.abc import AsyncIterable, Iterable
from typing import Any

import ray
import torch
from ray.actor import ActorHandle
from torch.distributed.device_mesh import DeviceMesh

from verl.workers.config import HFModelConfig, RolloutConfig
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.hf_rollout_server.replica import server_name
from verl.workers.rollout.hf_rollout_server.weights import buckets

NamedTensors = Iterable[tuple[str, torch.Tensor]] | AsyncIterable[tuple[str, torch.Tensor]]


class HFServerAdapter(BaseRollout):
    """Client of one `HFServer`, found by name at its first use: servers start after the trainer's workers."""

    def __init__(
        self,
        config: RolloutConfig,
        model_config: HFModelConfig,
        device_mesh: DeviceMesh | None,
        replica_rank: int = -1,
    ) -> None:
        """`replica_rank` -1 means this process's rank: every rank feeds a replica of its own. The mesh is not used."""
        super().__init__(config, model_config, device_mesh)  # type: ignore[arg-type]
        self.replica_rank = int(os.environ["RANK"]) if replica_rank == -1 else replica_rank
        self.is_leader_rank = True
        self._server: ActorHandle | None = None

    @property
    def server(self) -> ActorHandle:
        """The replica's server actor."""
        if self._server is None:
            self._server = ray.get_actor(server_name(self.replica_rank))
        return self._server

    async def resume(self, tags: list[str]) -> None:
        """Brings weights and service back, when verl frees the engine's memory between steps."""
        if self.config.free_cache_engine:
            await self.server.wake_up.remote(tags=tags)

    async def release(self) -> None:
        """Frees the engine's memory, when verl is configured to."""
        if self.config.free_cache_engine:
            await self.server.sleep.remote()

    async def update_weights(
        self,
        weights: NamedTensors,
        wire_format: str = "named_tensors",
        *,
        global_steps: int | None = None,
        peft_config: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Replaces the rollout's weights by `weights`, named as in the model, which then are version `global_steps`.

        Keywords that upstream adds for adapters and other wire formats are ignored.

        Raises ValueError for unknown, missing or misshapen weights, for adapters that are not merged, and for weights
        sent as differences.
        """
        if peft_config is not None:
            raise ValueError("engine 'hf' needs merged adapters: set actor_rollout_ref.model.lora.merge=true")
        if wire_format != "named_tensors":
            raise ValueError(f"engine 'hf' takes whole tensors, not {wire_format!r}: choose another checkpoint backend")
        await self.server.begin_weight_update.remote()
        bucket_bytes = self.config.checkpoint_engine.update_weights_bucket_megabytes << 20
        async for bucket in buckets(weights, bucket_bytes=bucket_bytes):
            await self.server.load_weights.remote(bucket)
        await self.server.finish_weight_update.remote(global_steps)
