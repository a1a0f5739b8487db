"""A world of sums that a model learns in seconds, for tests of the pipeline's supervised stages.

>>> world = make_sums(tmp_path)
>>> world.model, world.pairs[0]
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl.data_preprocessing.embedded_models import ModelSpec, new_model
from verl.data_preprocessing.embedded_tokenizers import train_tokenizer


@dataclass(frozen=True, kw_only=True)
class Sums:
    """Model and texts."""

    model: Path
    """Folder of a model that knows nothing."""
    pairs: list[tuple[str, str]]
    """Problem and answer."""


def pairs_of_sums(most: int = 6) -> list[tuple[str, str]]:
    """All sums of two numbers below `most`."""
    return [(f"What is {a} + {b}?", f"{a} + {b} = {a + b}.") for a in range(most) for b in range(most)]


def save_model(folder: Path, tokenizer: Any, *, seed: int = 0, hidden: int = 32, layers: int = 1) -> Path:
    """Writes an untaught model with a tokenizer; returns `folder`."""
    spec = ModelSpec(
        name="sums", tokenizer="bpe", vocab_size=320, hidden_size=hidden, layers=layers, heads=2, head_dim=16, steps=0
    )
    tokenizer.save_pretrained(folder)
    new_model(spec, tokenizer, seed).save_pretrained(folder)
    return folder


def sums_tokenizer(vocab_size: int = 320) -> Any:
    """Of the texts of the sums."""
    return train_tokenizer("bpe", [text for pair in pairs_of_sums(10) for text in pair], vocab_size)


def make_sums(folder: Path, *, seed: int = 0, most: int = 6) -> Sums:
    """Writes an untaught model below `folder`."""
    return Sums(model=save_model(folder / "model", sums_tokenizer(), seed=seed), pairs=pairs_of_sums(most))
