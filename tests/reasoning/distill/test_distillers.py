"""Distillation of a small teacher: it learns, keeps to its budget, goes on after a kill, and says what was kept."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.reasoning.distill.stand_in import Scripted, Small, open_small, right_sum
from tests.reasoning.sums import pairs_of_sums, save_model, sums_tokenizer
from verl.classmate.errors import ConfigError
from verl.reasoning.distill import training
from verl.reasoning.distill.config import DistillationConfig
from verl.reasoning.distill.distiller import ReasoningDistiller
from verl.reasoning.distill.pipeline import ReasoningDistillationPipeline
from verl.reasoning.distill.progressive import ProgressiveDistiller, level_names
from verl.reasoning.sft.fine_tune import fine_tune
from verl.reasoning.sft.settings import FineTuneSettings

PAIRS = dict(pairs_of_sums(6))
PROBLEMS = list(PAIRS)
TRAIN, TEST = PROBLEMS[:28], PROBLEMS[28:]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A teacher who knows the sums, a student who does not, and one with another tokenizer."""
    folder = tmp_path_factory.mktemp("models")
    settings = FineTuneSettings(
        epochs=40, batch_size=12, micro_batch_size=12, learning_rate=1e-2, max_length=64, save_every=1000, device="cpu"
    )
    untaught = save_model(folder / "untaught", sums_tokenizer(), seed=1, hidden=64)
    return {
        "teacher": str(fine_tune(untaught, PAIRS, folder / "teacher", settings)),
        "student": str(save_model(folder / "student", sums_tokenizer())),
        "stranger": str(save_model(folder / "stranger", sums_tokenizer(264))),
    }


def config(models: dict[str, str], folder: Path, **more: Any) -> DistillationConfig:
    usual: dict[str, Any] = {
        "teacher_model_name": models["teacher"],
        "student_model_name": models["student"],
        "learning_rate": 1e-2,
        "batch_size": 7,
        "gradient_accumulation_steps": 1,
        "num_epochs": 3,
        "n_teacher": 1,
        "max_length": 64,
        "eval_samples": 2,
        "difficulty_samples": 2,
        "device": "cpu",
        "output_dir": str(folder),
    }
    return DistillationConfig(**{**usual, **more})


def knows(problem: str, index: int) -> str:
    return PAIRS[problem]


def parts(**more: Any) -> dict[str, Any]:
    return {"teacher": Scripted(knows), "open_model": open_small, **more}


def weights(folder: str) -> dict[str, torch.Tensor]:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder).state_dict()


def same_weights(one: str, other: str) -> bool:
    first, second = weights(one), weights(other)
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        {"mode": "seq"},
        {"mode": "logit", "topk_logits": 16},
        {"mode": "logit", "topk_logits": 0, "jsd_beta": 0.5},
    ],
    ids=lambda one: "-".join(map(str, one.values())),
)
def test_the_student_comes_closer_to_its_teacher(models: dict[str, str], tmp_path: Path, more: dict[str, Any]) -> None:
    from verl.reasoning.distill.likelihood import compare

    pairs = [(problem, PAIRS[problem]) for problem in TEST]
    before = compare(models["teacher"], models["student"], pairs, device="cpu")
    distiller = ReasoningDistiller(config(models, tmp_path, num_epochs=6, **more), right_sum, **parts())
    told = distiller.distill_with_reasoning_preservation(TRAIN, TEST)
    assert told["metrics"] == distiller.distillation_metrics
    after = distiller.distillation_metrics
    assert after["kl_divergence"] < 0.7 * before["kl_divergence"]  # type: ignore[operator]
    assert after["student_perplexity"] < 0.6 * before["student_perplexity"]  # type: ignore[operator]
    assert after["teacher_perplexity"] == pytest.approx(before["teacher_perplexity"])
    assert told["teacher"]["kept"] == len(TRAIN)
    again = ReasoningDistiller(config(models, tmp_path, num_epochs=6, **more), right_sum, **parts())
    assert again.distill_with_reasoning_preservation(TRAIN, TEST)["model"] == told["model"], "nothing is trained twice"


