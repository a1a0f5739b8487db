"""The Ray actor that serves one `HFEngine`: a policy's rollout, or a frozen helper such as a classmate.

One decision: it is thin. Batching, aborting and holding are the engine's; the server turns verl's dictionaries into the
engine's types and back, and keeps the version of its weights. A frozen helper needs nothing of verl's configuration:

    server = start_server(EngineConfig(model_path="Qwen/Qwen3-0.6B"), name="classmate_0", num_cpus=1)
    await server.ready.remote()
    output = await server.generate.remote(prompt_ids, {"max_tokens": 64, "seed": 1}, "request-1")     # TokenOutput
    ray.kill(server)
"""

import asyncio
from typing import Any

import ray
from ray.actor import ActorHandle
from transformers.utils.logging import disable_progress_bar

from verl.workers.rollout.hf_rollout_server.engine import EngineConfig, HFEngine
from verl.workers.rollout.hf_rollout_server.sampling import SamplingParams
from verl.workers.rollout.hf_rollout_server.weights import PackedTensor, WeightLoader
from verl.workers.rollout.replica import TokenOutput

_GATE, _SLEEP, _WEIGHTS = "gate", "sleep", "weights"
"""Reasons for which the engine is held."""


class HFServer:
    """One engine behind the methods that verl's clients, replicas and checkpoint managers call on a rollout server."""

    def __init__(
        self,
        config: EngineConfig,
        *,
        response_length: int | None = None,
        total_length: int | None = None,
        frees_memory: bool = False,
    ) -> None:
        """Loads the model.

        Args:
            config: the engine.
            response_length: limit of a request that brings none; None leaves the room within `max_model_len`.
            total_length: limit of prompt and response together, for such a request.
            frees_memory: whether `sleep` moves the weights to the host's memory (verl's `free_cache_engine`).
        """
        disable_progress_bar()
        self.engine = HFEngine.from_config(config)
        self.config = config
        self.response_length = response_length
        self.total_length = total_length
        self.frees_memory = frees_memory
        self.global_steps: int | None = None
        self._rejecting = False
        self._loader: WeightLoader | None = None

    async def ready(self) -> int:
        """Returns, once the model is loaded, the most tokens of prompt and response together."""
        return self.engine.max_model_len

    async def stats(self) -> dict[str, int]:
        """Counters: forward batches so far."""
        return {"batches": self.engine.batches}

    # Generation

    async def generate(
        self,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        request_id: str,
        image_data: list[Any] | None = None,
        video_data: list[Any] | None = None,
        audio_data: list[Any] | None = None,
        mm_processor_kwargs: dict[str, Any] | None = None,
        priority: int = 0,
    ) -> TokenOutput:
        """Generates tokens for a prompt; `stop_reason` is "completed" or "aborted", as with verl's other engines.

        With `prompt_logprobs` it generates none, and `extra_fields` has `prompt_logprobs` and `prompt_ids` as
        upstream's vLLM server writes them, from token `logprob_start_len` of the prompt on.

        Raises ValueError for images, videos, sounds, and for what `HFEngine.generate` and `SamplingParams` refuse.
        """
        if image_data or video_data or audio_data:
            raise ValueError("engine 'hf' serves text only: use rollout.name=vllm for images, videos and sounds")
        if self._rejecting:
            return self._output([], [], "abort")
        params = SamplingParams.from_dict(sampling_params, max_tokens=self._default_max_tokens(len(prompt_ids)))
        output = await self.engine.generate(prompt_ids, params, request_id)
        result = self._output(output.token_ids, output.log_probs, output.finish_reason)
        if output.prompt_log_probs:
            # The last entry stands for what would follow.
            result.extra_fields["prompt_logprobs"] = [[value] for value in [*output.prompt_log_probs, 0.0]]
            told = prompt_ids[params.logprob_start_len :]
            result.extra_fields["prompt_ids"] = [[token] for token in [*told, 0]]
        return result

    def _default_max_tokens(self, prompt_length: int) -> int:
        limits = [self.response_length, self.total_length and self.total_length - prompt_length]
        return max(1, min([limit for limit in limits if limit is not None], default=self.engine.max_model_len))

    def _output(self, token_ids: list[int], log_probs: list[float], finish_reason: str) -> TokenOutput:
        return TokenOutput(
            token_ids=token_ids,
            log_probs=log_probs,
            stop_reason="aborted" if finish_reason == "abort" else "completed",
            extra_fields={"global_steps": self.global_steps, "finish_reason": finish_reason},
        )

    # Aborting

    async def abort_request(self, request_id: str) -> dict[str, Any]:
        """Aborts one request: `{"aborted": whether it was under way, "request_id": ...}`."""
        return {"aborted": bool(self.engine.abort([request_id])), "request_id": request_id}

    async def abort_all_requests(self, reject_request: bool = False) -> dict[str, Any]:
        """Aborts all requests; later ones wait for `resume_generation`, or are aborted too with `reject_request`."""
        self._rejecting = reject_request
        self.engine.hold(_GATE)
        aborted = self.engine.abort()
        await asyncio.to_thread(self.engine.wait_idle)
        return {"aborted_count": len(aborted), "request_ids": aborted}

    async def resume_generation(self) -> None:
        """Serves requests again after `abort_all_requests`."""
        self._rejecting = False
        self.engine.release(_GATE)

    async def wait_for_requests_to_drain(self) -> None:
        """Returns when no request is served or about to be."""
        await asyncio.to_thread(self.engine.wait_idle, queue=True)

    # Memory

    async def sleep(self) -> None:
        """Moves the weights off the device; requests wait until `wake_up`. Does nothing unless `frees_memory`."""
        if self.frees_memory:
            self.engine.hold(_SLEEP)
            await asyncio.to_thread(self.engine.wait_idle)
            await asyncio.to_thread(self.engine.offload)

    async def wake_up(self, tags: list[str] | None = None) -> None:
        """Brings the weights back (tag "weights") and serves requests again (tag "kv_cache"); None does both."""
        if tags is None or "weights" in tags:
            await asyncio.to_thread(self.engine.restore)
        if tags is None or "kv_cache" in tags:
            self.engine.release(_SLEEP)

    async def clear_kv_cache(self) -> None:
        """There is no cache between batches."""

    async def release_kv_cache(self) -> None:
        """There is no cache between batches."""

    async def resume_kv_cache(self) -> None:
        """There is no cache between batches."""

    # Weights

    async def begin_weight_update(self) -> None:
        """Lets the running batch end and starts no other until `finish_weight_update`."""
        self.engine.hold(_WEIGHTS)
        await asyncio.to_thread(self.engine.wait_idle)
        self._loader = WeightLoader(self.engine.model)

    async def load_weights(self, bucket: list[PackedTensor]) -> None:
        """Copies a bucket of tensors into the model's parameters."""
        assert self._loader is not None, "load_weights is called between begin_ and finish_weight_update"
        await asyncio.to_thread(self._loader.load, bucket)

    async def finish_weight_update(self, global_steps: int | None = None) -> None:
        """Serves requests with the new weights. Raises ValueError, and goes on waiting, when one is missing."""
        assert self._loader is not None, "finish_weight_update follows begin_weight_update"
        self._loader.finish()
        self._loader = None
        if global_steps is not None:
            self.global_steps = global_steps
        self.engine.release(_WEIGHTS)

    async def set_global_steps(self, global_steps: int) -> None:
        """Sets the version of the weights, which every output reports."""
        self.global_steps = global_steps

    # Profiling: torch's profiler has nothing to attach to between batches

    async def start_profile(self, **kwargs: Any) -> None:
        """Profiles nothing."""

    async def stop_profile(self) -> None:
        """Profiles nothing."""


def start_server(
    config: EngineConfig, *, server_kwargs: dict[str, Any] | None = None, **options: Any
) -> ActorHandle[Any]:
    """Starts a server actor. `options` are Ray's (name, num_cpus, num_gpus, scheduling_strategy, runtime_env, ...)."""
    options.setdefault("max_concurrency", 2 * config.max_batch_size + 1000)
    actor_class: Any = ray.remote(HFServer)
    return actor_class.options(**options).remote(config, **(server_kwargs or {}))
