"""The supervised loop: what it learns, what it does not, and what it counts."""

import random
from pathlib import Path

import pytest

from verl.data_preprocessing.embedded_models import IGNORE, Lesson, ModelSpec, load_model, train_model
from verl.data_preprocessing.embedded_tokenizers import train_tokenizer
from verl.evaluation.rival_study.fine_tuning import _padded, fine_tune
from verl.evaluation.rival_study.spec import FineTuning

WORDS = ("red", "blue", "green", "white")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that answers one of four colours, whatever is asked."""
    folder = tmp_path_factory.mktemp("start")
    spec = ModelSpec(name="m", tokenizer="bpe", vocab_size=300, hidden_size=32, layers=1, steps=40, batch_size=8)
    tokenizer = train_tokenizer("bpe", [f"say {word}" for word in WORDS] * 5, spec.vocab_size)

    def lesson(rng: random.Random, index: int) -> Lesson:
        return Lesson(given="say ", learnt=rng.choice(WORDS) + "<|im_end|>")

    train_model(spec, tokenizer, lesson, 0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_it_learns_what_was_accepted(start: Path, tmp_path: Path) -> None:
    _, tokenizer = load_model(start)
    given, learnt = tokenizer("say ")["input_ids"], tokenizer("green<|im_end|>")["input_ids"]
    how = FineTuning(lr=3e-3, epochs=3, batch_size=4)
    assert fine_tune(start, [(given, learnt)] * 20, how, seed=0, folder=tmp_path) == 3 * 20 * len(learnt)
    model, tokenizer = load_model(tmp_path)
    asked = tokenizer("say ", return_tensors="pt", return_token_type_ids=False)
    said = model.generate(**asked, max_new_tokens=len(learnt), do_sample=False)
    assert tokenizer.decode(said[0, len(given) :], skip_special_tokens=True) == "green"
    again = tmp_path / "again"
    fine_tune(start, [(given, learnt)] * 20, how, seed=0, folder=again)
    assert (again / "model.safetensors").read_bytes() == (tmp_path / "model.safetensors").read_bytes()


def test_what_is_read_and_padding_are_not_learnt() -> None:
    ids_BT, labels_BT = _padded([([1, 2, 3], [4, 5]), ([1], [6])], pad=0)
    assert ids_BT.tolist() == [[1, 2, 3, 4, 5], [1, 6, 0, 0, 0]]
    no = IGNORE
    assert labels_BT.tolist() == [[no, no, no, 4, 5], [no, 6, no, no, no]]


def test_nothing_accepted_is_said(start: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no trace was accepted"):
        fine_tune(start, [], FineTuning(), seed=0, folder=tmp_path)
