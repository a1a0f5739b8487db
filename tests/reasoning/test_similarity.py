"""Similarities against counts by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.classmate.toy_tokenizers import byte_bpe
from tests.tiny_qwen3 import tiny_qwen3
from verl.classmate.errors import ConfigError
from verl.reasoning.similarity import equations, expressions, similarity, tfidf

TEXTS = st.lists(st.text(alphabet="ab 12+=.", max_size=12), min_size=1, max_size=6)


def test_tfidf_by_hand() -> None:
    # Grams: {a, b, "a b"} and {a, c, "a c"}; only a is shared. idf: a 1, others ln(3/2) + 1.
    rare = math.log(3 / 2) + 1
    assert tfidf(["a b", "a c"])[0, 1] == pytest.approx(1 / (1 + 2 * rare**2))


def test_equations_in_one_spelling() -> None:
    assert equations("First 3 + 4=7. Then x \u00d7 5 = 10 = y.") == {"3+4=7", "x*5=10=y"}
    assert equations(r"So \frac{1}{2} = 0.5, which is a = b") == {r"\frac{1}{2}=0.5", "a=b"}
    sims = expressions(["3 + 4 = 7", "3+4=7", "1 + 1 = 2", "no sum"])
    assert sims[0, 1] == 1.0
    assert sims[0, 2] == 0.0
    assert sims[0, 3] == 0.0


@given(TEXTS)
@pytest.mark.parametrize("measure", [tfidf, expressions])
def test_laws(measure, texts: list[str]) -> None:  # type: ignore[no-untyped-def]
    sims = measure(texts)
    assert sims.shape == (len(texts), len(texts))
    assert np.array_equal(sims, sims.T)
    assert ((sims >= 0) & (sims <= 1)).all()
    assert all(sims[i, j] == 1 for i, a in enumerate(texts) for j, b in enumerate(texts) if a == b)


def test_hidden_does_not_depend_on_the_pool() -> None:
    from transformers import Qwen3ForCausalLM

    torch.manual_seed(0)
    tokenizer = byte_bpe()
    model = Qwen3ForCausalLM(tiny_qwen3(len(tokenizer))).eval()
    measure = similarity("hidden", model=model, tokenizer=tokenizer)
    two, three = measure(["one two", "0123"]), measure(["one two", "0123", "a much longer text with many words " * 3])
    assert two[0, 1] == pytest.approx(three[0, 1], abs=1e-5)
    assert two[0, 0] == 1.0


def test_what_is_missing_is_said() -> None:
    with pytest.raises(ConfigError, match="tfidf, expr, hidden or sentence"):
        similarity("cosine")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="give the model and its tokenizer"):
        similarity("hidden")