@pytest.mark.slow
def test_a_share_of_steps_learns_from_own_texts(models: dict[str, str], tmp_path: Path) -> None:
    how = config(models, tmp_path, mode="logit", topk_logits=16, gkd_lambda=0.5, num_epochs=6)
    told = ReasoningDistiller(how, right_sum, **parts()).distill_with_reasoning_preservation(TRAIN, TEST)
    own = [one for one in told["history"] if "cross_entropy" not in one]
    assert 0.2 < len(own) / len(told["history"]) < 0.8
    assert own[-1]["divergence"] < own[0]["divergence"]


@pytest.mark.slow
def test_an_evaluation_compares_three_models(models: dict[str, str], tmp_path: Path) -> None:
    counted = parts(behaviours=lambda texts: {"equation": sum(text.count("=") for text in texts)})
    distiller = ReasoningDistiller(config(models, tmp_path), right_sum, **counted)
    with pytest.raises(ValueError, match="nothing was distilled yet"):
        distiller.evaluate_distillation(TEST)
    distiller.distill_with_reasoning_preservation(TRAIN, TEST)
    report = distiller.evaluate_distillation(TEST)
    assert report["models"]["teacher"]["accuracy"] == 1.0
    assert report["models"]["teacher"]["pass_at_k"] == {1: 1.0, 2: 1.0}
    assert report["retention"]["problems"] == report["problems"] == len(TEST)
    assert set(report["forgetting"]) == {"lost", "gained"}
    assert report["kl"]["teacher_texts"] > 0
    assert json.loads((tmp_path / "evaluation.json").read_text())["problems"] == len(TEST)


def test_another_tokenizer_learns_texts_and_says_so(models: dict[str, str], tmp_path: Path) -> None:
    how = {"student_model_name": models["stranger"], "num_epochs": 1}
    with pytest.raises(ConfigError, match="vocabularies differ"):
        ReasoningDistiller(
            config(models, tmp_path / "logit", mode="logit", **how), right_sum, **parts()
        ).distill_with_reasoning_preservation(TRAIN, TEST)
    distiller = ReasoningDistiller(config(models, tmp_path / "gold", mode="gold", **how), right_sum, **parts())
    told = distiller.distill_with_reasoning_preservation(TRAIN, TEST)
    assert "as with 'seq'" in told["notes"][0]
    assert told["metrics"]["kl_divergence"] is None
    assert told["metrics"]["student_perplexity"] > 1


def curriculum(models: dict[str, str], folder: Path, **more: Any) -> ProgressiveDistiller:
    return ProgressiveDistiller(config(models, folder, looks_per_stage=2, **more), right_sum, **parts())


@pytest.mark.slow
@pytest.mark.guards("distillation: 3 stages hard-coded")
@pytest.mark.parametrize("stages", [1, 2, 4])
def test_a_curriculum_has_as_many_stages_as_asked(models: dict[str, str], tmp_path: Path, stages: int) -> None:
    told = curriculum(models, tmp_path, difficulty_stages=stages, num_epochs=1).progressive_distillation(TRAIN, TEST)
    assert [one["stage"] for one in told["stages"]] == list(range(stages))
    assert sum(one["problems"] for one in told["stages"]) == len(TRAIN)
    assert all(f"{name}_avg" in told["stages"][-1] for name in level_names(stages))


@pytest.mark.slow
@pytest.mark.guards("distillation: learning rate halved at each stage")
def test_a_curriculum_and_its_control_learn_as_much(models: dict[str, str], tmp_path: Path) -> None:
    told = curriculum(models, tmp_path).progressive_distillation(TRAIN, TEST, control=True)
    assert {"easy_avg", "medium_avg", "hard_avg"} <= told["stages"][0].keys()
    final, control = told["final"], told["control"]
    assert final["budget"] == control["budget"]
    step = 7 * 12
    assert abs(final["tokens"] - control["tokens"]) < step
    assert final["tokens"] >= final["budget"]
    low, high = control["difference_ci"]
    assert low <= control["difference"] <= high
    rates = [
        [(one["tokens"], one["lr"]) for one in json.loads((tmp_path / name / "learnt.json").read_text())["history"]]
        for name in ("student", "control")
    ]
    for found in rates:
        falling = [rate for tokens, rate in found if tokens > 0.1 * final["budget"]]
        assert falling == sorted(falling, reverse=True), "one schedule over all stages"
        assert falling[-1] < 0.2 * 1e-2


