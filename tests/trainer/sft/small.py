"""A model and rows that a supervised run learns in seconds: sums of two digits, asked in the template of Qwen3.

>>> small = make_small(tmp_path)
>>> small.model, small.train_file
"""

from dataclasses import dataclass
from pathlib import Path

from verl.data_preprocessing.common import write_parquet
from verl.data_preprocessing.reasoning_traces import TracedRow, sft
from verl.teaching.explanation import STYLES


@dataclass(frozen=True, kw_only=True)
class Small:
    """Where the parts lie."""

    model: Path
    """Folder with a Qwen3 model and its tokenizer."""
    train_file: Path
    """Parquet with 32 rows of a teacher who explains."""
    val_file: Path
    """Five more."""


def explained(number: int) -> TracedRow:
    """A sum with its explanation."""
    a, b = 11 + number, 12 + 2 * number
    return TracedRow(question=f"What is {a} + {b}?", solution=str(a + b), trace=f"{a} and {b} make {a + b}.")


def save_model(folder: Path, texts: list[str], *, seed: int = 0) -> Path:
    """Writes a random Qwen3 and a tokenizer of these texts; returns `folder`."""
    import torch
    from transformers import Qwen3ForCausalLM

    from tests.tiny_qwen3 import tiny_qwen3
    from verl.data_preprocessing.embedded_tokenizers import train_tokenizer

    tokenizer = train_tokenizer("bpe", texts, 400)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = tiny_qwen3(
        len(tokenizer), max_position_embeddings=512, eos_token_id=tokenizer.eos_token_id, bos_token_id=None
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


def make_small(folder: Path) -> Small:
    """Writes model and rows below `folder`."""
    rows = [sft.explaining_row(explained(number), STYLES["stratos"]) for number in range(37)]
    texts = [turn["content"] for row in rows for turn in row["messages"]]
    model = save_model(folder / "model", texts)
    for name, some in (("train", rows[:32]), ("val", rows[32:])):
        write_parquet(some, folder / f"{name}.parquet")
    return Small(model=model, train_file=folder / "train.parquet", val_file=folder / "val.parquet")
