"""Batched generation with a transformers model, for many concurrent requests, without Ray.

One decision: a worker thread takes every request that waits, within limits (`waiting.py`), and runs them as one
left-padded batch (`batch.py`). Requests that come meanwhile are read by themselves and join it, where the model's
layers keep all keys and values; a row is delivered the moment it finishes, and finished rows are dropped when half of a
batch is done or others join. With `deterministic=True` a row's numbers do not depend on what else is in its batch
(`fixed_rows.py`).

    engine = HFEngine.from_config(EngineConfig(model_path="Qwen/Qwen3-0.6B"))
    output = await engine.generate(prompt_ids, SamplingParams(max_tokens=64, seed=1), request_id="a")
    output.token_ids, output.log_probs, output.finish_reason
    engine.close()
"""

import asyncio
import logging
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from verl.workers.rollout.hf_rollout_server.batch import Decoder
from verl.workers.rollout.hf_rollout_server.cache import growing_layers
from verl.workers.rollout.hf_rollout_server.fixed_rows import fixed_rows
from verl.workers.rollout.hf_rollout_server.request import GenerationOutput, Request
from verl.workers.rollout.hf_rollout_server.sampling import SamplingParams
from verl.workers.rollout.hf_rollout_server.waiting import Waiting

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """One engine: a model and how to run it."""

    model_path: str
    """Folder or hub name of a causal language model and its tokenizer."""
    tokenizer_path: str | None = None
    """Folder or hub name of the tokenizer; None means `model_path`."""
    dtype: str = "float32"
    """Name of the torch dtype of the weights."""
    device: str = "cpu"
    """Where the model runs: "cpu", "cuda", "cuda:0"."""
    load_format: Literal["auto", "dummy"] = "auto"
    """"auto" loads the weights; "dummy" leaves random ones, for a policy that is synced before its first use."""
    attn_implementation: str = "sdpa"
    """Attention of transformers."""
    seed: int = 0
    """Seeds random weights and the stream from which requests without a seed get theirs."""
    max_model_len: int | None = None
    """Most tokens of prompt and response together; None takes the model's own limit."""
    max_batch_size: int = 128
    """Most rows of one batch."""
    max_batch_tokens: int = 65536
    """Most tokens (padded prompts plus longest response) in the cache of one batch; a single request may exceed it."""
    batch_wait_s: float = 0.01
    """A batch starts when no request has arrived for this long, and after ten times this long at the latest; requests
    join one that runs when no other has arrived for this long, and after twice this long at the latest."""
    num_threads: int | None = None
    """Torch threads of the engine; None keeps the process's own number."""
    deterministic: bool = False
    """Make each row's numbers independent of the other rows; needs a seed in every sampled request, and a CPU."""
    trust_remote_code: bool = False
    """Run the Python code that comes with the model and its tokenizer."""
    memory_fraction: float | None = None
    """Most that this process may take of the GPU's memory, as a share; None means all that is free."""
    own_thread: bool = True
    """False: batches run in the thread that asks for them, where a debugger's breakpoint stops everything and an error
    reaches the one who asked as it was raised."""

    def __post_init__(self) -> None:
        if self.max_batch_size < 1:
            raise ValueError(f"max_batch_size must be at least 1 (got {self.max_batch_size})")
        if self.load_format not in ("auto", "dummy"):
            raise ValueError(f"load_format={self.load_format!r}: engine 'hf' supports 'auto' and 'dummy'")
        if self.deterministic and not self.device.startswith("cpu"):
            raise ValueError(f"deterministic=True needs device='cpu' (got {self.device!r}): GPU kernels mix rows")

    def set_threads(self) -> None:
        """Sets torch's number of threads, which belongs to the calling one: 1 with `deterministic`."""
        threads = 1 if self.deterministic else self.num_threads
        if threads is not None:
            torch.set_num_threads(threads)


