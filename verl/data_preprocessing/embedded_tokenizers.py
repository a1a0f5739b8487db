"""Tokenizers of the embedded world: trained on its texts, each model with one of its own.

Decision: every tokenizer works on bytes (no unknown token, so any real prompt goes through) and keeps digits single,
without which a small model cannot learn column arithmetic. Special tokens and chat template are Qwen3's, so that the
embedded models are driven exactly like real ones.

    tokenizer = train_tokenizer("bpe", texts, vocab_size=448)
    tokenizer.apply_chat_template([{"role": "user", "content": "1+1?"}], add_generation_prompt=True)
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

THINK_START, THINK_END = "<think>", "</think>"
TURN_START, TURN_END, PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"

# As in Qwen3, `enable_thinking=False` opens the assistant's turn with an empty thought; other values change nothing.
CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
    "{%- endif %}"
)


def train_tokenizer(
    algorithm: Literal["bpe", "unigram"], texts: Sequence[str], vocab_size: int, max_length: int = 4096
) -> "PreTrainedTokenizerFast":
    """Trains a byte-level tokenizer of at most `vocab_size` tokens; the same texts give the same tokenizer."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    alphabet = pre_tokenizers.ByteLevel.alphabet()
    # The markers of a thought are ordinary tokens, as in Qwen3, so that decoding without special tokens keeps them.
    added = [AddedToken(t, special=True, normalized=False) for t in (PAD, TURN_START, TURN_END)]
    added += [AddedToken(t, special=False, normalized=False) for t in (THINK_START, THINK_END)]
    learned = vocab_size - len(added)
    trainer: trainers.Trainer
    if algorithm == "bpe":
        backend = Tokenizer(models.BPE())
        trainer = trainers.BpeTrainer(vocab_size=learned, initial_alphabet=alphabet, show_progress=False)
    else:
        backend = Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(vocab_size=learned, initial_alphabet=alphabet, show_progress=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    backend.train_from_iterator(texts, trainer)
    backend.add_tokens(added)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=TURN_END, pad_token=PAD, model_max_length=max_length, padding_side="left"
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
