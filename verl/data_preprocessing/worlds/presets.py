"""The worlds that there are, each a value. `dataclasses.replace` makes others of them.

spec = dataclasses.replace(WORLDS["thought_styles"], seed=1)
"""

from verl.data_preprocessing.embedded_models import ModelSpec
from verl.data_preprocessing.worlds import columns, programs
from verl.data_preprocessing.worlds.spec import Reader, WorldSpec

HINTED_ARITHMETIC = WorldSpec(
    name="hinted_arithmetic",
    task="hinted_arithmetic",
    slip_share=0.4,
    hint_share=1 / 3,
    follow_share=0.5,
    policy=ModelSpec(name="policy", tokenizer="bpe", vocab_size=448, hidden_size=64, layers=3, steps=700),
    readers=(
        Reader(
            role="classmate",
            model=ModelSpec(
                name="classmate_a", tokenizer="unigram", vocab_size=300, hidden_size=64, layers=2, steps=450
            ),
        ),
        Reader(
            role="classmate",
            model=ModelSpec(name="classmate_b", tokenizer="bpe", vocab_size=340, hidden_size=96, layers=2, steps=400),
        ),
    ),
)
"""The world of `verl.data_preprocessing.hinted_arithmetic`."""

_READERS_SEED = 777

_THOUGHT_READERS = (
    Reader(
        role="classmate",
        model=ModelSpec(name="classmate_a", tokenizer="unigram", vocab_size=300, hidden_size=64, layers=2, steps=600),
    ),
    Reader(
        role="classmate",
        model=ModelSpec(name="classmate_b", tokenizer="bpe", vocab_size=340, hidden_size=80, layers=2, steps=900),
    ),
    Reader(
        role="unseen",
        model=ModelSpec(
            name="unseen_llama",
            tokenizer="bpe",
            vocab_size=300,
            architecture="llama",
            hidden_size=64,
            layers=3,
            steps=1200,
        ),
    ),
    Reader(
        role="unseen",
        model=ModelSpec(
            name="unseen_dialect", tokenizer="unigram", vocab_size=340, hidden_size=64, layers=2, steps=1800
        ),
        reads=("dialect",),
    ),
    Reader(
        role="insider",
        model=ModelSpec(name="insider", tokenizer="unigram", vocab_size=300, hidden_size=64, layers=2, steps=800),
        reads=("plain", "shorthand"),
    ),
)

_THOUGHT_STYLES = WorldSpec(
    name="thought_styles",
    task="arithmetic",
    readers_seed=_READERS_SEED,
    styles=(("plain", 0.4), ("shorthand", 0.3), ("empty", 0.3)),
    slip_share=0.3,
    stripped_share=0.5,
    # With fewer steps the private styles go wrong more often than the plain one, and RL prefers it for that alone.
    policy=ModelSpec(name="policy", tokenizer="bpe", vocab_size=420, hidden_size=64, layers=3, steps=3000),
    readers=_THOUGHT_READERS,
)

_THOUGHT_STYLES_CIPHER = WorldSpec(
    name="thought_styles_cipher",
    task="arithmetic",
    readers_seed=_READERS_SEED,
    styles=(("plain", 0.3), ("shorthand", 0.2), ("empty", 0.2), ("cipher", 0.3)),
    slip_share=0.3,
    stripped_share=0.5,
    policy=ModelSpec(
        name="policy",
        tokenizer="bpe",
        vocab_size=420,
        hidden_size=64,
        layers=3,
        steps=3600,
        whole_words=columns.WORDS,
    ),
    readers=_THOUGHT_READERS,
)

_FOLLOWS = ("every_step", "easy_skips")
_LOST = ("hard_skips",)

_UNEVEN_STEPS = WorldSpec(
    name="uneven_steps",
    task="programs",
    readers_seed=_READERS_SEED,
    styles=(("every_step", 0.3), ("easy_skips", 0.35), ("hard_skips", 0.35)),
    slip_share=0.2,
    stripped_share=0.6,
    short_share=0.15,
    policy=ModelSpec(
        name="policy",
        tokenizer="bpe",
        vocab_size=340,
        hidden_size=64,
        layers=3,
        steps=2400,
        whole_words=programs.WORDS,
    ),
    readers=(
        Reader(
            role="classmate",
            model=ModelSpec(
                name="classmate_a",
                tokenizer="unigram",
                vocab_size=320,
                hidden_size=64,
                layers=3,
                steps=1800,
                whole_words=programs.WORDS,
            ),
            reads=_FOLLOWS,
            gives_up=_LOST,
        ),
        Reader(
            role="classmate",
            model=ModelSpec(
                name="classmate_b",
                tokenizer="bpe",
                vocab_size=300,
                hidden_size=80,
                layers=3,
                steps=2000,
                whole_words=programs.WORDS,
            ),
            reads=_FOLLOWS,
            gives_up=_LOST,
        ),
        Reader(
            role="unseen",
            model=ModelSpec(
                name="unseen_weak",
                tokenizer="unigram",
                vocab_size=340,
                hidden_size=96,
                layers=3,
                steps=1800,
                whole_words=programs.WORDS,
            ),
            reads=_FOLLOWS,
            gives_up=_LOST,
        ),
        Reader(
            role="unseen",
            model=ModelSpec(
                name="unseen_strong",
                tokenizer="bpe",
                vocab_size=340,
                hidden_size=96,
                layers=3,
                steps=1800,
                whole_words=programs.WORDS,
            ),
            reads=(*_FOLLOWS, *_LOST),
        ),
    ),
)

WORLDS = {spec.name: spec for spec in (_THOUGHT_STYLES, _THOUGHT_STYLES_CIPHER, _UNEVEN_STEPS)}
"""The worlds of `verl.data_preprocessing.worlds`, by name."""
