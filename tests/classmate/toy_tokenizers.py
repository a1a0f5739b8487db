"""Small real tokenizers of every kind that matters for locating text in tokens, trained in a moment.

One decision: they are built with the `tokenizers` library from one corpus, so that nothing is downloaded.

    >>> tokenizer = TOKENIZERS["byte_bpe"]()
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
PREOPENED = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>"
    "{% if m.role == 'assistant' and '</think>' in m.content %}{{ m.content.split('</think>')[-1] }}"
    "{% else %}{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|><think>\n{% endif %}"
)

CORPUS = [
    f"<think>\nTom has {a} apples and gets {b}, so {a} + {b} = {a + b}.</think>\n\nThe answer is {a + b}. 你好 é 🙂"
    for a in range(2, 40)
    for b in range(3, 30, 4)
] + ["The quick brown fox jumps over the lazy dog: one two three four, 0123456789."]
SPECIAL = ["<|im_start|>", "<|im_end|>", "<s>", "<|begin|>", "<|message|>"]


def _wrap(core: Tokenizer, **kwargs: str) -> PreTrainedTokenizerFast:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|im_end|>", bos_token="<s>", **kwargs)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|begin|>", "<|message|>"]})
    tokenizer.chat_template = CHATML
    return tokenizer


def _byte_level(*, use_regex: bool) -> Tokenizer:
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    core.decoder = decoders.ByteLevel()
    core.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=600, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
        ),
    )
    return core


@cache
def byte_bpe() -> PreTrainedTokenizerFast:
    """Qwen-like: byte-level BPE whose markers are single tokens that are not special."""
    tokenizer = _wrap(_byte_level(use_regex=True))
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in ("<think>", "</think>")])
    return tokenizer


@cache
def text_bpe() -> PreTrainedTokenizerFast:
    """Byte-level BPE without marker tokens: markers are ordinary text of several tokens."""
    return _wrap(_byte_level(use_regex=True))


@cache
def merging_bpe() -> PreTrainedTokenizerFast:
    """Byte-level BPE that merges across everything, so that tokens hold marker and neighbour characters."""
    return _wrap(_byte_level(use_regex=False))


@cache
def wordpiece() -> PreTrainedTokenizerFast:
    """BERT-like WordPiece; decoding changes white space."""
    core = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece(cleanup=False)
    core.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=400, special_tokens=["[UNK]", *SPECIAL]))
    tokenizer = _wrap(core, unk_token="[UNK]")
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in ("<think>", "</think>")])
    return tokenizer


@cache
def unigram() -> PreTrainedTokenizerFast:
    """SentencePiece-like Unigram with metaspace."""
    core = Tokenizer(models.Unigram())
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    core.decoder = decoders.Metaspace()
    core.train_from_iterator(
        CORPUS, trainers.UnigramTrainer(vocab_size=300, special_tokens=["<unk>", *SPECIAL], unk_token="<unk>")
    )
    return _wrap(core, unk_token="<unk>")


@cache
def character_bpe() -> PreTrainedTokenizerFast:
    """BPE that splits single characters, in which every marker is many tokens."""
    core = Tokenizer(models.BPE(unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    core.decoder = decoders.Fuse()
    core.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=300, special_tokens=["[UNK]", *SPECIAL]))
    return _wrap(core, unk_token="[UNK]")


TOKENIZERS: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    "byte_bpe": byte_bpe,
    "text_bpe": text_bpe,
    "merging_bpe": merging_bpe,
    "wordpiece": wordpiece,
    "unigram": unigram,
    "character_bpe": character_bpe,
}

QWEN3 = (
    "{% set ns = namespace(last=0) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% set text = m.content %}"
    "{% if m.role == 'assistant' and '</think>' in text %}{% set text = text.split('</think>')[-1].lstrip('\n') %}"
    "{% endif %}{% if m.role == 'assistant' and loop.index0 > ns.last %}<think>\n\n</think>\n\n{% endif %}"
    "{{ text }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""As Qwen3's: thoughts of earlier turns are dropped."""
HEADERS = (
    "{% for m in messages %}<|start_header|>{{ m.role }}<|end_header|>{{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header|>thought<|end_header|>{% endif %}"
)
"""Headers name the channel, and the template opens the one for thoughts."""


@contextmanager
def templated(tokenizer: PreTrainedTokenizerFast, template: str | None) -> Iterator[PreTrainedTokenizerFast]:
    """The tokenizer with another chat template for a while."""
    before, tokenizer.chat_template = tokenizer.chat_template, template
    try:
        yield tokenizer
    finally:
        tokenizer.chat_template = before


@cache
def header_bpe() -> PreTrainedTokenizerFast:
    """Byte-level BPE whose markers are headers of special tokens around a word."""
    tokenizer = _wrap(_byte_level(use_regex=True))
    special = ["<|im_start|>", "<|begin|>", "<|message|>", "<|start_header|>", "<|end_header|>"]
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.chat_template = HEADERS
    return tokenizer
