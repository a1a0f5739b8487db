"""What runs a frozen model that is an engine of the run, and the settings with which it starts.

One decision: the class of an engine follows from what its model is asked for (`FrozenModel.task`), its settings from
the model's other fields, so that an engine knows nothing of who asks it.

    >>> engine = hf_engine_config(config, reward_config, frozen)
    >>> worker = ENGINE_CLASSES[frozen.task](engine, patience_s=frozen.request_timeout)
    >>> outputs = await worker.sample_cot_continuation(prompt_ids, [{"max_tokens": 64, "seed": 1}], "request")
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from verl.classmate.config import ClassmateRewardModelConfig
from verl.classmate.frozen import FrozenModel
from verl.classmate.seeds import fresh_engine_seed
from verl.utils.device import get_device_name
from verl.workers.engine_health import Patience
from verl.workers.rollout.hf_rollout_server.engine import EngineConfig
from verl.workers.rollout.hf_rollout_server.server import HFServer
from verl.workers.rollout.replica import TokenOutput
from verl.workers.scoring_worker import ScoringJudgeWorker
from verl.workers.step_worker import StepScoringWorker


class ClassmateWorker(HFServer):
    """The Ray actor of one classmate on the embedded engine; `sample_cot_continuation` adds S samples in one call."""

    def __init__(self, config: EngineConfig, *, frees_memory: bool = False, patience_s: float | None = None) -> None:
        """Loads the model.

        Args:
            config: the engine.
            frees_memory: whether `sleep` moves the weights to the host's memory.
            patience_s: longest time of a request; None: no limit.
        """
        super().__init__(config, frees_memory=frees_memory)
        self._patience = Patience(patience_s)

    async def generate(self, *args: Any, **kwargs: Any) -> TokenOutput:
        """As `HFServer.generate`; a request whose time is over is aborted.

        Raises:
            TimeoutError: it is over.
        """
        return await self._patience.wait(super().generate(*args, **kwargs))

    async def ping(self) -> int:
        """How many requests in a row ran out of time; a living engine answers."""
        return self._patience.unanswered

    async def sample_cot_continuation(
        self, prompt_ids: list[int], sampling_params: list[dict[str, Any]], request_id: str
    ) -> list[Any]:
        """One upstream `TokenOutput` for each entry of `sampling_params`; all S requests join the same batch."""
        return list(
            await asyncio.gather(
                *(
                    self.generate(prompt_ids, params, f"{request_id}-{sample}")
                    for sample, params in enumerate(sampling_params)
                )
            )
        )


ENGINE_CLASSES: Mapping[str, type[Any]] = {
    "generate": ClassmateWorker,
    "score": ScoringJudgeWorker,
    "steps": StepScoringWorker,
}
"""By a model's task, what runs it without vLLM: made of an `EngineConfig`, `frees_memory` and `patience_s`."""


def context_length(config: DictConfig, reward_config: ClassmateRewardModelConfig) -> int:
    """Most tokens of a classmate's prompt and answer together."""
    return reward_config.classmate_generation_configs.context_length(
        max_prompt_length=config.data.max_prompt_length, max_response_length=config.data.max_response_length
    )


def hf_engine_config(
    config: DictConfig, reward_config: ClassmateRewardModelConfig, frozen: FrozenModel
) -> EngineConfig:
    """The embedded engine of a model."""
    return EngineConfig(
        model_path=frozen.model,
        dtype=_dtype(frozen),
        device="cuda" if get_device_name() == "cuda" else "cpu",
        max_model_len=frozen.context_length(row_tokens=_row_tokens(config)),
        max_batch_size=reward_config.classmate_batch_size,
        seed=reward_config.seed,
        deterministic=bool(config.trainer.deterministic),
        trust_remote_code=reward_config.classmate_trust_remote_code,
    )


def vllm_rollout_config(config: DictConfig, frozen: FrozenModel, *, sleeps: bool) -> DictConfig:
    """The policy's rollout node as a frozen model needs it: own memory share, own context, weights from disk."""
    rollout: Any = OmegaConf.create(OmegaConf.to_container(config.actor_rollout_ref.rollout, resolve=True))
    max_model_len = frozen.context_length(row_tokens=_row_tokens(config))
    with open_dict(rollout):
        rollout.update(
            name="vllm",
            seed=fresh_engine_seed(),
            load_format="auto",
            gpu_memory_utilization=frozen.memory_share,
            tensor_model_parallel_size=frozen.tensor_parallel_size,
            data_parallel_size=1,
            pipeline_model_parallel_size=1,
            dtype=_dtype(frozen),
            max_model_len=max_model_len,
            prompt_length=max_model_len - frozen.max_new_tokens,
            response_length=frozen.max_new_tokens,
            calculate_log_probs=False,
            free_cache_engine=sleeps,
            enable_sleep_mode=sleeps,
        )
    return rollout


def _row_tokens(config: DictConfig) -> int:
    """Of a full row of the policy."""
    return config.data.max_prompt_length + config.data.max_response_length


def _dtype(frozen: FrozenModel) -> str:
    """Name of the torch dtype of an engine's weights."""
    if frozen.dtype != "auto":
        return frozen.dtype
    return "bfloat16" if get_device_name() == "cuda" else "float32"
