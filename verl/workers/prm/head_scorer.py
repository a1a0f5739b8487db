"""Scores steps with a process reward model: the discriminative one of the step scorers.

One decision: the temperature that was fitted on validation rows is applied here, so that a score is a probability
wherever it is used.

    >>> HeadScorer(model, tokenizer).score_steps(["What is 3 + 4?"], [["3 + 4 = 7.", "So it is 8."]])
    [[0.98, 0.03]]
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from verl.stepwise.step import StepScore
from verl.workers.prm.batches import by_length, collate, encode_solution
from verl.workers.prm.encoding import Encoded
from verl.workers.prm.model import ProcessRewardModel

_BAR_FROM = 256
"""Solutions from which on a call shows its progress."""


class HeadScorer:
    """A `StepScorer`."""

    def __init__(
        self,
        model: ProcessRewardModel,
        tokenizer: Any,
        *,
        batch_tokens: int = 32768,
        batch_rows: int = 128,
        autocast: torch.dtype | None = None,
        progress: bool = True,
    ) -> None:
        """Keeps the model where it is.

        Args:
            model: its `spec` says how it reads a solution.
            tokenizer: the one that it was trained with.
            batch_tokens: most padded tokens at once.
            batch_rows: most solutions at once.
            autocast: compute in this type; None: in that of the weights.
            progress: show a bar where there is much to do.
        """
        self.model, self.tokenizer = model, tokenizer
        self._encoder = model.encoder(tokenizer)
        self._batch_tokens, self._batch_rows = batch_tokens, batch_rows
        self._autocast, self._progress = autocast, progress
        self.tokens = 0
        """Read so far, without padding."""

    @classmethod
    def load(cls, folder: Path | str, *, device: str = "auto", **options: Any) -> "HeadScorer":
        """Of a saved model.

        Args:
            folder: of the model.
            device: where it reads; auto: a GPU if there is one.
            options: of `HeadScorer`.

        Raises:
            ValueError: the folder holds no process reward model.
        """
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        return cls(*ProcessRewardModel.load(folder, device=device), **options)

    def score_steps(self, problems: Sequence[str], steps: Sequence[Sequence[str]]) -> list[list[float | None]]:
        """As `StepScorer.score_steps`; a step that does not fit into the model's length has no score."""
        temperature = self.model.spec.temperature
        return [
            [None if logit is None else 1 / (1 + _exp(-logit / temperature)) for logit in row]
            for row in self.logits(problems, steps)
        ]

    def judged(self, problems: Sequence[str], steps: Sequence[Sequence[str]]) -> list[list[StepScore | None]]:
        """What each step earns beside its score; a step that does not fit has neither."""
        temperature, implicit = self.model.spec.temperature, self.model.spec.implicit
        found: list[list[StepScore | None]] = []
        for row in self.logits(problems, steps):
            judged: list[StepScore | None] = []
            before = 0.0
            for logit in row:
                if logit is None:
                    judged.append(None)
                    continue
                score = 1 / (1 + _exp(-logit / temperature))
                judged.append(StepScore(score, logit - before if implicit else score))
                before = logit
            found.append(judged)
        return found

    def logits(self, problems: Sequence[str], steps: Sequence[Sequence[str]]) -> list[list[float | None]]:
        """The log-odds that each step is right, before the temperature."""
        spec = self.model.spec
        found: list[list[float | None]] = [[None] * len(one) for one in steps]
        parts: list[tuple[Encoded, int, list[int]]] = []
        for number, (problem, one) in enumerate(zip(problems, steps, strict=True)):
            told = encode_solution(
                self._encoder, problem, one, architecture=spec.architecture, window=spec.context_window
            )
            parts += [(encoded, number, places) for encoded, places in told]
        lengths = [len(encoded.input_ids) for encoded, _, _ in parts]
        self.tokens += sum(lengths)
        batches = list(by_length(lengths, self._batch_tokens, self._batch_rows))
        training = self.model.training
        self.model.eval()
        shown = tqdm(batches, desc="score steps", disable=not self._progress or len(parts) < _BAR_FROM)
        for batch in shown:
            logits_BS = self._odds([parts[place][0] for place in batch])
            for row, place in enumerate(batch):
                _, number, places = parts[place]
                for at, step in enumerate(places):
                    found[number][step] = float(logits_BS[row, at])
        self.model.train(training)
        return found

    @torch.inference_mode()
    def _odds(self, rows: list[Encoded]) -> torch.Tensor:
        device = self.model.device
        tensors = collate(rows, self.tokenizer.pad_token_id or 0, device)
        with torch.autocast(device.type, self._autocast or torch.bfloat16, enabled=self._autocast is not None):
            logits_BS2 = self.model(**tensors)
        return (logits_BS2[..., 1] - logits_BS2[..., 0]).float().cpu()


def _exp(value: float) -> float:
    """Without an overflow."""
    return math.exp(min(value, 700.0))
