"""Batched generation with a transformers model, for many concurrent requests, without Ray.

One decision: a worker thread takes every request that waits (at most `max_batch_size`, within `max_batch_tokens`) and
runs them as one left-padded batch. Requests that come meanwhile are read by themselves and join it, where the model's
layers keep all keys and values; a row is delivered the moment it finishes, and finished rows are dropped when half of a
batch is done or others join. The loop is our own: `model.generate` can neither take, drop nor abort rows.

With `deterministic=True` a row's numbers do not depend on what else is in its batch: every forward has a fixed number
of rows, and prompts are padded to multiples of `_BUCKET`, on one thread. CPU matrix kernels then treat each row alike
wherever it stands; the engine checks that on its own model at the start, and runs one row at a time where it does not
hold.

    engine = HFEngine.from_config(EngineConfig(model_path="Qwen/Qwen3-0.6B"))
    output = await engine.generate(prompt_ids, SamplingParams(max_tokens=64, seed=1), request_id="a")
    output.token_ids, output.log_probs, output.finish_reason
    engine.close()
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedModel
from transformers.cache_utils import DynamicCache
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from verl.workers.rollout.hf_rollout_server.cache import growing_cache, growing_layers
from verl.workers.rollout.hf_rollout_server.sampling import BatchSampler, SamplingParams

logger = logging.getLogger(__name__)

FinishReason = Literal["stop", "length", "abort"]

_BUCKET = 128
"""Deterministic: prompts are padded to a multiple of this, with one pad at least, so that every forward is masked."""
_FIXED_ROWS = 32
"""Deterministic: rows of every forward. A multiple of 16 fills the kernels' tiles; 32 rows cost little."""


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


@dataclass(frozen=True, kw_only=True)
class GenerationOutput:
    """What one request got."""

    token_ids: list[int]
    """Sampled tokens, with the end-of-sequence or stop token where one ended the row."""
    log_probs: list[float]
    """Natural logarithm of the probability with which each token was drawn."""
    finish_reason: FinishReason
    """"stop": end of sequence, stop token or stop string; "length": limit; "abort": aborted, tokens so far kept."""


@dataclass(eq=False)
class _Request:
    """A request on its way through the engine."""

    prompt_ids: list[int]
    params: SamplingParams
    request_id: str
    future: "Future[GenerationOutput]" = field(default_factory=Future)
    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    aborted: bool = False
    came: float = field(default_factory=time.monotonic)

    def finish(self, reason: FinishReason) -> None:
        output = GenerationOutput(token_ids=self.token_ids, log_probs=self.log_probs, finish_reason=reason)
        with contextlib.suppress(InvalidStateError):  # the caller cancelled it
            self.future.set_result(output)

    def fail(self, error: BaseException) -> None:
        with contextlib.suppress(InvalidStateError):
            self.future.set_exception(error)


@dataclass(eq=False, kw_only=True)
class _Batch:
    """Rows that run together: B rows, L columns, of which the first `length` are in the cache."""

    rows: list[_Request | None]
    """None where a row has ended."""
    ids_B1: torch.Tensor
    """The token of each row that the model has not read."""
    positions_B1: torch.Tensor
    mask_BL: torch.Tensor
    """1 on tokens, those to come included, 0 on padding."""
    length: int
    cache: DynamicCache
    sampler: BatchSampler

    def keep(self, live: Sequence[int]) -> None:
        """Drops the other rows."""
        keep = torch.tensor(live, device=self.ids_B1.device)
        self.cache.reorder_cache(keep)  # type: ignore[arg-type]
        self.sampler.select(keep)
        self.ids_B1, self.positions_B1, self.mask_BL = self.ids_B1[keep], self.positions_B1[keep], self.mask_BL[keep]
        self.rows = [self.rows[index] for index in live]

    def join(self, other: "_Batch") -> None:
        """Takes the rows of another batch behind its own, with what they have; only where `growing_layers` are."""
        ours, theirs = growing_layers(self.cache), growing_layers(other.cache)
        assert ours is not None
        assert theirs is not None
        # Else a batch that others join again and again would grow for ever.
        padding = int(self.mask_BL.argmax(dim=1).min())
        for layer, other_layer in zip(ours, theirs, strict=True):
            layer.drop_columns(padding)
            layer.join(other_layer)
        masks = self.mask_BL[:, padding : self.length], other.mask_BL[:, : other.length]
        self.rows = self.rows + other.rows
        self.length = max(mask.shape[1] for mask in masks)
        to_come = max((row.params.max_tokens - len(row.token_ids) for row in self.rows if row is not None), default=0)
        padded = [torch.nn.functional.pad(mask, (self.length - mask.shape[1], 0)) for mask in masks]
        self.mask_BL = torch.nn.functional.pad(torch.cat(padded), (0, to_come), value=1)
        self.ids_B1 = torch.cat([self.ids_B1, other.ids_B1])
        self.positions_B1 = torch.cat([self.positions_B1, other.positions_B1])
        self.sampler.join(other.sampler)


