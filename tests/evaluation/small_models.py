"""Models that know nothing, with toy tokenizers, for commands that load them by their names.

>>> save_model(tmp_path / "reader", "byte_bpe")
"""

from pathlib import Path

from tests.classmate.toy_tokenizers import TOKENIZERS
from tests.tiny_qwen3 import tiny_qwen3


def save_model(folder: Path, tokenizer: str) -> Path:
    """Writes a random Qwen3 into a folder; returns it."""
    import torch
    from transformers import Qwen3ForCausalLM

    its_tokenizer = TOKENIZERS[tokenizer]()
    its_tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    Qwen3ForCausalLM(tiny_qwen3(len(its_tokenizer), max_position_embeddings=1024)).save_pretrained(folder)
    return folder