class HFEngine:
    """Generates for concurrent requests in batches. Thread-safe; `generate` may be awaited from any event loop."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, config: EngineConfig) -> None:
        """Starts the worker thread and takes `model` over as it is: frozen, on its device, in its dtype."""
        self.model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.config = config
        self.known_tokens: int = model.config.get_text_config().vocab_size
        self._vocab_size = min(self.known_tokens, len(tokenizer))
        # Models without learned or rotary positions have no limit of their own.
        own_limit: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        limit = config.max_model_len or own_limit
        if limit is None:
            raise ValueError(f"{config.model_path} states no longest sequence: set max_model_len")
        if own_limit is not None and limit > own_limit:
            raise ValueError(f"max_model_len={limit}: {config.model_path} has {own_limit} positions only")
        self.max_model_len: int = limit
        eos = model.generation_config.eos_token_id if model.generation_config is not None else None
        self.eos_token_ids = {tokenizer.eos_token_id, *(eos if isinstance(eos, list) else [eos])} - {None}
        self.batches = 0
        self._waiting = Waiting(config)
        self._worker: threading.Thread | None = None
        if not config.own_thread:
            self._prepare_thread()
            return
        ready: Future[None] = Future()
        self._worker = threading.Thread(target=self._work, args=(ready,), name="hf-engine", daemon=True)
        self._worker.start()
        ready.result()

    @classmethod
    def from_config(cls, config: EngineConfig) -> "HFEngine":
        """Loads model and tokenizer and starts an engine."""
        if config.memory_fraction is not None and config.device.startswith("cuda"):
            torch.cuda.set_per_process_memory_fraction(config.memory_fraction)
        remote = config.trust_remote_code
        tokenizer = AutoTokenizer.from_pretrained(config.tokenizer_path or config.model_path, trust_remote_code=remote)
        dtype = getattr(torch, config.dtype)
        if config.load_format == "auto":
            model = AutoModelForCausalLM.from_pretrained(
                config.model_path,
                dtype=dtype,
                attn_implementation=config.attn_implementation,
                trust_remote_code=remote,
            )
        else:
            with torch.random.fork_rng():
                torch.manual_seed(config.seed)
                model = AutoModelForCausalLM.from_config(
                    AutoConfig.from_pretrained(config.model_path, trust_remote_code=remote),
                    dtype=dtype,
                    attn_implementation=config.attn_implementation,
                    trust_remote_code=remote,
                )
            if (Path(config.model_path) / "generation_config.json").exists():
                model.generation_config = GenerationConfig.from_pretrained(config.model_path)
        return cls(model.to(torch.device(config.device)), tokenizer, config)  # type: ignore[arg-type]

    @property
    def alive(self) -> bool:
        """Whether requests are served, by the worker thread where there is one."""
        return (self._worker is None or self._worker.is_alive()) and not self._waiting.closed

    # Requests

    async def generate(self, prompt_ids: Sequence[int], params: SamplingParams, request_id: str) -> GenerationOutput:
        """Generates for one prompt, or with `prompt_logprobs` only reads it. Cancelling the awaiting task takes the
        request out of its batch.

        Raises:
            ValueError: the prompt is empty, too long or holds a token id that the model lacks, nothing of it is to be
                told, or a seed is missing.
        """
        request = self._submit(prompt_ids, params, request_id)
        if self._worker is None:
            # What else is asked in this round of the event loop joins the batch.
            await asyncio.sleep(0)
            while not request.future.done():
                self._run(self._waiting.take(), company=False)
            return request.future.result()
        try:
            return await asyncio.wrap_future(request.future)
        except asyncio.CancelledError:
            request.aborted = True
            raise

    async def generate_batch(self, prompts: Sequence[tuple[Sequence[int], SamplingParams]]) -> list[GenerationOutput]:
        """Generates for many prompts at once; outputs in their order. Raises the first error after all have ended."""
        outputs = await asyncio.gather(
            *(self.generate(ids, params, f"batch-{index}") for index, (ids, params) in enumerate(prompts)),
            return_exceptions=True,
        )
        for output in outputs:
            if isinstance(output, BaseException):
                raise output
        return outputs  # type: ignore[return-value]

    def _submit(self, prompt_ids: Sequence[int], params: SamplingParams, request_id: str) -> Request:
        ids = [int(token) for token in prompt_ids]
        room = self.max_model_len - len(ids)
        if not ids:
            raise ValueError(f"request {request_id}: the prompt is empty")
        if room < 1:
            raise ValueError(
                f"request {request_id}: its prompt of {len(ids)} tokens fills max_model_len={self.max_model_len}"
            )
        if min(ids) < 0 or max(ids) >= self.known_tokens:
            raise ValueError(f"request {request_id}: the prompt holds a token id outside the model's vocabulary")
        request = Request(ids, replace(params, max_tokens=min(params.max_tokens, room)), request_id)
        if params.prompt_logprobs is not None and request.told < 1:
            raise ValueError(
                f"request {request_id}: logprob_start_len={params.logprob_start_len} leaves none of its prompt's "
                f"{len(ids)} tokens to tell of"
            )
        self._waiting.put(request)
        return request

    def abort(self, request_ids: Iterable[str] | None = None) -> list[str]:
        """Ends requests (None: all) at their next token, with what they have. Returns the ids of those under way."""
        return self._waiting.abort(request_ids)

    # Holding, for weight updates and sleep

    def hold(self, reason: str) -> None:
        """Starts no further batch until `release(reason)`; requests wait. Reasons are independent of each other."""
        self._waiting.hold(reason)

    def release(self, reason: str) -> None:
        """Takes back `hold(reason)`; does nothing when there is no such hold."""
        self._waiting.release(reason)

    def wait_idle(self, *, queue: bool = False) -> None:
        """Blocks until no batch runs and, with `queue`, until none will: nothing waits, or only for a hold's end."""
        self._waiting.wait_idle(queue=queue)

    def offload(self) -> None:
        """Moves the weights to the host's memory. Only while held and idle."""
        self.model.to("cpu")
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def restore(self) -> None:
        """Moves the weights back to their device."""
        self.model.to(self.config.device)

    def close(self) -> None:
        """Aborts everything and ends the worker thread."""
        self.abort()
        self._waiting.close()
        if self._worker is not None:
            self._worker.join()

    # The worker thread

    def _prepare_thread(self) -> None:
        """Sets torch up in the thread that runs the batches."""
        self.config.set_threads()
        rows = fixed_rows(self.model, self._vocab_size) if self.config.deterministic else 0
        self._waiting.fixed_rows = rows
        self._decoder = Decoder(
            self.model,
            self.tokenizer,
            vocab_size=self._vocab_size,
            eos_token_ids=self.eos_token_ids,
            fixed_rows=rows,
        )

    def _work(self, ready: "Future[None]") -> None:
        try:
            self._prepare_thread()
        except Exception as error:
            ready.set_exception(error)
            return
        ready.set_result(None)
        while (batch := self._waiting.next_batch()) is not None:
            self._run_or_split(batch)
            self._waiting.done()

    def _run_or_split(self, requests: list[Request], *, company: bool = True) -> None:
        """Runs a batch; when it raises, its unfinished rows run again in halves, so that only the culprit fails."""
        try:
            self._run(requests, company=company)
        except Exception as error:
            left = [request for request in requests if not request.future.done()]
            logger.warning("engine hf: a batch of %d requests failed (%s)", len(requests), error)
            if len(requests) == 1:
                requests[0].fail(error)
                return
            for request in left:
                request.token_ids.clear()
                request.log_probs.clear()
            for half in (left[: len(left) // 2], left[len(left) // 2 :]):
                if half:
                    self._run_or_split(half, company=False)

    @torch.inference_mode()
    def _run(self, requests: list[Request], *, company: bool = True) -> None:
        """Generates for the requests as one batch; with `company` those that come meanwhile join it, and the list."""
        self.batches += 1
        if requests[0].told:
            self._decoder.tell(requests)
            return
        batch = self._decoder.read(requests)
        shrinks = not self._waiting.fixed_rows
        joined = company and growing_layers(batch.cache) is not None
        while any(batch.rows):
            live = [index for index, row in enumerate(batch.rows) if row is not None]
            late = self._waiting.late_rows(batch.rows) if joined else []
            # At once: whatever fails from here on, they are somebody's.
            requests += late
            if late or (shrinks and len(live) <= len(batch.rows) // 2):
                batch.keep(live)
            if late:
                batch.join(self._decoder.read(late))
            self._decoder.step(batch)
