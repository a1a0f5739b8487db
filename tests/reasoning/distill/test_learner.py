"""A student in training and a teacher's cache: memory options, the schedule, parts that are computed once."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.reasoning.sums import pairs_of_sums, save_model, sums_tokenizer
from verl.classmate.errors import ConfigError
from verl.reasoning.distill import teacher_cache
from verl.reasoning.distill.learner import Learner, LearnSettings
from verl.reasoning.distill.losses import Loss, distillation_loss
from verl.reasoning.distill.teacher_cache import TeacherCache, teacher_tokens
from verl.reasoning.sft.chat import Row, encode_all


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return encode_all(sums_tokenizer(), pairs_of_sums(4), max_length=64)[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"), sums_tokenizer())


def model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype="float32")


def supervised(logits: torch.Tensor, labels: torch.Tensor, rows: Any, tokens: int) -> Loss:
    return distillation_loss(logits, labels, None, temperature=1.0, alpha=0.0, beta=1.0, num_tokens=tokens)


def learner(folder: Path, **more: Any) -> Learner:
    usual: dict[str, Any] = {"budget": 2000, "learning_rate": 1e-2, "device": "cpu"}
    return Learner(model(folder), pad_id=0, settings=LearnSettings(**{**usual, **more}), loss=supervised)


@pytest.mark.parametrize(
    "more", [{"precision": "bf16"}, {"gradient_checkpointing": True}, {"micro_batch_size": 3}], ids=str
)
def test_memory_options_learn_as_well(folder: Path, rows: list[Row], more: dict[str, Any]) -> None:
    plain, other = learner(folder, micro_batch_size=16), learner(folder, **more)
    for _ in range(3):
        wanted, found = plain.step(rows), other.step(rows)
        assert found["loss"] == pytest.approx(wanted["loss"], rel=2e-2)
    assert other.tokens == 3 * sum(row.learnt for row in rows)
    assert next(other.model.parameters()).dtype == torch.float32


def test_fp16_without_a_scaler_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="needs a GPU"):
        learner(folder, precision="fp16")


def test_the_rate_rises_and_falls_with_the_tokens(folder: Path) -> None:
    found = learner(folder, budget=1000, warmup_ratio=0.1)
    rates = []
    for tokens in range(0, 1001, 50):
        found.tokens = tokens
        rates.append(found.rate())
    assert rates[0] > 0
    assert rates[2] == max(rates)
    assert rates[-1] == pytest.approx(1e-3)
    assert rates[2:] == sorted(rates[2:], reverse=True)
    by_steps = learner(folder, warmup_steps=4)
    assert by_steps.rate() == pytest.approx(1e-2 / 4)


def cache(folder: Path, **more: Any) -> TeacherCache:
    return TeacherCache(folder, **{"key": {"teacher": "a"}, "temperature": 2.0, "topk": 8, **more})


def test_a_teacher_is_asked_once(
    folder: Path, rows: list[Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teacher_cache, "PART", 5)
    teacher = model(folder).eval()
    assert cache(tmp_path).fill(teacher, rows, pad_id=0) == 4
    loaded: list[int] = []

    def load() -> Any:
        loaded.append(1)
        return teacher

    assert cache(tmp_path).fill(load, rows, pad_id=0) == 0
    assert loaded == []
    # A part is lost: it alone is computed.
    (tmp_path / "part_000002.pt").unlink()
    assert cache(tmp_path).fill(load, rows, pad_id=0) == 1
    assert cache(tmp_path, key={"teacher": "b"}).fill(teacher, rows, pad_id=0) == 4


def test_what_is_kept_is_what_the_teacher_says(
    folder: Path, rows: list[Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teacher_cache, "PART", 5)
    teacher = model(folder).eval()
    kept = cache(tmp_path)
    kept.fill(teacher, rows, pad_id=0, batch_size=3)
    found = kept.of([7, 2])
    live = [teacher_tokens(teacher, [rows[place]], pad_id=0, temperature=2.0, topk=8)[0] for place in (7, 2)]
    assert torch.allclose(found.log_probs, torch.cat([one.log_probs for one in live]), atol=1e-5)
    assert found.log_probs.shape == (rows[7].learnt + rows[2].learnt, 9)
    assert torch.allclose(found.log_probs.exp().sum(-1), torch.ones(len(found.log_probs)), atol=1e-5)
