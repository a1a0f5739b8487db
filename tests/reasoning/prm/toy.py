"""A toy of arithmetic: sums of digits, a step each; one step may be false, and its place is known."""

import random
from functools import lru_cache
from typing import Any

from verl.data_preprocessing.embedded_models import ModelSpec, new_model
from verl.data_preprocessing.embedded_tokenizers import train_tokenizer
from verl.reasoning.prm.rows import LabelledSolution

LARGEST = 2


def toy_row(rng: random.Random, number: int, share_wrong: float = 0.5) -> LabelledSolution:
    """Three pairs of digits; each step adds one pair."""
    pairs = [(rng.randint(0, LARGEST), rng.randint(0, LARGEST)) for _ in range(3)]
    wrong = rng.randrange(3) if rng.random() < share_wrong else -1
    steps = []
    for place, (a, b) in enumerate(pairs):
        total = a + b
        if place == wrong:
            total = rng.choice([other for other in range(2 * LARGEST + 1) if other != total])
        steps.append(f"{a}+{b}={total}\n")
    labels = [None if -1 < wrong < place else place != wrong for place in range(3)]
    return LabelledSolution(
        prompt="Add.",
        completions=tuple(steps),
        labels=tuple(labels),
        problem_id=str(number),
        correct=wrong < 0,
    )


def toy_rows(count: int, seed: int = 0) -> list[LabelledSolution]:
    rng = random.Random(seed)
    return [toy_row(rng, seed * 100000 + number) for number in range(count)]


@lru_cache
def _base(hidden_size: int, layers: int) -> tuple[Any, Any]:
    texts = [row.prompt + "".join(row.completions) for row in toy_rows(50)]
    tokenizer = train_tokenizer("bpe", texts, 300)
    spec = ModelSpec(name="toy", tokenizer="bpe", vocab_size=300, hidden_size=hidden_size, layers=layers, steps=1)
    return new_model(spec, tokenizer, 0), tokenizer


def toy_base(hidden_size: int = 32, layers: int = 2) -> tuple[Any, Any]:
    """A model with random weights and a tokenizer of its own."""
    import copy

    return copy.deepcopy(_base(hidden_size, layers))
