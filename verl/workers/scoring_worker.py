"""The engine of a judge that is a reward model: a sequence-classification model that gives a text one number.

One decision: texts that wait are sorted by length and run in batches of a bounded number of tokens, so that a short
text is never padded to a long one. The methods that a group of classmates calls on its engines are here too.

    worker = ScoringJudgeWorker(EngineConfig(model_path="Skywork/Skywork-Reward-V2-Qwen3-0.6B"))
    await worker.score(token_ids)                                       # -3.1
"""

import asyncio
import math

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from verl.workers.engine_health import Patience
from verl.workers.rollout.hf_rollout_server.engine import EngineConfig

MAX_BATCH_TOKENS = 16384
"""Most tokens of one batch, padding included; a longer text runs alone."""


class ScoringJudgeWorker:
    """One reward model, in a Ray actor or in the process that asks."""

    def __init__(self, config: EngineConfig, *, frees_memory: bool = False, patience_s: float | None = None) -> None:
        """Loads the model.

        Args:
            config: the engine; with `deterministic` each text runs alone.
            frees_memory: whether `sleep` moves the weights to the host's memory.
            patience_s: longest time of a request; None: no limit.

        Raises:
            ValueError: a model that gives more than one number.
        """
        disable_progress_bar()
        if config.memory_fraction is not None and config.device.startswith("cuda"):
            torch.cuda.set_per_process_memory_fraction(config.memory_fraction)
        trust = config.trust_remote_code
        self.tokenizer = AutoTokenizer.from_pretrained(config.model_path, trust_remote_code=trust)
        model = AutoModelForSequenceClassification.from_pretrained(
            config.model_path, dtype=getattr(torch, config.dtype), num_labels=1, trust_remote_code=trust
        )
        self.model = model.to(torch.device(config.device)).eval().requires_grad_(False)
        self.config = config
        self.frees_memory = frees_memory
        self.batches = 0
        self._waiting: list[tuple[list[int], asyncio.Future[float]]] = []
        self._work_under_way: asyncio.Task[None] | None = None
        self._patience = Patience(patience_s)

    async def ready(self) -> int:
        """Returns, once the model is loaded, the most tokens of a text."""
        return self.config.max_model_len or 0

    async def score(self, prompt_ids: list[int]) -> float:
        """The model's number for a text.

        Raises:
            ValueError: the text is empty or too long, or the model's number is not finite.
            TimeoutError: its time is over.
        """
        limit = self.config.max_model_len
        if not prompt_ids or (limit is not None and len(prompt_ids) > limit):
            raise ValueError(f"a text of {len(prompt_ids)} tokens cannot be scored; the limit is {limit}")
        return await self._patience.wait(self._score(list(prompt_ids)))

    async def _score(self, prompt_ids: list[int]) -> float:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((prompt_ids, future))
        # What else is asked in this round of the event loop joins the batch.
        await asyncio.sleep(0)
        if not self._busy:
            # A task of its own: a text whose time is over must not take the others along.
            self._work_under_way = asyncio.create_task(self._work())
        return await future

    @property
    def _busy(self) -> bool:
        return self._work_under_way is not None and not self._work_under_way.done()

    async def _work(self) -> None:
        """Runs batches until nothing waits."""
        while batch := self._take_batch():
            ids = [one for one, _ in batch]
            try:
                scores = await asyncio.to_thread(self._run, ids) if self.config.own_thread else self._run(ids)
            except Exception as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), score in zip(batch, scores, strict=True):
                if future.done():
                    continue
                if math.isfinite(score):
                    future.set_result(score)
                else:
                    future.set_exception(ValueError(f"the reward model's number is {score}"))

    def _take_batch(self) -> list[tuple[list[int], "asyncio.Future[float]"]]:
        """The longest that wait, as many as fit; none where nobody waits any more."""
        self._waiting = [(ids, future) for ids, future in self._waiting if not future.done()]
        if not self._waiting:
            return []
        self._waiting.sort(key=lambda one: len(one[0]), reverse=True)
        widest = len(self._waiting[0][0])
        rows = min(self.config.max_batch_size, max(1, MAX_BATCH_TOKENS // widest))
        rows = 1 if self.config.deterministic else rows
        batch, self._waiting = self._waiting[:rows], self._waiting[rows:]
        return batch

    @torch.inference_mode()
    def _run(self, rows: list[list[int]]) -> list[float]:
        """One forward of B texts, padded on the right to L tokens."""
        self.batches += 1
        self.config.set_threads()
        # Models find a text's end as the last token that is not padding, so padding must be no text's last token.
        endings = {row[-1] for row in rows}
        candidates = (self.tokenizer.pad_token_id, *range(len(endings) + 1))
        pad = next(token for token in candidates if token is not None and token not in endings)
        self.model.config.pad_token_id = pad
        width = max(map(len, rows))
        ids_BL = torch.tensor([row + [pad] * (width - len(row)) for row in rows])
        mask_BL = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
        device = self.model.device
        logits_B = self.model(input_ids=ids_BL.to(device), attention_mask=mask_BL.to(device)).logits[:, 0]
        return logits_B.float().tolist()

    async def ping(self) -> int:
        """How many requests in a row ran out of time; a living engine answers."""
        return self._patience.unanswered

    async def wait_for_requests_to_drain(self) -> None:
        """Returns when nothing is being scored."""
        while self._busy or self._waiting:
            await asyncio.sleep(0.01)

    async def sleep(self) -> None:
        """Frees the GPU's memory."""
        if self.frees_memory:
            self.model.to("cpu")
            torch.cuda.empty_cache()

    async def wake_up(self) -> None:
        """Undoes `sleep`."""
        if self.frees_memory:
            self.model.to(torch.device(self.config.device))
