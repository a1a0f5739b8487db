"""A policy that trains in seconds: a random Qwen3 of 0.1 M parameters, its tokenizer, eight prompts, a reward to learn.

The one decision: everything is made from a seed on the spot, so that no test needs a download or the embedded world.

    >>> world = make_tiny_world(tmp_path)
    >>> world.model, world.train_file, world.reward_file
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

SPECIAL = ("<pad>", "<eos>", "<user>", "<assistant>", "<unk>")
# Upstream's agent loop expects the tokenizer of a Qwen model to have the line break as one token.
CHARACTERS = tuple("abcdefghijklmnopqrstuvwxyz0123456789+-*/=?.,:# \n")
CHAT_TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
REWARD_SOURCE = '''"""Share of the letters a to m: a random policy writes one in four, so that all groups differ."""


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    return sum("a" <= letter <= "m" for letter in solution_str) / max(1, len(solution_str))
'''


@dataclass(frozen=True, kw_only=True)
class TinyWorld:
    """Where the parts lie."""

    model: Path
    """Folder with a Qwen3 model and its tokenizer."""
    train_file: Path
    """Parquet with eight prompts."""
    reward_file: Path
    """Python file with a `compute_score`."""


def _save_tokenizer(folder: Path) -> int:
    from tokenizers import Regex, Tokenizer
    from tokenizers.decoders import Fuse
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: i for i, token in enumerate(SPECIAL + CHARACTERS)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        additional_special_tokens=["<user>", "<assistant>"],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
    fast.save_pretrained(folder)
    return len(vocabulary)


def make_tiny_world(folder: Path, seed: int = 0, *, context: int = 128) -> TinyWorld:
    """Writes model, data and reward function below `folder`; `context` is the most tokens of a text."""
    import pandas as pd
    import torch
    from transformers import Qwen3ForCausalLM

    from tests.tiny_qwen3 import tiny_qwen3

    model_folder = folder / "policy"
    vocabulary_size = _save_tokenizer(model_folder)
    torch.manual_seed(seed)
    config = tiny_qwen3(
        vocabulary_size,
        width=64,
        max_position_embeddings=context,
        tie_word_embeddings=False,
        initializer_range=0.2,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    Qwen3ForCausalLM(config).save_pretrained(model_folder)

    rows = [
        {
            "data_source": "tiny",
            "prompt": [{"role": "user", "content": f"{a} + {b} = ?"}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": str(a + b)},
            "extra_info": {"index": i, "split": "train"},
        }
        for i, (a, b) in enumerate([(1, 2), (3, 4), (5, 6), (7, 8), (2, 2), (4, 9), (0, 5), (6, 1)])
    ]
    train_file = folder / "train.parquet"
    pd.DataFrame(rows).to_parquet(train_file)
    reward_file = folder / "letters_reward.py"
    reward_file.write_text(REWARD_SOURCE)
    return TinyWorld(model=model_folder, train_file=train_file, reward_file=reward_file)


def save_reward_model(folder: Path, tokenizer: Any, *, max_length: int) -> Path:
    """Writes a random Qwen3 reward model for texts of `tokenizer`, and that; returns `folder`."""
    import torch
    from transformers import Qwen3ForSequenceClassification

    from tests.tiny_qwen3 import tiny_qwen3

    tokenizer.save_pretrained(folder)
    torch.manual_seed(3)
    config = tiny_qwen3(
        len(tokenizer),
        max_position_embeddings=max_length,
        num_labels=1,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.5,
    )
    Qwen3ForSequenceClassification(config).save_pretrained(folder)
    return folder
