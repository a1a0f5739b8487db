"""What both trainers do around the run: inputs, history, alarms, one iteration by hand."""

import asyncio
import importlib.util
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from tests.e2e.tiny import make_tiny_world
from verl.reasoning.records import Problem, as_problems
from verl.reasoning.rewards import RewardContext
from verl.reasoning.rl import history
from verl.reasoning.rl.config import PureRLConfig
from verl.reasoning.rl.cot import ChainOfThoughtTrainer, CoTConfig
from verl.reasoning.rl.reward_file import PICKLE, write_reward
from verl.reasoning.rl.rows import write_rows
from verl.reasoning.rl.trainer import PureRLTrainer
from verl.reasoning.rl.trajectories import advantages_of
from verl.reasoning.scoring import to_verl_compute_score


def loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("loaded_reward", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_closure_arrives_as_a_file_and_only_unchanged(tmp_path: Path) -> None:
    bonus = 0.25

    def reward(problem: str, solution: str) -> float | None:
        return None if solution == "?" else bonus + 0.5 * ("7" in solution)

    path = write_reward(reward, tmp_path, timeout_s=5.0)
    compute = loaded(path).compute_score
    told = {"problem": "3 + 4", "id": "a", "step": 4, "total_steps": 9}
    assert asyncio.run(compute("reasoning", "7", "7", told))["score"] == 0.75
    failed = asyncio.run(compute("reasoning", "?", "7", told))
    assert (failed["score"], failed["valid"]) == (None, 0.0)
    assert (tmp_path / PICKLE).stat().st_mode & 0o077 == 0
    (tmp_path / PICKLE).write_bytes(b"other")
    with pytest.raises(RuntimeError, match="not the one that this file was written for"):
        loaded(path)


def test_problems_become_rows(tmp_path: Path) -> None:
    problems = as_problems([{"problem": "1+1?", "answer": 2, "level": 3, "subject": "sums"}, "what?"])
    write_rows(problems, tmp_path / "t.parquet", template="Q: {problem} {x}", split="train")
    first, second = pd.read_parquet(tmp_path / "t.parquet").to_dict("records")
    assert first["prompt"][0]["content"] == "Q: 1+1? {x}"
    assert (first["reward_model"]["ground_truth"], second["reward_model"]["ground_truth"]) == ("2", None)
    assert first["extra_info"]["problem"] == "1+1?"
    assert json.loads(first["extra_info"]["meta"]) == {"subject": "sums"}
    assert (first["extra_info"]["level"], second["extra_info"]["level"]) == ("3", None)


def step_line(step: int, reward: float, **more: Any) -> dict[str, Any]:
    return {"step": step, "training/global_step": step, "critic/main_model_reward/mean": reward, **more}


def run_folder(tmp_path: Path, lines: list[dict[str, Any]], saved: tuple[int, ...]) -> Path:
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for step in saved:
        (tmp_path / f"global_step_{step}").mkdir()
    return tmp_path


def test_best_step_follows_validation_and_alarms_tell(tmp_path: Path) -> None:
    validation = "val-core/reasoning/main_model_reward/mean@1"
    lines = [
        {"step": 0, validation: 0.2},
        step_line(1, 0.1, **{"actor/entropy": 0.5}),
        step_line(2, 0.2, **{validation: 0.6, "actor/entropy": 0.04, "response_length/clip_ratio": 0.4}),
        step_line(3, 0.5, **{"critic/main_judge_error/mean": 0.25}),
        step_line(4, 0.9, **{validation: 0.3, "actor/kl_loss": 0.7}),
    ]
    folder = run_folder(tmp_path, lines, (2, 4))
    assert history.best_step(folder) == 2
    told = "\n".join(history.alarms(folder))
    for part in ("entropy below 0.05", "KL to the reference above 0.5", "30% of answers cut off", "first at step 2"):
        assert part in told
    assert "rewards rose after step 2 while validation fell from 0.600 to 0.300" in told
    assert "the reward failed on" in told
    assert history.history(folder)[2]["entropy"] == 0.04


def test_without_validation_the_best_rewards_count(tmp_path: Path) -> None:
    assert history.best_step(run_folder(tmp_path, [step_line(k, k / 10) for k in range(1, 5)], (2, 4))) == 4
    assert history.alarms(tmp_path) == []


def trajectory(problem: str, reward: float | None, tokens: int = 2, values: tuple[float, ...] | None = None) -> dict:
    return {
        "problem": problem,
        "tokens": list(range(tokens)),
        "values": list(values or [0.0] * tokens),
        "reward": reward,
    }


@pytest.mark.guards("minibatch of 1 -> NaN")
def test_advantages_are_the_estimators() -> None:
    """By hand: rewards 1, 0 of a group have mean 1/2 and deviation 1/sqrt(2); a failed one has no part in them."""
    rows = [trajectory("a", 1.0), trajectory("a", 0.0, 3), trajectory("a", None), trajectory("b", 0.3)]
    grpo = advantages_of(rows, PureRLConfig(model_name="m"))
    assert grpo[0]["advantages"] == pytest.approx([0.7071] * 2, abs=1e-3)
    assert grpo[1]["advantages"] == pytest.approx([-0.7071] * 3, abs=1e-3)
    assert grpo[2]["advantages"] == [0.0, 0.0]
    assert grpo[3]["advantages"] == [0.0, 0.0]
    plain = advantages_of(rows, PureRLConfig(model_name="m", algorithm="dr_grpo"))
    assert plain[0]["advantages"] == pytest.approx([0.5, 0.5])
    rloo = advantages_of(rows[:2], PureRLConfig(model_name="m", algorithm="rloo"))
    assert rloo[0]["advantages"] == pytest.approx([1.0, 1.0])


def test_gae_by_hand() -> None:
    """gamma = lam = 1: returns are the reward, and raw advantages are it less the values."""
    config = PureRLConfig(model_name="m", algorithm="gae", gamma=1.0, lam=1.0)
    rows = [trajectory("a", 1.0, 2, (0.5, 0.25)), trajectory("b", 0.0, 2, (0.5, 0.25))]
    found = advantages_of(rows, config)
    assert found[0]["returns"] == pytest.approx([1.0, 1.0])
    raw = torch.tensor([0.5, 0.75, -0.5, -0.25])
    whitened = (raw - raw.mean()) / raw.std(unbiased=True)
    assert found[0]["advantages"] + found[1]["advantages"] == pytest.approx(whitened.tolist(), abs=1e-3)


@pytest.mark.guards("log-probs from the prompt alone", "one sample per prompt")
def test_one_iteration_by_hand(tmp_path: Path) -> None:
    world = make_tiny_world(tmp_path)
    config = PureRLConfig(
        model_name=str(world.model),
        group_size=3,
        max_length=32,
        max_prompt_length=24,
        temperature_start=0.8,
        temperature_end=0.4,
        temperature_decay=0.5,
        precision="fp32",
    )
    trainer = PureRLTrainer(config, lambda problem, solution: len(solution) / 10)
    drawn = trainer.collect_trajectories(["1 + 1 = ?", "2 + 2 = ?"])
    assert len(drawn) == 6
    assert len({tuple(one["tokens"]) for one in drawn}) > 2
    one = drawn[0]
    prompt = trainer.sampler.prompt_ids(Problem(id="x", problem=one["problem"]), "{problem}")
    ids = torch.tensor([prompt + one["tokens"]], device=trainer.model.device)
    with torch.no_grad():
        logits = trainer.model(input_ids=ids).logits[0].float()
    expected = [
        float(torch.log_softmax(logits[len(prompt) + t - 1] / 0.8, -1)[token]) for t, token in enumerate(one["tokens"])
    ]
    assert one["log_probs"] == pytest.approx(expected, abs=1e-4)
    assert trainer.update_hyperparameters() == {"temperature": 0.4, "entropy_coef": 0.0}
    saved = trainer.save_checkpoint(tmp_path / "saved")
    other = PureRLTrainer(config, lambda problem, solution: 0.0)
    other.load_checkpoint(saved)
    assert (other.iteration, other.temperature) == (1, 0.4)
    for name, weight in trainer.model.state_dict().items():
        assert torch.equal(other.model.state_dict()[name], weight)
    with pytest.raises(FileNotFoundError, match="is not there"):
        other.load_checkpoint(tmp_path / "nowhere")


def test_a_training_has_its_own_folder(tmp_path: Path) -> None:
    def folder(bonus: float, problems: int = 2, **given: Any) -> Path:
        def reward(problem: str, solution: str) -> float:
            return bonus

        config = PureRLConfig(model_name="m", output_dir=str(tmp_path), **given)
        trainer = PureRLTrainer(config, reward)
        return trainer._folder(config, as_problems([f"q{i}" for i in range(problems)]), [], 5)

    one = folder(0.5)
    assert folder(0.5) == one
    assert folder(0.5, log_interval=3) == one
    others = {folder(0.7), folder(0.5, problems=3), folder(0.5, kl_coef=0.5)}
    assert len(others) == 3
    assert one not in others
    one.mkdir()
    assert folder(0.5, resume=False).name == f"{one.name}-2"


@pytest.mark.guards("filler steps keep completeness at 1")
def test_own_marks_are_read_in_place_of_the_usual_ones() -> None:
    config = CoTConfig(model_name="m", thinking_token="<reason>", answer_token="<out>", mode="gated")
    seen: list[str] = []

    def right(problem: str, answer: str) -> float:
        seen.append(answer)
        return float(answer == "7")

    trainer = ChainOfThoughtTrainer(config, right)
    compute = to_verl_compute_score(trainer.reward_fn)
    text = "<reason>3 + 4 = 7, since both are whole. So it is 7.</reason><out>7</out>"
    told = {"problem": "3 + 4?", "id": "a"}
    good = asyncio.run(compute("reasoning", text, "7", told))
    bad = asyncio.run(compute("reasoning", text.replace("<out>7", "<out>8"), "7", told))
    assert seen == ["7", "8"]
    parts = json.loads(good["components"])
    assert parts["answer"] == 1.0
    assert parts["format"] == 1.0
    assert parts["clarity"] > 0
    # Style pays for nothing where the answer is wrong: what is left is the format's tenth.
    assert bad["score"] == pytest.approx(0.1 / 1.1)
    assert good["score"] > 0.7
    none = asyncio.run(compute("reasoning", "<reason>3 + 4 = 7.", "7", told))
    assert (none["score"], json.loads(none["components"])["answer"]) == (0.0, 0.0)
    assert len(seen) == 2


def test_a_chain_config_has_room_for_both_parts() -> None:
    config = CoTConfig(model_name="m", max_thinking_length=100, max_answer_length=20, max_prompt_length=30)
    assert (config.prompt_tokens, config.response_tokens, config.max_length) == (30, 120, 150)
    assert "<think> and </think>" in config.template
    assert "{problem}" in config.template
    seed = CoTConfig(model_name="m", preset="seed")
    assert (seed.mode, seed.thinking_reward_weight, seed.answer_reward_weight) == ("weighted", 0.3, 0.7)
    with pytest.raises(ValueError, match="has no closing mark"):
        CoTConfig(model_name="m", thinking_token="think")


def test_context_is_told_when_training_stands() -> None:
    """The steps taken reach a reward of three arguments through the row's extra information."""
    seen: list[RewardContext] = []

    def reward(problem: Problem, solution: Any, context: RewardContext) -> float:
        seen.append(context)
        return 1.0

    compute = to_verl_compute_score(reward)
    asyncio.run(compute("reasoning", "x", None, {"problem": "q", "step": 7, "total_steps": 10}))
    assert (seen[0].step, seen[0].total_steps) == (7, 10)
