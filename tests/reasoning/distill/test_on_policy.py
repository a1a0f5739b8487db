"""On-policy distillation on verl's trainer: the student comes closer to the teacher on its own texts."""

from pathlib import Path
from typing import Any

import pytest

from tests.reasoning.sums import pairs_of_sums, save_model, sums_tokenizer
from verl.classmate.errors import ConfigError
from verl.reasoning.distill import on_policy
from verl.reasoning.distill.config import DistillationConfig
from verl.reasoning.records import as_problems

PROBLEMS = as_problems([{"problem": problem, "answer": "0"} for problem, _ in pairs_of_sums(3)])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A student without a preference, and a teacher with strong ones, whatever they are."""
    from transformers import AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("models")
    teacher = save_model(folder / "teacher", sums_tokenizer(), seed=5, hidden=64)
    model: Any = AutoModelForCausalLM.from_pretrained(teacher)
    # Which are its output weights as well; what it reads is normalised. Much more, and verl's clamp of the loss at 10
    # would leave no gradient.
    model.get_input_embeddings().weight.data *= 2.5
    model.save_pretrained(teacher)
    return {
        "teacher_model_name": str(teacher),
        "student_model_name": str(save_model(folder / "student", sums_tokenizer())),
    }


def config(models: dict[str, str], **more: Any) -> DistillationConfig:
    usual: dict[str, Any] = {"mode": "on_policy", "learning_rate": 1e-2, "max_length": 48, "device": "cpu"}
    return DistillationConfig(**{**models, **usual, **more})


@pytest.mark.long
def test_the_student_comes_closer_on_its_own_texts(models: dict[str, str], tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    how = config(models, batch_size=8, gradient_accumulation_steps=1, on_policy_steps=6, save_every=3)
    told = on_policy.distil(how, PROBLEMS, tmp_path / "student")
    losses = [one["distillation_loss"] for one in told["history"]]
    assert len(losses) == told["steps"] == 6
    assert losses[-1] < 0.8 * losses[0]
    AutoModelForCausalLM.from_pretrained(told["model"])
    assert AutoTokenizer.from_pretrained(told["model"]).chat_template
    assert on_policy.distil(how, PROBLEMS, tmp_path / "student") == told, "a finished run is not started again"


@pytest.mark.guards("distillation: vocabulary unchecked")
def test_another_tokenizer_is_refused_before_a_start(models: dict[str, str], tmp_path: Path) -> None:
    stranger = str(save_model(tmp_path / "stranger", sums_tokenizer(264)))
    with pytest.raises(ConfigError, match="vocabularies differ"):
        on_policy.check(config({**models, "student_model_name": stranger}))


def test_losses_that_the_engine_cannot_give_are_refused(models: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"needs a teacher on vLLM, .*write on_policy_loss='k3'"):
        on_policy.check(config(models, on_policy_loss="forward_kl_topk"))
    with pytest.raises(ConfigError, match="is unknown; write one of: "):
        on_policy.check(config(models, on_policy_loss="k7"))
    with pytest.raises(ConfigError, match="no such file"):
        on_policy.check(config(models, on_policy_reward="reward.py"))


def test_the_losses_are_upstreams() -> None:
    from verl.trainer.distillation.losses import DISTILLATION_SETTINGS_REGISTRY as registry

    assert set(on_policy.LOSSES) == registry.keys()
    assert {name for name, one in registry.items() if one.use_topk} == set(on_policy.TOPK_LOSSES)


def test_k1_is_a_reward_and_k3_a_loss(models: dict[str, str], tmp_path: Path) -> None:
    for loss, expected in (("k1", "true"), ("k3", "false")):
        said = on_policy.overrides(config(models, on_policy_loss=loss), tmp_path / "rows", tmp_path, rows=9, longest=20)
        assert f"distillation.distillation_loss.use_policy_gradient={expected}" in said
        assert "data.max_response_length=28" in said
