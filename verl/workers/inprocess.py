"""Engines and training workers inside the process that uses them: what `debug=true` runs instead of Ray's actors.

One decision: the classes are those that Ray runs, called directly. An engine generates in the thread that asks, and an
error is raised where it happens instead of becoming an outcome or a line in another process's log.

    >>> join_alone("cpu")
    >>> actor = training_worker(config, "actor")              # upstream's, world size 1
    >>> server = rollout_server(config)
    >>> load_weights(server, actor)
    >>> client = InProcessClient(config, reward_config, classmate_servers(config, reward_config), server)
"""

import asyncio
import copy
import dataclasses
import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from omegaconf import DictConfig

from verl.classmate.config import ClassmateRewardModelConfig
from verl.classmate.frozen import frozen_models
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.device import get_nccl_backend
from verl.workers.classmates.client import ClassmateClient
from verl.workers.classmates.engines import ENGINE_CLASSES, context_length, hf_engine_config
from verl.workers.classmates.placement import resolved_engine
from verl.workers.config import HFModelConfig, RolloutConfig, TrainingWorkerConfig
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker
from verl.workers.rollout.hf_rollout_server.replica import engine_config
from verl.workers.rollout.hf_rollout_server.server import HFServer
from verl.workers.rollout.hf_rollout_server.weights import WeightLoader, pack
from verl.workers.rollout.replica import TokenOutput
from verl.workers.utils.losses import value_loss


def join_alone(device: str) -> None:
    """A process group of this process alone, which opens no port; `device` is `cpu` or `cuda`."""
    # Upstream's workers read them.
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    if not torch.distributed.is_initialized():
        backend = "cpu:gloo" if device == "cpu" else f"cpu:gloo,{device}:{get_nccl_backend()}"
        torch.distributed.init_process_group(backend, store=torch.distributed.HashStore(), rank=0, world_size=1)


def training_worker(config: DictConfig, role: str) -> ActorRolloutRefWorker:
    """Upstream's worker of the policy (`actor`) or of its frozen copy (`ref`), with the model loaded."""
    # It renames keys of the node, which Ray's actors have a copy of.
    worker = ActorRolloutRefWorker(config=copy.deepcopy(config.actor_rollout_ref), role=role)
    worker.init_model()
    return worker


def critic_worker(config: DictConfig) -> TrainingWorker:
    """Upstream's worker of the critic, with the model loaded and its loss set."""
    critic: Any = omega_conf_to_dataclass(config.critic)
    critic.engine.infer_max_token_len_per_gpu = critic.ppo_infer_max_token_len_per_gpu
    critic.engine.max_token_len_per_gpu = critic.ppo_infer_max_token_len_per_gpu
    worker = TrainingWorker(
        TrainingWorkerConfig(
            model_type="value_model",
            model_config=critic.model,
            engine_config=critic.engine,
            optimizer_config=critic.optim,
            checkpoint_config=critic.checkpoint,
        )
    )
    worker.reset()
    worker.set_loss_fn(partial(value_loss, config=critic))
    return worker


class PolicyServer(HFServer):
    """The policy's engine behind the one method that an agent loop calls on its client."""

    async def generate(self, request_id: str, *, mm_processor_output: Any = None, **kwargs: Any) -> TokenOutput:  # type: ignore[override]
        """As `HFServer.generate`, with the version of the weights where upstream's client puts it."""
        output = await super().generate(request_id=request_id, **kwargs)
        version = output.extra_fields["global_steps"]
        output.extra_fields |= {"min_global_steps": version, "max_global_steps": version}
        return output


def rollout_server(config: DictConfig) -> PolicyServer:
    """The policy's engine; it serves after `load_weights`."""
    rollout: RolloutConfig = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    model: HFModelConfig = omega_conf_to_dataclass(config.actor_rollout_ref.model)
    engine = engine_config(rollout, model, device=config.trainer.device, replica_rank=0)
    return PolicyServer(
        dataclasses.replace(engine, own_thread=False),
        response_length=rollout.response_length,
        total_length=rollout.prompt_length + rollout.response_length,
    )


def load_weights(server: HFServer, actor: ActorRolloutRefWorker, step: int) -> None:
    """Copies the policy's weights into its engine, where they are version `step`."""
    assert actor.actor is not None, "the worker of the role `actor`"
    weights, _ = actor.actor.engine.get_per_tensor_param()
    loader = WeightLoader(server.engine.model)
    for name, tensor in weights:
        loader.load([pack(name, tensor)])
    loader.finish()
    asyncio.run(server.set_global_steps(step))


def classmate_servers(config: DictConfig, reward_config: ClassmateRewardModelConfig) -> dict[str, Any]:
    """Engines of those frozen models that need one, by their names, with the models loaded."""
    servers = {}
    for frozen in frozen_models(reward_config):
        if resolved_engine(frozen) == "hf":
            engine = hf_engine_config(config, reward_config, frozen)
            servers[frozen.name] = ENGINE_CLASSES[frozen.task](dataclasses.replace(engine, own_thread=False))
    return servers


class InProcessClient(ClassmateClient):
    """Asks frozen models that live here, and remote ones. What goes wrong in one that lives here is raised."""

    def __init__(
        self,
        config: DictConfig,
        reward_config: ClassmateRewardModelConfig,
        servers: Mapping[str, Any],
        policy: PolicyServer,
    ) -> None:
        """`servers` as made by `classmate_servers`; `policy` answers for live self-play."""
        super().__init__(reward_config, max_model_len=context_length(config, reward_config))
        self._servers = servers
        self._policy_server = policy

    async def _ask_engines(self, model: str, method: str, arguments: dict[str, Any]) -> Any:
        return await getattr(self._servers.get(model, self._policy_server), method)(**arguments)
