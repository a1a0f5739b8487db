"""A tiny policy is trained with rewards of steps by a saved process reward model, in one process."""

import dataclasses
from pathlib import Path

import pytest
import torch

from tests.e2e.tiny import make_tiny_world
from tests.e2e.world import rows, steps
from verl.classmate.errors import ConfigError
from verl.reasoning.prm.config import PRMConfig
from verl.reasoning.rl.config import PureRLConfig
from verl.reasoning.rl.trainer import PureRLTrainer
from verl.workers.prm.model import ProcessRewardModel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PROBLEMS = [{"problem": f"{a} + {a} = ?", "answer": str(2 * a)} for a in range(8)]


def letters(problem: str, solution: str) -> float:
    """Whether more than a third of the letters are a to m."""
    return float(sum("a" <= letter <= "m" for letter in solution) > len(solution) / 4)


def saved_model(policy: Path, folder: Path) -> Path:
    """A random one, whose head is stretched so that its scores differ."""
    config = PRMConfig(base_model_name=str(policy), max_length=160, template="plain")
    model, tokenizer = ProcessRewardModel.from_base(config)
    assert model.score is not None
    with torch.no_grad():
        for parameter in model.score.parameters():
            parameter.mul_(20)
    return model.save(folder, tokenizer)


def config_of(tmp_path: Path) -> PureRLConfig:
    world = make_tiny_world(tmp_path / "world")
    return PureRLConfig(
        model_name=str(world.model),
        output_dir=str(tmp_path / "out"),
        process_model=str(saved_model(world.model, tmp_path / "prm")),
        process_max_junk=1.0,
        process_max_step_growth=None,
        batch_size=4,
        group_size=4,
        max_length=72,
        max_prompt_length=24,
        learning_rate=1e-3,
        save_interval=100,
        dynamic_sampling=False,
        in_process=True,
        kl_coef=0.0,
    )


def test_advantages_differ_within_an_answer(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    result = PureRLTrainer(config, letters).train(PROBLEMS, num_iterations=2)
    told = steps(result.run_folder)
    assert sorted(told) == [1, 2]
    for line in told.values():
        assert 0 < line["reasoning/process_coef"] <= 1
        assert line["reasoning/process_share_of_variance"] <= 0.3 + 1e-6
        assert line["reasoning/process_failed"] < 0.5
        assert 0 < line["critic/process_score/mean"] < 1
        assert line["reasoning/process_reward"] == pytest.approx(line["reasoning/process_reward"])
    records = [one for step in told for one in rows(result.run_folder, step)]
    several = [one["steps"] for one in records if len(one["steps"]["ends"]) > 1]
    assert several
    assert all(len(one["scores"]) == len(one["advantages"]) == len(one["ends"]) for one in several)
    assert any(max(one["advantages"]) - min(one["advantages"]) > 1e-3 for one in several)
    assert all(one["steps"]["ends"][-1] == len(one["response_ids"]) - 1 for one in records if one["steps"]["ends"])


def test_a_model_that_likes_junk_is_refused(tmp_path: Path) -> None:
    config = dataclasses.replace(config_of(tmp_path), process_max_junk=0.0)
    with pytest.raises(ConfigError, match="gives the answer 'thanks'"):
        PureRLTrainer(config, letters).train(PROBLEMS, num_iterations=1)
