"""Training of a process reward model: the loss, what a batch is, resumption, and a toy that must be learnt."""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from scripts.bench import prm_parity
from tests.reasoning.prm.test_model import VARIANTS
from tests.reasoning.prm.toy import toy_base, toy_rows
from verl.classmate.errors import ConfigError
from verl.reasoning.prm import trainer as trainer_module
from verl.reasoning.prm.config import PRMConfig
from verl.reasoning.prm.rows import LabelledSolution
from verl.reasoning.prm.step_trainer import class_weights, step_loss, training_items
from verl.reasoning.prm.trainer import PRMTrainer
from verl.workers.prm.batches import IGNORE

TRL_LOSSES = [
    1.0039167404174805,
    0.740563154220581,
    0.42222729325294495,
    0.24807466566562653,
    0.12793633341789246,
    0.04082483798265457,
    0.020455243065953255,
    0.016387566924095154,
    0.013799641281366348,
    0.011835000477731228,
    0.010279348120093346,
    0.00902405846863985,
]
"""Of TRL 1.12.0 with torch 2.13.0 on a CPU: `python scripts/bench/prm_parity.py`."""


def trained(folder: Path, rows: Sequence[Any], **options: Any) -> tuple[PRMTrainer, dict[str, Any]]:
    base, tokenizer = toy_base(32, 1)
    config = PRMConfig(
        **{
            "output_dir": folder,
            "template": "plain",
            "batch_size": 8,
            "micro_batch_size": 8,
            "learning_rate": 3e-3,
            "progress": False,
            **options,
        }
    )
    trainer = PRMTrainer(config, base, tokenizer)
    return trainer, trainer.train(rows, toy_rows(24, 9))


class TestLoss:
    @pytest.mark.guards("MSE on a sigmoid")
    def test_by_hand(self) -> None:
        logits = torch.tensor([[[0.0, 1.0], [0.0, 1.0], [2.0, 0.0]]])
        targets = torch.tensor([[1.0, IGNORE, 0.25]])
        total, weight = step_loss(logits, targets, (3.0, 1.0))
        right = math.log(1 + math.exp(-1))
        no, yes = math.log(1 + math.exp(-2)), math.log(1 + math.exp(2))
        mixed = 0.75 * no + 0.25 * yes
        assert float(total) == pytest.approx(1.0 * right + (0.75 * 3 + 0.25) * mixed, rel=1e-5)
        assert float(weight) == pytest.approx(1.0 + 2.5)

    def test_the_rarer_label_weighs_more_up_to_a_bound(self) -> None:
        config = PRMConfig()
        assert class_weights([1, 1, 1, 0], config) == (3.0, 1.0)
        assert class_weights([1] * 99 + [0], config) == (4.0, 1.0)
        assert class_weights([0, 0, 1], config) == (1.0, 2.0)
        assert class_weights([1, 1], config) == (1.0, 1.0)
        assert class_weights([1, 1, 0], PRMConfig(class_weight="none")) == (1.0, 1.0)

    def test_as_in_trl(self, tmp_path: Path) -> None:
        _, losses = prm_parity.train_here(tmp_path / "start")
        assert losses == pytest.approx(TRL_LOSSES, abs=1e-4)


