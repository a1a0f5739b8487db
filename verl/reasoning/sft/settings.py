"""How a model is fine-tuned.

One decision: the settings say what is learnt, and mean the same to both trainers: a step has `batch_size` whole rows,
rows of an epoch that fill no step are left for the next shuffle, and the loss is the mean over the learnt tokens of a
step.

    >>> FineTuneSettings(epochs=2, learning_rate=1e-5)
"""

from dataclasses import dataclass
from typing import Literal

from verl.classmate.errors import ConfigError
from verl.reasoning.choices import check_choices

Precision = Literal["auto", "fp32", "bf16", "fp16"]


@dataclass(frozen=True, kw_only=True)
class FineTuneSettings:
    """Settings of `fine_tune`."""

    epochs: int = 2
    """Passes over the rows."""
    batch_size: int = 16
    """Rows of a step; fewer where there are fewer."""
    micro_batch_size: int = 4
    """Most rows that the trainer `transformers` works on at a time."""
    tokens_at_once: int | None = None
    """Tokens that the trainer `verl` works on at a time, on each GPU; None: `max_length`."""
    learning_rate: float = 1e-5
    """Peak of AdamW's."""
    warmup_ratio: float = 0.03
    """Share of the steps over which the rate rises."""
    min_lr_ratio: float = 0.1
    """It falls as a cosine to this share of the peak."""
    weight_decay: float = 0.0
    """Of AdamW, on all weights."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm."""
    max_length: int = 4096
    """Tokens of the longest row; longer ones are left out and counted."""
    precision: Precision = "auto"
    """Of the passes; weights and optimizer stay in fp32. auto: bf16 on a GPU, else fp32. fp16 scales the loss, which
    needs a GPU and the trainer `transformers`."""
    gradient_checkpointing: bool = False
    """Computes activations again in the backward pass: less memory, a third more time."""
    save_every: int | None = None
    """Steps between checkpoints; None: one at the end of each epoch."""
    seed: int = 0
    """Of the order of rows, and of dropout."""
    backend: Literal["auto", "verl", "transformers"] = "auto"
    """Who trains: verl's trainer in processes of its own, on all GPUs, or transformers' in this one, which starts in
    seconds. auto: verl where there is a GPU."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where; auto: a GPU if there is one."""

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("epochs", "batch_size", "micro_batch_size", "max_length"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} is no count; write 1 or more")
        if self.save_every is not None and self.save_every < 1:
            raise ConfigError(f"save_every={self.save_every} is no count; write 1 or more, or None")
        if self.learning_rate <= 0:
            raise ConfigError(f"learning_rate={self.learning_rate} learns nothing; write 1e-5")
        if not 0 <= self.warmup_ratio < 1 or not 0 <= self.min_lr_ratio <= 1:
            raise ConfigError(
                f"warmup_ratio={self.warmup_ratio}, min_lr_ratio={self.min_lr_ratio}: write shares of 1, such as 0.03 "
                "and 0.1"
            )

    def on(self) -> str:
        """`cpu` or `cuda`."""
        return device_of(self.device)

    def trainer(self) -> Literal["verl", "transformers"]:
        """Who trains on this machine.

        Raises:
            ConfigError: it cannot train so.
        """
        chosen = self.backend
        if chosen == "auto":
            chosen = "verl" if self.on() == "cuda" and self.precision != "fp16" else "transformers"
        if chosen == "verl" and self.precision == "fp16":
            raise ConfigError("precision=fp16 needs a loss that is scaled; write bf16, or backend='transformers'")
        precision_of(self.precision, self.on())
        return chosen


def device_of(device: str) -> str:
    """`cpu` or `cuda`, for `auto` what this machine has."""
    import torch

    return device if device != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")


def precision_of(precision: str, device: str) -> Literal["fp32", "bf16", "fp16"]:
    """The precision of the passes on a device.

    Raises:
        ConfigError: the device has none such.
    """
    if precision == "auto":
        return "bf16" if device == "cuda" else "fp32"
    if precision == "fp16" and device != "cuda":
        raise ConfigError("precision=fp16 needs a GPU, whose loss can be scaled; write fp32 or bf16")
    if precision not in ("fp32", "bf16", "fp16"):
        raise ConfigError(f"precision={precision!r} is not possible; write auto, fp32, bf16 or fp16")
    return precision  # type: ignore[return-value]
