"""The engine of a judge that is a reward model: a sequence-classification model that gives a text one number.

One decision: the number is the model's own, whatever else is in the batch.

    worker = ScoringJudgeWorker(EngineConfig(model_path="Skywork/Skywork-Reward-V2-Qwen3-0.6B"))
    await worker.score(token_ids)                                       # -3.1
"""

import math

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from verl.workers.batching_engine import BatchingEngine
from verl.workers.rollout.hf_rollout_server.engine import EngineConfig


class ScoringJudgeWorker(BatchingEngine[list[int], float]):
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
        model = model.to(torch.device(config.device)).eval().requires_grad_(False)
        super().__init__(config, model, frees_memory=frees_memory, patience_s=patience_s)

    async def score(self, prompt_ids: list[int]) -> float:
        """The model's number for a text.

        Raises:
            ValueError: the text is empty or too long, or the model's number is not finite.
            TimeoutError: its time is over.
        """
        limit = self.config.max_model_len
        if not prompt_ids or (limit is not None and len(prompt_ids) > limit):
            raise ValueError(f"a text of {len(prompt_ids)} tokens cannot be scored; the limit is {limit}")
        score = await self._ask(list(prompt_ids))
        if not math.isfinite(score):
            raise ValueError(f"the reward model's number is {score}")
        return score

    def _length(self, item: list[int]) -> int:
        return len(item)

    @torch.inference_mode()
    def _run(self, items: list[list[int]]) -> list[float]:
        """One forward of B texts, padded on the right to L tokens."""
        # Models find a text's end as the last token that is not padding, so padding must be no text's last token.
        endings = {row[-1] for row in items}
        candidates = (self.tokenizer.pad_token_id, *range(len(endings) + 1))
        pad = next(token for token in candidates if token is not None and token not in endings)
        self.model.config.pad_token_id = pad
        width = max(map(len, items))
        ids_BL = torch.tensor([row + [pad] * (width - len(row)) for row in items])
        mask_BL = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in items])
        device = self.model.device
        logits_B = self.model(input_ids=ids_BL.to(device), attention_mask=mask_BL.to(device)).logits[:, 0]
        return logits_B.float().tolist()