class TestItems:
    def test_what_follows_an_error_is_not_read(self) -> None:
        trainer = PRMTrainer(PRMConfig(template="plain"), *toy_base(32, 1))
        row = LabelledSolution(prompt="p", completions=("1+1=2", "1+1=3", "2"), labels=(True, False, None))
        ((encoded, targets),) = training_items(trainer.model, trainer.tokenizer, [row])
        assert targets == [1.0, 0.0]
        assert len(encoded.places) == 2
        ((_, whole),) = training_items(trainer.model, trainer.tokenizer, [row], truncate_after_error=False)
        assert whole == [1.0, 0.0, IGNORE]

    def test_soft_labels_and_unlabelled_rows(self) -> None:
        trainer = PRMTrainer(PRMConfig(template="plain"), *toy_base(32, 1))
        soft = LabelledSolution(prompt="p", completions=("a", "b"), labels=(True, True), values=(0.75, None))
        nothing = LabelledSolution(prompt="p", completions=("a",), labels=(None,))
        ((_, targets),) = training_items(trainer.model, trainer.tokenizer, [soft, nothing])
        assert targets == [0.75, IGNORE]

    def test_an_implicit_model_learns_outcomes(self) -> None:
        base, tokenizer = toy_base(32, 1)
        trainer = PRMTrainer(PRMConfig(template="plain", implicit=True), base, tokenizer)
        rows = [
            LabelledSolution(prompt="p", completions=("a", "b"), labels=(True, True)),
            LabelledSolution(prompt="p", completions=("a", "b"), labels=(False, None)),
            LabelledSolution(prompt="p", completions=("a", "b"), labels=(True, None)),
        ]
        items = training_items(trainer.model, tokenizer, rows)
        assert [targets for _, targets in items] == [[IGNORE, 1.0], [IGNORE, 0.0]], "of the third nobody knows the end"


def weights_of(trainer: PRMTrainer) -> torch.Tensor:
    return torch.cat([one.detach().flatten() for one in trainer.model.parameters()])


class TestBatches:
    def test_micro_batches_change_nothing(self, tmp_path: Path) -> None:
        rows = toy_rows(16)
        whole, first = trained(tmp_path / "a", rows, evals_per_epoch=1)
        parts, second = trained(tmp_path / "b", rows, evals_per_epoch=1, micro_batch_size=2)
        losses = [[line["loss"] for line in one["history"] if "loss" in line] for one in (first, second)]
        assert losses[0] == pytest.approx(losses[1], abs=1e-4)
        assert torch.allclose(weights_of(whole), weights_of(parts), atol=1e-4)

    @pytest.mark.guards("warm-up unused")
    def test_the_warm_up_is_used(self, tmp_path: Path) -> None:
        _, told = trained(tmp_path, toy_rows(80), warmup_steps=5, evals_per_epoch=10, early_stopping_patience=None)
        rates = [line["learning_rate"] for line in told["history"] if "learning_rate" in line]
        assert len(rates) == 10
        assert rates[:6] == pytest.approx([3e-3 * step / 5 for step in range(6)])
        assert rates[6:] == sorted(rates[6:], reverse=True)

    def test_only_the_head_learns_first(self, tmp_path: Path) -> None:
        base, _ = toy_base(32, 1)
        frozen, told = trained(tmp_path / "a", toy_rows(16), freeze_backbone_epochs=1, learning_rate=1e-12)
        assert {line["phase"] for line in told["history"]} == {"head", "full"}
        before = torch.cat([one.flatten() for one in base.model.layers.parameters()])
        after = torch.cat([one.detach().cpu().flatten() for one in frozen.model.backbone.layers.parameters()])
        assert torch.allclose(before, after, atol=1e-6)
        assert all(one.requires_grad for one in frozen.model.parameters())


