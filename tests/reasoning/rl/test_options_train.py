"""Options of `PureRLConfig` and rewards of the original document train: a few steps each, a tiny policy."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.tiny import make_tiny_world
from tests.e2e.world import rows, steps
from tests.reasoning.rl.letters import PROBLEMS, letters
from verl.reasoning.compound import CompoundRewardFunction
from verl.reasoning.rl.config import PureRLConfig
from verl.reasoning.rl.trainer import PureRLTrainer
from verl.reasoning.stage_rewards import stage_schedule

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
STEPS = 2


def train(folder: Path, reward: Callable[..., Any], steps_there: int = STEPS, **options: Any) -> Path:
    """The run folder of a training."""
    world = make_tiny_world(folder / "world")
    config = PureRLConfig(
        model_name=str(world.model),
        output_dir=str(folder / "out"),
        batch_size=4,
        group_size=4,
        max_length=48,
        max_prompt_length=24,
        learning_rate=1e-3,
        save_interval=100,
        dynamic_sampling=False,
        **{"in_process": True, **options},
    )
    result = PureRLTrainer(config, reward).train(PROBLEMS, num_iterations=steps_there)
    assert [entry["step"] for entry in result.history] == list(range(1, steps_there + 1))
    return result.run_folder


def moved(line: Mapping[str, Any]) -> bool:
    """Whether a step has changed the policy."""
    return bool(line["actor/grad_norm"] > 0)


def test_a_critic_and_kl_in_the_reward(tmp_path: Path) -> None:
    folder = train(tmp_path, letters, algorithm="gae", kl_mode="adaptive", kl_coef=0.05, target_kl=0.01)
    for line in steps(folder).values():
        assert line["critic/grad_norm"] > 0
        assert moved(line)
        assert "critic/vf_explained_var" in line
    # The policy has left the reference after its first step, which costs reward from then on.
    told = steps(folder)
    assert told[1]["actor/reward_kl_penalty"] == pytest.approx(0, abs=1e-4)
    assert told[2]["actor/reward_kl_penalty"] > 1e-5


def test_adapters_and_a_temperature_of_two_phases(tmp_path: Path) -> None:
    points = ((0, 1.5), (1, 0.75))
    # Adapters are synchronised to engines of their own, on Ray.
    folder = train(
        tmp_path,
        letters,
        in_process=False,
        lora_rank=4,
        schedule_kind="piecewise",
        temperature_points=points,
        hold_temperature=False,
    )
    for step, line in steps(folder).items():
        assert line["reasoning/temperature"] == line["actor/loss_temperature"] == pytest.approx(points[step - 1][1])
        # Drawn at the temperature of the loss; upstream sends merged adapters as bf16.
        assert line["training/rollout_probs_diff_mean"] < 0.01
        assert line["training/rollout_actor_probs_pearson_corr"] > 0.999
        assert moved(line)


def test_the_compound_reward(tmp_path: Path) -> None:
    reward = CompoundRewardFunction(correctness=letters)
    for row in rows(train(tmp_path, reward), STEPS):
        if row["output"].startswith("z"):
            assert not row["main_valid"], "its correctness has no score"
        else:
            assert 0 <= row["base_reward"] <= letters("", row["output"]) + 1e-9, "all is multiplied with it"


def test_stages_of_rewards_follow_each_other(tmp_path: Path) -> None:
    def constant(value: float) -> Callable[[str, str], float]:
        return lambda problem, solution: value

    values = {"exploration": 0.2, "exploitation": 0.5, "refinement": 0.9}
    schedule = stage_schedule({name: constant(value) for name, value in values.items()})
    folder = train(tmp_path, schedule, 6, algorithm="grpo")
    seen = [steps(folder)[step]["critic/main_model_reward/max"] for step in range(1, 7)]
    weights = [schedule.weights(step, 6) for step in range(6)]
    assert seen == pytest.approx([sum(values[name] * share for name, share in one.items()) for one in weights])
    assert seen[0] == pytest.approx(0.2)
    assert seen[-1] == pytest.approx(0.9)
