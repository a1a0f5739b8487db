"""Tokenizers of the embedded worlds: trained on their texts, each model with one of its own.

Decision: every tokenizer works on bytes (no unknown token, so any real prompt goes through) and keeps digits single,
without which a small model cannot learn column arithmetic. Pieces may span words, which makes texts short. Special
tokens and chat template are Qwen3's, so that the embedded models are driven exactly like real ones.

    tokenizer = train_tokenizer("bpe", texts, vocab_size=448)
    tokenizer.apply_chat_template([{"role": "user", "content": "1+1?"}], add_generation_prompt=True)
"""

import math
from collections import Counter
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
    algorithm: Literal["bpe", "unigram"],
    texts: Sequence[str],
    vocab_size: int,
    max_length: int = 4096,
    whole_words: Sequence[str] = (),
) -> "PreTrainedTokenizerFast":
    """Trains a byte-level tokenizer of at most `vocab_size` tokens; the same texts give the same tokenizer.

    Args:
        whole_words: words that become one token each, where no letter or digit stands beside them.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    # The markers of a thought are ordinary tokens, as in Qwen3, so that decoding without special tokens keeps them.
    added = [AddedToken(t, special=True, normalized=False) for t in (PAD, TURN_START, TURN_END)]
    added += [AddedToken(t, special=False, normalized=False) for t in (THINK_START, THINK_END)]
    added += [AddedToken(t, special=False, normalized=False, single_word=True) for t in whole_words]
    pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(added), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    if algorithm == "unigram":
        # The library's Unigram trainer gives another tokenizer every time; BPE's pieces with their frequencies do not.
        counts = Counter(token for encoding in backend.encode_batch(list(texts)) for token in encoding.tokens)
        pieces = sorted(backend.get_vocab(), key=backend.token_to_id)
        total = sum(counts.values()) + len(pieces)
        backend = Tokenizer(models.Unigram([(piece, math.log((counts[piece] + 1) / total)) for piece in pieces]))
        backend.pre_tokenizer = pre_tokenizer
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens(added)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=TURN_END, pad_token=PAD, model_max_length=max_length, padding_side="left"
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
