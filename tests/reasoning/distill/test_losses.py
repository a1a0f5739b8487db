"""Losses of distillation: their identities, compared with torch's own and with plain sums."""

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from tests.reasoning.sums import save_model, sums_tokenizer
from verl.classmate.errors import ConfigError
from verl.reasoning.distill.losses import TeacherTokens, check_vocabularies, distillation_loss, divergence
from verl.reasoning.sft.chat import IGNORE, chat_tokenizer

SHAPES = st.tuples(st.integers(1, 3), st.integers(2, 6), st.integers(2, 9), st.integers(0, 10_000))


def batch(shape: tuple[int, int, int, int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits of student and teacher (B, T, V), and labels (B, T) with some to ignore and one at least to learn."""
    rows, length, words, seed = shape
    torch.manual_seed(seed)
    student, teacher = 3 * torch.randn(rows, length, words), 3 * torch.randn(rows, length, words)
    labels = torch.randint(0, words, (rows, length))
    labels[torch.rand(rows, length) < 0.4] = IGNORE
    labels[0, 1] = 0
    return student, teacher, labels


def of(teacher: torch.Tensor, labels: torch.Tensor, temperature: float, topk: int = 0) -> TeacherTokens:
    learnt = labels[:, 1:] != IGNORE
    return TeacherTokens.of_logits(teacher[:, :-1][learnt], temperature=temperature, topk=topk)


@given(SHAPES)
@settings(max_examples=40, deadline=None)
def test_alpha_0_is_supervised_training_bit_for_bit(shape: tuple[int, int, int, int]) -> None:
    from transformers.loss.loss_utils import ForCausalLMLoss

    student, _, labels = batch(shape)
    ours, theirs = student.clone().requires_grad_(), student.clone().requires_grad_()
    count = int((labels[:, 1:] != IGNORE).sum())
    loss = distillation_loss(ours, labels, None, temperature=3.0, alpha=0.0, beta=1.0).loss
    supervised = ForCausalLMLoss(theirs, labels, vocab_size=shape[2], num_items_in_batch=torch.tensor(count))
    loss.backward()
    supervised.backward()
    assert torch.equal(loss, supervised)
    assert torch.equal(ours.grad, theirs.grad)  # type: ignore[arg-type]


def test_alpha_0_is_a_models_own_loss_bit_for_bit(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    folder = save_model(tmp_path, sums_tokenizer())
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.randint(10, 200, (3, 12))
    labels = ids.clone()
    labels[:, :5] = IGNORE
    model(input_ids=ids, labels=labels).loss.backward()
    theirs = [one.grad.clone() for one in model.parameters() if one.grad is not None]
    model.zero_grad()
    distillation_loss(model(input_ids=ids).logits, labels, None, temperature=1.0, alpha=0.0, beta=1.0).loss.backward()
    ours = [one.grad for one in model.parameters() if one.grad is not None]
    assert theirs
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


@given(SHAPES)
@settings(max_examples=40, deadline=None)
def test_t_1_alpha_1_beta_0_is_the_divergence(shape: tuple[int, int, int, int]) -> None:
    student, teacher, labels = batch(shape)
    loss = distillation_loss(student, labels, of(teacher, labels, 1.0), temperature=1.0, alpha=1.0, beta=0.0)
    learnt = labels[:, 1:] != IGNORE
    p, q = (torch.log_softmax(one[:, :-1][learnt], -1) for one in (teacher, student))
    kl = functional.kl_div(q, p, log_target=True, reduction="sum") / learnt.sum()
    assert loss.loss.item() == pytest.approx(kl.item(), rel=1e-5, abs=1e-6)


@given(SHAPES, st.floats(0.5, 4.0))
@settings(max_examples=40, deadline=None)
def test_the_loss_is_the_formula(shape: tuple[int, int, int, int], temperature: float) -> None:
    student, teacher, labels = batch(shape)
    loss = distillation_loss(
        student, labels, of(teacher, labels, temperature), temperature=temperature, alpha=0.7, beta=0.3
    )
    total, count = 0.0, 0
    for row in range(labels.shape[0]):
        for place in range(1, labels.shape[1]):
            if labels[row, place] != IGNORE:
                p = torch.softmax(teacher[row, place - 1].double() / temperature, -1)
                q = torch.softmax(student[row, place - 1].double() / temperature, -1)
                hard = -torch.log_softmax(student[row, place - 1].double(), -1)[labels[row, place]]
                total += 0.7 * temperature**2 * float((p * (p / q).log()).sum()) + 0.3 * float(hard)
                count += 1
    assert loss.loss.item() == pytest.approx(total / count, rel=1e-4, abs=1e-5)


@pytest.mark.guards("distillation: padding in the loss")
@given(SHAPES, st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_padding_changes_nothing(shape: tuple[int, int, int, int], more: int) -> None:
    student, teacher, labels = batch(shape)
    padded = functional.pad(labels, (0, more), value=IGNORE)
    wide = functional.pad(student, (0, 0, 0, more), value=7.0)
    kept = of(teacher, labels, 2.0)
    one, other = (
        distillation_loss(logits, some, kept, temperature=2.0, alpha=0.7, beta=0.3).loss.item()
        for logits, some in ((student, labels), (wide, padded))
    )
    assert one == pytest.approx(other, rel=1e-6)


def test_micro_batches_add_up_to_the_step() -> None:
    student, teacher, labels = batch((4, 6, 8, 1))
    how: dict[str, Any] = {"temperature": 2.0, "alpha": 0.7, "beta": 0.3}
    whole = distillation_loss(student, labels, of(teacher, labels, 2.0), **how).loss
    count = int((labels[:, 1:] != IGNORE).sum())
    parts = sum(
        distillation_loss(
            student[part], labels[part], of(teacher[part], labels[part], 2.0), **how, num_tokens=count
        ).loss
        for part in (slice(0, 1), slice(1, 4))
    )
    assert float(parts) == pytest.approx(whole.item(), rel=1e-6)


@given(SHAPES, st.sampled_from([None, 0.0, 0.3, 0.5, 1.0]))
@settings(max_examples=40, deadline=None)
def test_as_many_tokens_as_there_are_is_all(shape: tuple[int, int, int, int], jsd_beta: float | None) -> None:
    student, teacher, labels = batch(shape)
    learnt = labels[:, 1:] != IGNORE
    some = student[:, :-1][learnt]
    full = divergence(of(teacher, labels, 2.0), some, temperature=2.0, jsd_beta=jsd_beta)
    kept = divergence(of(teacher, labels, 2.0, topk=shape[2]), some, temperature=2.0, jsd_beta=jsd_beta)
    assert torch.equal(full, kept)


@given(st.integers(0, 10_000), st.sampled_from([None, 0.5]))
@settings(max_examples=20, deadline=None)
def test_more_tokens_come_closer_from_below(seed: int, jsd_beta: float | None) -> None:
    """Putting outcomes together never raises a divergence; with the likeliest 64 of 500 little is lost."""
    torch.manual_seed(seed)
    teacher, student = 3 * torch.randn(20, 500), 3 * torch.randn(20, 500)
    found = []
    for topk in (1, 8, 64, 499, 0):
        kept = TeacherTokens.of_logits(teacher, temperature=1.0, topk=topk)
        found.append(divergence(kept, student, temperature=1.0, jsd_beta=jsd_beta).mean().item())
    assert all(one <= other + 1e-5 for one, other in itertools.pairwise(found))
    assert found[2] > 0.8 * found[-1]
    assert found[3] == pytest.approx(found[-1], rel=1e-4)


def test_the_rest_has_a_gradient_that_pulls_it_to_the_teachers() -> None:
    teacher = torch.tensor([[2.0, 0.0, 0.0, 0.0]])
    student = torch.zeros(1, 4, requires_grad=True)
    kept = TeacherTokens.of_logits(teacher, temperature=1.0, topk=1)
    divergence(kept, student, temperature=1.0).sum().backward()
    assert student.grad is not None
    assert student.grad[0, 0] < 0
    assert (student.grad[0, 1:] > 0).all()


@given(SHAPES, st.floats(0.05, 0.95))
@settings(max_examples=40, deadline=None)
def test_jensen_shannon_by_its_definition(shape: tuple[int, int, int, int], beta: float) -> None:
    student, teacher, labels = batch(shape)
    learnt = labels[:, 1:] != IGNORE
    q = torch.softmax(student[:, :-1][learnt].double(), -1)
    p = torch.softmax(teacher[:, :-1][learnt].double(), -1)
    m = beta * p + (1 - beta) * q
    wanted = (beta * p * (p / m).log() + (1 - beta) * q * (q / m).log()).sum(-1)
    found = divergence(of(teacher, labels, 1.0), student[:, :-1][learnt], temperature=1.0, jsd_beta=beta)
    assert torch.allclose(found.double(), wanted, atol=1e-5)
    assert (found >= -1e-6).all()


def test_the_ends_of_jensen_shannon_are_both_divergences() -> None:
    student, teacher, labels = batch((2, 5, 6, 3))
    learnt = labels[:, 1:] != IGNORE
    some = student[:, :-1][learnt]
    reverse = divergence(of(teacher, labels, 1.0), some, temperature=1.0, jsd_beta=1.0)
    turned = divergence(TeacherTokens.of_logits(some, temperature=1.0), teacher[:, :-1][learnt], temperature=1.0)
    assert torch.allclose(reverse, turned, atol=1e-5)


def test_a_teacher_that_rules_a_token_out_is_no_nan() -> None:
    teacher = torch.tensor([[0.0, -math.inf, 1.0]])
    student = torch.randn(1, 3, requires_grad=True)
    loss = divergence(TeacherTokens.of_logits(teacher, temperature=1.0), student, temperature=1.0).sum()
    loss.backward()
    assert math.isfinite(loss.item())
    assert student.grad is not None
    assert torch.isfinite(student.grad).all()


def test_a_padded_vocabulary_is_cut_to_the_common_part() -> None:
    teacher, student = torch.randn(2, 10), torch.randn(2, 8)
    for topk in (0, 4):
        kept = TeacherTokens.of_logits(teacher, temperature=1.0, topk=topk, width=8)
        same = TeacherTokens.of_logits(teacher[:, :8], temperature=1.0, topk=topk)
        found = [divergence(one, student, temperature=1.0) for one in (kept, same)]
        assert torch.equal(*found)


@pytest.mark.guards("distillation: vocabulary unchecked")
def test_other_vocabularies_are_refused_in_words(tmp_path: Path) -> None:
    folder = tmp_path
    one, other = sums_tokenizer(), sums_tokenizer(264)
    one.save_pretrained(folder / "one")
    other.save_pretrained(folder / "other")
    first, second = chat_tokenizer(folder / "one"), chat_tokenizer(folder / "other")
    check_vocabularies(first, first)
    with pytest.raises(ConfigError, match=r"vocabularies differ .* write mode='gold' or 'seq'"):
        check_vocabularies(first, second)


def test_a_batch_without_learnt_tokens_changes_no_weight() -> None:
    logits = torch.randn(2, 3, 5, requires_grad=True)
    labels = torch.full((2, 3), IGNORE)
    teacher = TeacherTokens(log_probs=torch.zeros(0, 5))
    loss = distillation_loss(logits, labels, teacher, temperature=2.0, alpha=0.5, beta=0.5).loss
    loss.backward()
    assert loss.item() == 0
    assert logits.grad is not None
    assert logits.grad.abs().sum() == 0
