"""A student in training: its weights, one optimizer and one schedule, which counts tokens.

One decision: the learning rate is a function of the tokens learnt so far and of the tokens that there are to learn in
all, whatever stages they are spent in; so a stage never begins with a rate of its own, and a control with as many
tokens has the same schedule.

    >>> learner = Learner(model, pad_id=0, settings=LearnSettings(budget=100_000), loss=loss)
    >>> learner.step(rows)["loss"]
"""

import contextlib
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from verl.reasoning.distill.losses import Loss
from verl.reasoning.sft.chat import Row, collate
from verl.reasoning.sft.settings import Precision, device_of, precision_of

StepLoss = Callable[[torch.Tensor, torch.Tensor, Sequence[Row], int], Loss]
"""The loss of a micro-batch: logits (B, T, V), labels (B, T), its rows, learnt tokens of the whole step."""


@dataclass(frozen=True, kw_only=True)
class LearnSettings:
    """How a student is trained."""

    budget: int
    """Tokens to learn in all."""
    learning_rate: float = 2e-5
    """Peak."""
    warmup_ratio: float = 0.03
    """Share of the tokens over which it rises."""
    warmup_steps: int | None = None
    """Steps over which it rises; None: `warmup_ratio`."""
    min_lr_ratio: float = 0.1
    """It falls as a cosine to this share."""
    micro_batch_size: int = 8
    """Rows that are worked on at a time."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm."""
    precision: Precision = "auto"
    """Of the passes."""
    gradient_checkpointing: bool = False
    """Less memory, more time."""
    device: str = "auto"
    """Where."""
    seed: int = 0
    """Of dropout."""


class Learner:
    """One student; weights and optimizer are in fp32."""

    def __init__(self, model: Any, *, pad_id: int, settings: LearnSettings, loss: StepLoss) -> None:
        """Takes the model to its device.

        Args:
            model: a causal language model.
            pad_id: what rows are padded with.
            settings: how it is trained.
            loss: of a micro-batch.

        Raises:
            ConfigError: the device has no such precision.
        """
        self.device = device_of(settings.device)
        self.precision = precision_of(settings.precision, self.device)
        self.model = model.float().to(self.device)
        if settings.gradient_checkpointing:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.settings, self._pad_id, self._loss = settings, pad_id, loss
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=0.0
        )
        self.scaler = torch.amp.GradScaler(self.device, enabled=self.precision == "fp16")  # type: ignore[attr-defined]
        self.tokens = self.steps = 0
        torch.manual_seed(settings.seed)

    @property
    def is_done(self) -> bool:
        """Whether the budget is spent."""
        return self.tokens >= self.settings.budget

    def rate(self) -> float:
        """The learning rate of the next step."""
        settings = self.settings
        share = self.tokens / settings.budget
        if settings.warmup_steps is not None:
            rising = (self.steps + 1) / max(1, settings.warmup_steps)
        else:
            # The first step learns something as well.
            rising = (share + 1e-3) / settings.warmup_ratio if settings.warmup_ratio else 1.0
        low = settings.min_lr_ratio
        falling = low + (1 - low) * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
        return settings.learning_rate * min(1.0, rising) * falling

    def step(self, rows: Sequence[Row]) -> dict[str, float]:
        """One update; numbers are means over the learnt tokens of its rows."""
        self.model.train()
        tokens, rate, told = sum(row.learnt for row in rows), self.rate(), dict[str, float]()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        for start in range(0, len(rows), self.settings.micro_batch_size):
            part = rows[start : start + self.settings.micro_batch_size]
            batch = {name: one.to(self.device) for name, one in collate(part, pad_id=self._pad_id).items()}
            with self._cast():
                logits_BTV = self.model(
                    input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False
                ).logits
            loss = self._loss(logits_BTV, batch["labels"], part, tokens)
            self.scaler.scale(loss.loss).backward()
            named = {"loss": loss.loss.item(), "cross_entropy": loss.cross_entropy, "divergence": loss.divergence}
            for name, value in named.items():
                if not math.isnan(value):
                    told[name] = told.get(name, 0.0) + value
        self.scaler.unscale_(self.optimizer)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.max_grad_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.tokens += tokens
        self.steps += 1
        return {**told, "lr": rate, "grad_norm": float(norm), "tokens": float(self.tokens)}

    def _cast(self) -> Any:
        if self.precision == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.device, dtype=torch.bfloat16 if self.precision == "bf16" else torch.float16)

    def save(self, file: Path, **more: Any) -> None:
        """Writes all that the next step depends on, in one piece; `more` comes back from `load`."""
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(file.name + ".partial")
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "counts": (self.tokens, self.steps),
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state_all() if self.device == "cuda" else [],
            "more": more,
        }
        torch.save(state, partial)
        os.replace(partial, file)

    def load(self, file: Path) -> dict[str, Any]:
        """Becomes what `save` has written; returns what was put beside it."""
        state = torch.load(file, map_location=self.device, weights_only=False)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.tokens, self.steps = state["counts"]
        torch.set_rng_state(state["random"].cpu())
        if self.device == "cuda" and state["random_cuda"]:
            torch.cuda.set_rng_state_all([one.cpu() for one in state["random_cuda"]])
        more: dict[str, Any] = state["more"]
        return more
