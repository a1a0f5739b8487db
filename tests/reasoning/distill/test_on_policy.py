"""On-policy distillation on verl's trainer: the student comes closer to the teacher on its own texts."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.reasoning.sums import pairs_of_sums, save_model, sums_tokenizer
from verl.classmate.errors import ConfigError
from verl.reasoning.distill import on_policy
from verl.reasoning.distill.config import DistillationConfig
from verl.reasoning.records import as_problems

PROBLEMS = as_problems([{"problem": problem, "answer": "0"} for problem, _ in pairs_of_sums(3)])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A teacher and a student that nobody has taught."""
    folder = tmp_path_factory.mktemp("models")
    return {
        "teacher_model_name": str(save_model(folder / "teacher", sums_tokenizer(), seed=5, hidden=64)),
        "student_model_name": str(save_model(folder / "student", sums_tokenizer())),
    }


def config(models: dict[str, str], **more: Any) -> DistillationConfig:
    usual: dict[str, Any] = {"mode": "on_policy", "learning_rate": 1e-2, "max_length": 48, "device": "cpu"}
    return DistillationConfig(**{**models, **usual, **more})


@pytest.mark.long
def test_the_student_comes_closer_on_its_own_texts(tmp_path: Path) -> None:
    """A teacher that knows the sums and a student that has begun to: what few samples say of two models that know
    nothing is mostly noise."""
    teacher = taught(save_model(tmp_path / "teacher", sums_tokenizer(), seed=5, hidden=64), steps=300)
    student = taught(save_model(tmp_path / "begun", sums_tokenizer()), steps=60)
    models = {"teacher_model_name": str(teacher), "student_model_name": str(student)}
    more = {"batch_size": 8, "gradient_accumulation_steps": 1, "on_policy_steps": 12, "save_every": 3}
    how = config(models, learning_rate=4e-3, **more)
    told = on_policy.distil(how, PROBLEMS, tmp_path / "student")
    assert len(told["history"]) == told["steps"] == 12
    assert divergence(told["model"], teacher) < 0.8 * divergence(student, teacher)
    assert on_policy.distil(how, PROBLEMS, tmp_path / "student") == told, "a finished run is not started again"


def taught(folder: Path, *, steps: int) -> Path:
    """Teaches a model some sums, in place; returns its folder."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    texts = [chat(tokenizer, problem) + text + tokenizer.eos_token for problem, text in pairs_of_sums(3)]
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        some = [texts[i] for i in torch.randint(len(texts), (16,), generator=generator).tolist()]
        batch = tokenizer(some, return_tensors="pt", padding=True, add_special_tokens=False)
        labels = batch.input_ids.masked_fill(batch.attention_mask == 0, -100)
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    return folder


def chat(tokenizer: Any, problem: str) -> str:
    told = [{"role": "user", "content": problem}]
    return str(tokenizer.apply_chat_template(told, add_generation_prompt=True, tokenize=False))


@torch.no_grad()
def divergence(student: Path | str, teacher: Path) -> float:
    """Nats a token, by which the student's distribution differs from the teacher's on texts of its own."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(student)
    own, other = (AutoModelForCausalLM.from_pretrained(name) for name in (student, teacher))
    found = []
    for one in PROBLEMS:
        prompt = tokenizer(chat(tokenizer, one.problem), return_tensors="pt", add_special_tokens=False).input_ids
        ids = own.generate(
            prompt.repeat(16, 1), do_sample=True, max_new_tokens=24, min_new_tokens=24, top_k=0, pad_token_id=0
        )
        says, told = (model(ids).logits[:, prompt.shape[1] - 1 : -1].log_softmax(-1) for model in (own, other))
        found.append((says.exp() * (says - told)).sum(-1).mean().item())
    return sum(found) / len(found)


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
