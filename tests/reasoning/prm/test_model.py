"""The model that judges steps: what it reads, that neither padding nor later steps count, and its folder."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForTokenClassification

from tests.reasoning.prm.toy import toy_base
from verl.classmate.errors import ConfigError
from verl.reasoning.prm.config import PRMConfig
from verl.reasoning.prm.evaluator import ProcessRewardEvaluator
from verl.workers.prm.batches import collate
from verl.workers.prm.encoding import NEW_TAG, Encoder, add_tag, choose_tag
from verl.workers.prm.head_scorer import HeadScorer
from verl.workers.prm.model import ProcessRewardModel

STEPS = ["1+2=3\n", "2+2=4\n", "3+3=6\n"]
VARIANTS: dict[str, dict[str, Any]] = {
    "linear": {},
    "mlp": {"head": "mlp", "hidden_size": 24},
    "plain": {"template": "plain"},
    "encoder": {"architecture": "encoder", "context_window": 1},
    "generative": {"architecture": "generative"},
    "implicit": {"implicit": True, "implicit_beta": 2.0},
}


def made(variant: str, **options: Any) -> tuple[ProcessRewardModel, Any]:
    base, tokenizer = toy_base(32, 1)
    config = PRMConfig(**{**VARIANTS[variant], **options})
    model, tokenizer = ProcessRewardModel.from_base(config, tokenizer, base)
    if config.implicit:
        torch.manual_seed(1)
        with torch.no_grad():
            for parameter in model.backbone.parameters():
                parameter += 0.05 * torch.randn_like(parameter)
    return model.eval(), tokenizer


class TestEncoder:
    def test_a_tag_stands_behind_each_step(self) -> None:
        tokenizer = toy_base()[1]
        encoder = Encoder(tokenizer)
        encoded = encoder.encode("Add.", STEPS)
        assert [encoded.input_ids[at] for at in encoded.places] == [encoder.tag_id] * 3
        spelled = [
            tokenizer.decode(encoded.input_ids[a:b]) for a, b in zip(encoded.starts, encoded.places, strict=True)
        ]
        assert spelled == ["1+2=3", "2+2=4", "3+3=6"]
        assert tokenizer.decode(encoded.input_ids[: encoded.starts[0]]) == (
            "<|im_start|>user\nAdd.<|im_end|>\n<|im_start|>assistant\n"
        )

    def test_unused_tokens_come_before_new_ones(self) -> None:
        tokenizer = toy_base()[1]
        assert choose_tag(tokenizer, None) == NEW_TAG
        tokenizer.add_tokens(["<extra_0>"], special_tokens=True)
        size = len(tokenizer)
        assert choose_tag(tokenizer, None) == "<extra_0>"
        add_tag(tokenizer, "<extra_0>")
        assert len(tokenizer) == size
        assert choose_tag(tokenizer, "<mine>") == "<mine>"

    def test_a_step_that_spells_the_tag_is_one_step(self) -> None:
        encoder = Encoder(toy_base()[1])
        encoded = encoder.encode("Add.", [f"1+2=3 {encoder.tag} 4", "5"])
        assert len(encoded.places) == 2

    def test_whole_steps_are_left_out_and_the_problem_never(self) -> None:
        whole = Encoder(toy_base()[1]).encode("Add.", STEPS)
        short = Encoder(toy_base()[1], max_length=whole.places[1] + 1).encode("Add.", STEPS)
        assert short.truncated
        assert short.input_ids == whole.input_ids[: whole.places[1] + 1]
        assert not Encoder(toy_base()[1], max_length=5).encode("Add.", STEPS).places

    def test_an_encoder_sees_a_window(self) -> None:
        encoder = Encoder(toy_base()[1], template="plain")
        told = encoder.encode_each("Add.", [*STEPS, "  "], 1)
        texts = [encoder.tokenizer.decode(one.input_ids) for one in told if one]
        assert texts[2] == f"Add.\n2+2=4{encoder.tag}3+3=6"
        assert len(texts) == 4, "a blank step can be asked about as well"

    def test_a_template_that_is_not_there_is_told(self) -> None:
        tokenizer = toy_base()[1]
        tokenizer.chat_template = None
        assert Encoder(tokenizer).template == "plain"
        with pytest.raises(ConfigError, match="write 'plain'"):
            Encoder(tokenizer, template="chat")


@pytest.mark.parametrize("variant", VARIANTS)
class TestVariants:
    @pytest.mark.guards("padding in the mean pool", "squeeze at batch 1")
    def test_neither_company_nor_padding_counts(self, variant: str) -> None:
        model, tokenizer = made(variant)
        scorer = HeadScorer(model, tokenizer, progress=False)
        rows = [STEPS, STEPS[:1], ["3+3=1\n" * 4, "2"], []]
        together = scorer.score_steps(["Add."] * 4, rows)
        for row, told in zip(rows, together, strict=True):
            (alone,) = scorer.score_steps(["Add."], [row])
            assert alone == pytest.approx(told, abs=1e-5)
        assert together[3] == []

    def test_later_steps_do_not_count(self, variant: str) -> None:
        model, tokenizer = made(variant)
        scorer = HeadScorer(model, tokenizer, progress=False)
        whole, begun = scorer.score_steps(["Add."] * 2, [STEPS, STEPS[:2]])
        assert whole[:2] == pytest.approx(begun, abs=1e-5)
        assert len({round(score or 0, 6) for score in whole}) == 3, "and each step has a score of its own"

    def test_its_folder_scores_the_same(self, variant: str, tmp_path: Path) -> None:
        model, tokenizer = made(variant)
        model.spec = model.spec.calibrated(temperature=2.0, threshold=0.3)
        before = HeadScorer(model, tokenizer).score_steps(["Add."], [STEPS])
        model.save(tmp_path, tokenizer)
        again = ProcessRewardEvaluator(tmp_path)
        assert again.score_steps(["Add."], [STEPS])[0] == pytest.approx(before[0], abs=1e-6)
        assert again.threshold == 0.3

    def test_recomputed_activations_give_the_same_gradient(self, variant: str) -> None:
        model, tokenizer = made(variant)
        encoder = model.encoder(tokenizer)
        each = encoder.encode_each("Add.", STEPS, 1)
        rows = [one for one in each if one] if variant == "encoder" else [encoder.encode("Add.", STEPS)]
        tensors = collate(rows, 0)
        gradients = []
        for recompute in (False, True):
            model.train()
            if recompute:
                model.gradient_checkpointing_enable()
            model.zero_grad()
            model(**tensors)[..., 1].sum().backward()
            wanted = [one.grad.clone() for one in model.parameters() if one.grad is not None]
            gradients.append(torch.cat([one.flatten() for one in wanted]))
        assert torch.allclose(*gradients, atol=1e-6)
        assert gradients[0].abs().sum() > 0


def test_transformers_loads_a_linear_head(tmp_path: Path) -> None:
    model, tokenizer = made("linear")
    model.save(tmp_path, tokenizer)
    theirs = AutoModelForTokenClassification.from_pretrained(tmp_path).eval()
    encoded = model.encoder(tokenizer).encode("Add.", STEPS)
    ids = torch.tensor([encoded.input_ids])
    tensors = collate([encoded], 0)
    with torch.no_grad():
        assert torch.allclose(theirs(ids).logits[0, encoded.places], model(**tensors)[0], atol=1e-5)


def test_an_implicit_model_starts_undecided() -> None:
    base, tokenizer = toy_base(32, 1)
    model, tokenizer = ProcessRewardModel.from_base(PRMConfig(implicit=True), tokenizer, base)
    assert HeadScorer(model, tokenizer).score_steps(["Add."], [STEPS]) == [[pytest.approx(0.5)] * 3]
    assert not any(one.requires_grad for one in model.reference.parameters())


def test_an_implicit_score_is_the_log_ratio_of_the_tokens() -> None:
    model, tokenizer = made("implicit")
    encoded = model.encoder(tokenizer).encode("Add.", STEPS)
    ids = torch.tensor([encoded.input_ids])
    with torch.no_grad():
        both = [one(ids).logits[0].log_softmax(-1) for one in (model.backbone, model.reference)]
        (logits,) = HeadScorer(model, tokenizer).logits(["Add."], [STEPS])
    total = 0.0
    for start, place, logit in zip(encoded.starts, encoded.places, logits, strict=True):
        for at in range(start, place):
            total += float(both[0][at - 1, ids[0, at]] - both[1][at - 1, ids[0, at]])
        assert logit == pytest.approx(2.0 * total, abs=1e-4)


def test_no_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"prm.json is missing"):
        ProcessRewardEvaluator(tmp_path)
    with pytest.raises(ValueError, match="give ProcessRewardEvaluator both"):
        ProcessRewardEvaluator(made("linear")[0])


def test_combinations_that_cannot_be_are_told() -> None:
    for options, said in [
        ({"context_window": 3}, "context_window=3: write None, or an encoder"),
        ({"implicit": True, "architecture": "encoder"}, "implicit=True"),
        ({"num_labels": 1}, "num_labels=1: write 2"),
        ({"micro_batch_size": 7}, "a divisor of batch_size"),
        ({"architecture": "generative", "freeze_backbone_epochs": 1}, "no head of its own"),
        ({"head": "deep"}, "write one of linear, mlp"),
    ]:
        with pytest.raises(ConfigError, match=said):
            PRMConfig(**options)  # type: ignore[arg-type]
    original = PRMConfig.original()
    assert (original.architecture, original.context_window, original.warmup_steps) == ("encoder", 3, 500)