class HFEngine:
    """Generates for concurrent requests in batches. Thread-safe; `generate` may be awaited from any event loop."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, config: EngineConfig) -> None:
        """Starts the worker thread and takes `model` over as it is: frozen, on its device, in its dtype."""
        self.model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.config = config
        self.known_tokens: int = model.config.get_text_config().vocab_size
        self.vocab_size = min(self.known_tokens, len(tokenizer))
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
        self._seeds = torch.Generator().manual_seed(config.seed)
        self._fixed_rows = 0
        self._queue: deque[_Request] = deque()
        self._running: list[_Request] = []
        self._holds: set[str] = set()
        self._last_arrival = 0.0
        self._closed = False
        self._changed = threading.Condition()
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
        return (self._worker is None or self._worker.is_alive()) and not self._closed

    # Requests

    async def generate(self, prompt_ids: Sequence[int], params: SamplingParams, request_id: str) -> GenerationOutput:
        """Generates for one prompt. Cancelling the awaiting task takes the request out of its batch.

        Raises:
            ValueError: the prompt is empty, too long or holds a token id that the model lacks, or a seed is missing.
        """
        request = self._submit(prompt_ids, params, request_id)
        if self._worker is None:
            # What else is asked in this round of the event loop joins the batch.
            await asyncio.sleep(0)
            while not request.future.done():
                self._run(self._take_batch(), company=False)
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

    def _submit(self, prompt_ids: Sequence[int], params: SamplingParams, request_id: str) -> _Request:
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
        with self._changed:
            if self._closed:
                raise RuntimeError("the engine is closed")
            if params.seed is None and not params.greedy:
                if self.config.deterministic:
                    raise ValueError(f"request {request_id}: deterministic=True needs sampling_params.seed")
                params = replace(params, seed=int(torch.randint(2**62, (), generator=self._seeds)))
            params = replace(params, max_tokens=min(params.max_tokens, room))
            request = _Request(ids, params, request_id)
            self._queue.append(request)
            self._last_arrival = time.monotonic()
            self._changed.notify_all()
        return request

    def abort(self, request_ids: Iterable[str] | None = None) -> list[str]:
        """Ends requests (None: all) at their next token, with what they have. Returns the ids of those under way."""
        wanted = None if request_ids is None else set(request_ids)
        with self._changed:
            hit = [
                request
                for request in [*self._queue, *self._running]
                if not request.future.done() and (wanted is None or request.request_id in wanted)
            ]
            for request in hit:
                request.aborted = True
            self._changed.notify_all()
        return [request.request_id for request in hit]

    # Holding, for weight updates and sleep

    def hold(self, reason: str) -> None:
        """Starts no further batch until `release(reason)`; requests wait. Reasons are independent of each other."""
        with self._changed:
            self._holds.add(reason)

    def release(self, reason: str) -> None:
        """Takes back `hold(reason)`; does nothing when there is no such hold."""
        with self._changed:
            self._holds.discard(reason)
            self._changed.notify_all()

    def wait_idle(self, *, queue: bool = False) -> None:
        """Blocks until no batch runs and, with `queue`, until none will: nothing waits, or only for a hold's end."""
        with self._changed:
            self._changed.wait_for(lambda: not self._running and not (queue and self._queue and not self._holds))

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
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._worker is not None:
            self._worker.join()

    # The worker thread

    def _prepare_thread(self) -> None:
        """Sets torch up in the thread that runs the batches."""
        self.config.set_threads()
        self._fixed_rows = self._check_row_independence() if self.config.deterministic else 0

    def _work(self, ready: "Future[None]") -> None:
        try:
            self._prepare_thread()
        except Exception as error:
            ready.set_exception(error)
            return
        ready.set_result(None)
        while (batch := self._next_batch()) is not None:
            self._run_or_split(batch)
            with self._changed:
                self._running = []
                self._changed.notify_all()

    def _next_batch(self) -> list[_Request] | None:
        """Waits for requests, then for the arrivals to calm down; None when the engine closes."""
        wait = self.config.batch_wait_s
        first_seen = None
        with self._changed:
            while True:
                self._drop_aborted()
                if self._closed:
                    return None
                if not self._queue or self._holds:
                    first_seen = None
                    self._changed.notify_all()  # wait_idle(queue=True)
                    self._changed.wait()
                    continue
                now = time.monotonic()
                first_seen = first_seen or now
                rest = min(self._last_arrival + wait, first_seen + 10 * wait) - now
                if rest > 0 and len(self._queue) < self.config.max_batch_size:
                    self._changed.wait(rest)
                    continue
                self._running = self._take_batch()
                return list(self._running)

    def _drop_aborted(self) -> None:
        for request in [request for request in self._queue if request.aborted]:
            self._queue.remove(request)
            request.finish("abort")

    def _take_batch(self, company: Sequence[_Request] = ()) -> list[_Request]:
        """Takes the oldest requests that fit together, and beside those that run already."""
        if self._fixed_rows:
            width = self._padded_length(self._queue[0])
            taken = [request for request in self._queue if self._padded_length(request) == width][: self._fixed_rows]
        else:
            taken, rows = [], len(company)
            # What runs takes its columns along, and writes the rest of its response behind them.
            prompt = max((len(request.prompt_ids) + len(request.token_ids) for request in company), default=0)
            response = max((request.params.max_tokens - len(request.token_ids) for request in company), default=0)
            for request in self._queue:
                prompt, response = max(prompt, len(request.prompt_ids)), max(response, request.params.max_tokens)
                too_many = (rows + 1) * (prompt + response) > self.config.max_batch_tokens
                if rows and (too_many or rows >= self.config.max_batch_size):
                    break
                taken.append(request)
                rows += 1
        chosen = set(map(id, taken))
        self._queue = deque(request for request in self._queue if id(request) not in chosen)
        return taken

    def _run_or_split(self, requests: list[_Request], *, company: bool = True) -> None:
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

    def _padded_length(self, request: _Request) -> int:
        return (len(request.prompt_ids) // _BUCKET + 1) * _BUCKET

    @torch.inference_mode()
    def _run(self, requests: list[_Request], *, company: bool = True) -> None:
        """Generates for the requests as one batch; with `company` those that come meanwhile join it, and the list."""
        self.batches += 1
        batch = self._read(requests)
        while any(batch.rows):
            live = [index for index, row in enumerate(batch.rows) if row is not None]
            late = self._late_rows(batch) if company else []
            # At once: whatever fails from here on, they are somebody's.
            requests += late
            if late or (not self._fixed_rows and len(live) <= len(batch.rows) // 2):
                batch.keep(live)
            if late:
                batch.join(self._read(late))
            logits_BV = self.model(
                input_ids=batch.ids_B1,
                attention_mask=batch.mask_BL[:, : batch.length + 1],
                position_ids=batch.positions_B1,
                past_key_values=batch.cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits[:, -1]
            batch.length += 1
            self._write(batch, logits_BV)

    def _read(self, requests: Sequence[_Request]) -> "_Batch":
        """Reads the prompts (B rows, at first one for each prompt; L columns, left-padded) and writes a first token."""
        device = self.model.device
        rows: list[_Request | None] = list(requests)
        width = max(len(request.prompt_ids) for request in requests)
        if self._fixed_rows:
            rows += [None] * (self._fixed_rows - len(rows))
            width = self._padded_length(requests[0])
        longest = max(request.params.max_tokens for request in requests)

        prompts = [tuple(row.prompt_ids) if row is not None else (0,) for row in rows]
        # A prompt that several rows share is read once; deterministic forwards have a fixed number of rows.
        distinct = prompts if self._fixed_rows else list(dict.fromkeys(prompts))
        ids_BL = torch.zeros((len(distinct), width), dtype=torch.long)
        mask_BL = torch.ones((len(distinct), width + longest), dtype=torch.long)
        for index, prompt in enumerate(distinct):
            ids_BL[index, width - len(prompt) :] = torch.tensor(prompt)
            mask_BL[index, : width - len(prompt)] = 0
        ids_BL, mask_BL = ids_BL.to(device), mask_BL.to(device)
        positions_BL = (mask_BL[:, :width].cumsum(-1) - 1).clamp(min=0)
        filler = SamplingParams(max_tokens=1, temperature=0)
        sampler = BatchSampler(
            [filler if row is None else row.params for row in rows], vocab_size=self.vocab_size, device=device
        )
        cache = growing_cache(self.model.config)
        logits_BV = self.model(
            input_ids=ids_BL,
            attention_mask=mask_BL[:, :width],
            position_ids=positions_BL,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        if len(distinct) < len(rows):
            place = {prompt: index for index, prompt in enumerate(distinct)}
            asked = torch.tensor([place[prompt] for prompt in prompts], device=device)
            # Meant for beam search, but the one selection that every kind of layer has.
            cache.reorder_cache(asked)  # type: ignore[arg-type]
            logits_BV, positions_BL, mask_BL = logits_BV[asked], positions_BL[asked], mask_BL[asked]
        batch = _Batch(
            rows=rows,
            ids_B1=ids_BL[:, -1:],
            positions_B1=positions_BL[:, -1:],
            mask_BL=mask_BL,
            length=width,
            cache=cache,
            sampler=sampler,
        )
        self._write(batch, logits_BV)
        return batch

    def _write(self, batch: "_Batch", logits_BV: torch.Tensor) -> None:
        """Gives each row its next token; those that it ends become None."""
        tokens_B, log_probs_B = batch.sampler.pick(logits_BV)
        for index, (token, log_prob) in enumerate(zip(tokens_B.tolist(), log_probs_B.tolist(), strict=True)):
            row = batch.rows[index]
            if row is not None and self._advance(row, token, log_prob):
                batch.rows[index] = None
        batch.ids_B1, batch.positions_B1 = tokens_B[:, None], batch.positions_B1 + 1

    def _late_rows(self, batch: "_Batch") -> list[_Request]:
        """Takes requests that have waited for company long enough and fit beside the rows that are left."""
        if self._fixed_rows or not self._queue or growing_layers(batch.cache) is None:
            return []
        with self._changed:
            self._drop_aborted()
            calm = time.monotonic() - self.config.batch_wait_s
            if self._holds or not self._queue:
                return []
            if min(self._last_arrival, self._queue[0].came + self.config.batch_wait_s) > calm:
                return []
            taken = self._take_batch([row for row in batch.rows if row is not None])
            self._running += taken
            return taken

    def _advance(self, row: _Request, token: int, log_prob: float) -> bool:
        """Gives a row its next token; True when that ended it."""
        if row.aborted:
            row.finish("abort")
            return True
        if log_prob != log_prob:
            row.fail(RuntimeError(f"request {row.request_id}: the model's logits are not numbers (NaN)"))
            return True
        row.token_ids.append(token)
        row.log_probs.append(log_prob)
        ended = token in self.eos_token_ids and not row.params.ignore_eos
        if ended or token in row.params.stop_token_ids or (row.params.stop and self._at_stop_string(row)):
            row.finish("stop")
            return True
        if len(row.token_ids) >= row.params.max_tokens:
            row.finish("length")
            return True
        return row.future.cancelled()

    def _at_stop_string(self, row: _Request) -> bool:
        # A stop string of n bytes spans at most n tokens; some more give the decoder its left context.
        window = max(len(stop.encode()) for stop in row.params.stop) + 8
        text = self.tokenizer.decode(row.token_ids[-window:], skip_special_tokens=False)
        return any(stop in text for stop in row.params.stop)

    @torch.inference_mode()
    def _check_row_independence(self) -> int:
        """Rows of a deterministic batch: `_FIXED_ROWS`, or 1 where a row's logits depend on its neighbours."""
        vocabulary = torch.arange(self.vocab_size)
        prompt_L = vocabulary.repeat(-(-_BUCKET // self.vocab_size))[:_BUCKET]

        def logits_of_row(place: int, neighbour_shift: int) -> torch.Tensor:
            ids_BL = prompt_L.roll(neighbour_shift).repeat(_FIXED_ROWS, 1)
            ids_BL[place] = prompt_L
            mask_BL = torch.ones_like(ids_BL)
            mask_BL[:, 0] = 0
            cache = growing_cache(self.model.config)
            prefill = self.model(
                input_ids=ids_BL, attention_mask=mask_BL, past_key_values=cache, logits_to_keep=1
            ).logits
            mask_BL = torch.nn.functional.pad(mask_BL, (0, 1), value=1)
            decode = self.model(input_ids=ids_BL[:, -1:], attention_mask=mask_BL, past_key_values=cache).logits
            return torch.cat([prefill, decode], dim=1)[place]

        reference = logits_of_row(0, 1)
        if all(torch.equal(reference, logits_of_row(place, place + 1)) for place in (1, 7, 17, _FIXED_ROWS - 1)):
            return _FIXED_ROWS
        logger.warning("engine hf: deterministic=True runs one request at a time, since kernels here mix rows")
        return 1