@pytest.mark.parametrize("variant", ["mlp", "encoder", "generative", "implicit"])
def test_every_variant_learns(variant: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {**VARIANTS[variant], "template": "plain", "evals_per_epoch": 1, "num_epochs": 8}
    options |= {"early_stopping_patience": None, "learning_rate": 1e-2}
    _, told = trained(tmp_path, toy_rows(32), **options)
    losses = [line["loss"] for line in told["history"] if "loss" in line]
    assert losses[-1] < losses[0]
    assert math.isfinite(told["metrics"]["brier"])
    assert (Path(told["model_path"]) / "prm.json").exists()


@pytest.mark.parametrize("options", [{"precision": "bf16"}, {"gradient_checkpointing": True}, {"label_kind": "soft"}])
def test_options_that_save_memory_work(options: dict[str, Any], tmp_path: Path) -> None:
    _, told = trained(tmp_path, toy_rows(16), **options)
    assert told["steps"] == 2
    assert all(math.isfinite(line["loss"]) for line in told["history"] if "loss" in line)


class TestRuns:
    def test_a_killed_run_ends_as_one_that_was_not(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        options: dict[str, Any] = {"num_epochs": 2, "evals_per_epoch": 2, "dropout_rate": 0.1}
        rows = toy_rows(32)
        whole, told = trained(tmp_path / "whole", rows, **options)
        measure, calls = PRMTrainer._measure, list[int]()

        def killed(self: PRMTrainer, val: Any) -> Any:
            calls.append(1)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return measure(self, val)

        monkeypatch.setattr(PRMTrainer, "_measure", killed)
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path / "killed", rows, **options)
        resumed, again = trained(tmp_path / "killed", rows, **options)
        assert torch.allclose(weights_of(whole), weights_of(resumed), atol=1e-6)
        assert again["metrics"] == pytest.approx(told["metrics"], abs=1e-5)
        assert len(calls) < 6, "it did not begin again"

    def test_a_finished_run_is_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        first, told = trained(tmp_path, toy_rows(16))
        monkeypatch.setattr(trainer_module, "StepTrainer", None)
        second, again = trained(tmp_path, toy_rows(16))
        assert again == told
        assert second.evaluate(toy_rows(10, 5)) == first.evaluate(toy_rows(10, 5))
        with pytest.raises(ConfigError, match="name another output_dir"):
            trained(tmp_path, toy_rows(16), num_epochs=3)
        with pytest.raises(ConfigError, match="name another output_dir"):
            trained(tmp_path, toy_rows(17))

    def test_it_ends_where_nothing_gets_better(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        numbers = iter([0.5, 0.6, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4])
        monkeypatch.setattr(PRMTrainer, "_measure", lambda self, val: {"early_stop": next(numbers)})
        _, told = trained(tmp_path, toy_rows(64), evals_per_epoch=8, early_stopping_patience=2)
        assert told["steps"] == 4

    def test_validation_shares_no_problem(self, tmp_path: Path) -> None:
        trainer = PRMTrainer(PRMConfig(output_dir=tmp_path, template="plain"), *toy_base(32, 1))
        with pytest.raises(ConfigError, match="1 problems are in train_data and in val_data"):
            trainer.train(toy_rows(4), toy_rows(1))
        with pytest.raises(ConfigError, match="no training row"):
            trainer.train([LabelledSolution(prompt="p", completions=("a",), labels=(None,))], toy_rows(2))
        with pytest.raises(ConfigError, match="write PRMTrainer"):
            PRMTrainer(PRMConfig(), toy_base()[0])

    def test_numbers_of_an_evaluation(self, tmp_path: Path) -> None:
        trainer, told = trained(tmp_path, toy_rows(16))
        assert set(told["metrics"]) >= {
            "avg_correct_score",
            "avg_incorrect_score",
            "score_gap",
            "discrimination_accuracy",
            "auroc",
            "ap",
            "ece",
            "brier",
            "f1_neg",
            "first_error_acc",
            "processbench_f1",
            "min_at_last_share",
        }
        rows = [row.as_row() for row in toy_rows(10, 5)]
        assert trainer.evaluate(rows)["n_solutions"] == 10
        unknown = LabelledSolution(prompt="p", completions=("1+1=2", "2"), labels=(True, None))
        assert trainer.evaluate([unknown])["n_solutions"] == 0, "whether it has an error is not known"


@pytest.mark.slow
def test_the_toy_is_learnt_within_a_minute(tmp_path: Path) -> None:
    base, tokenizer = toy_base(64, 2)
    began = time.process_time()
    config = PRMConfig(
        output_dir=tmp_path,
        template="plain",
        learning_rate=1e-2,
        batch_size=64,
        micro_batch_size=64,
        num_epochs=3,
        evals_per_epoch=1,
        early_stopping_patience=None,
        progress=False,
    )
    trainer = PRMTrainer(config, base, tokenizer)
    trainer.train(toy_rows(4000), toy_rows(300, 1))
    assert time.process_time() - began < 60
    told = trainer.evaluate(toy_rows(300, 2))
    assert told["processbench_f1"] > 0.9
    assert told["weakest_step_acc"] > 0.9