def test_problems_that_the_teacher_never_solves_are_left_out(models: dict[str, str], tmp_path: Path) -> None:
    teacher = Scripted(lambda problem, index: PAIRS[problem] if "5" not in problem else "no idea")
    distiller = ProgressiveDistiller(
        config(models, tmp_path, num_epochs=1, difficulty_stages=2), right_sum, teacher=teacher, open_model=open_small
    )
    told = distiller.progressive_distillation(TRAIN, TEST)
    assert sum(one["problems"] for one in told["stages"]) == sum("5" not in problem for problem in TRAIN)


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "dies_at"), [("seq", 3), ("logit", 9)])
def test_a_killed_course_ends_with_the_same_weights(
    models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, dies_at: int
) -> None:
    how = {"mode": mode, "save_every": 2, "difficulty_stages": 2}
    straight = curriculum(models, tmp_path / "straight", **how).progressive_distillation(TRAIN, TEST)
    step = training.Learner.step

    def dies(self: Any, rows: Any) -> Any:
        if self.steps == dies_at:
            raise KeyboardInterrupt
        return step(self, rows)

    monkeypatch.setattr(training.Learner, "step", dies)
    with pytest.raises(KeyboardInterrupt):
        curriculum(models, tmp_path / "killed", **how).progressive_distillation(TRAIN, TEST)
    monkeypatch.setattr(training.Learner, "step", step)
    steps: list[int] = []

    def counts(self: Any, rows: Any) -> Any:
        steps.append(self.steps)
        return step(self, rows)

    monkeypatch.setattr(training.Learner, "step", counts)
    resumed = curriculum(models, tmp_path / "killed", **how).progressive_distillation(TRAIN, TEST)
    assert steps[0] in (dies_at, dies_at - 1), "it goes on at the last checkpoint"
    assert same_weights(resumed["final"]["model"], straight["final"]["model"])
    for one, other in zip(resumed["stages"], straight["stages"], strict=True):
        assert one == other


def test_a_folder_of_other_settings_is_refused(models: dict[str, str], tmp_path: Path) -> None:
    how = {"num_epochs": 1, "difficulty_stages": 1}
    curriculum(models, tmp_path, **how).progressive_distillation(TRAIN, TEST)
    with pytest.raises(ConfigError, match="other config"):
        curriculum(models, tmp_path, **how, alpha=0.5).progressive_distillation(TRAIN, TEST)


def test_a_heuristic_breaks_ties_of_the_pass_rate(models: dict[str, str], tmp_path: Path) -> None:
    """The student solves nothing, so that all problems are equally hard for it."""
    from verl.reasoning.records import as_problems

    asked = as_problems(TRAIN)
    distiller = ProgressiveDistiller(
        config(models, tmp_path), right_sum, **parts(heuristic=lambda one: float(one.problem.split()[2]))
    )
    hard = distiller.difficulty(Scripted(lambda problem, index: "no"), None, asked, "difficulty")
    ordered = sorted(asked, key=lambda one: hard[one.id])
    firsts = [int(one.problem.split()[2]) for one in ordered]
    assert firsts == sorted(firsts)
    rates = distiller.difficulty(Scripted(lambda problem, index: PAIRS[problem] if index else "no"), None, asked, "d")
    assert all(0.29 < one < 0.71 for one in rates.values()), "half of the samples are right; a tie moves it by less"


@pytest.mark.slow
def test_the_pipeline_leaves_model_and_comparison(models: dict[str, str], tmp_path: Path) -> None:
    settings = {key: value for key, value in vars(config(models, tmp_path)).items() if not key.endswith("_name")}
    settings.pop("output_dir")
    pipeline = ReasoningDistillationPipeline(
        models["teacher"], models["student"], right_sum, settings={**settings, "num_epochs": 1}, **parts()
    )
    results = pipeline.run_full_pipeline(TRAIN, TEST, str(tmp_path))
    assert Small(results["model"]).generate(["What is 1 + 2?"])[0][0].ok
    assert set(results["metrics"]) == {
        "teacher_perplexity",
        "student_perplexity",
        "kl_divergence",
        "reasoning_score_correlation",
    }
    assert json.loads((tmp_path / "pipeline.json").read_text())["model"] == results["model"]
