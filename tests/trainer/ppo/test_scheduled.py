"""Numbers of each step: planned, held, steered, kept by checkpoints, told to the loss."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tensordict import TensorDict

from tests.trainer.ppo.scheduled_trainer import trainer_with
from verl.classmate.errors import ConfigError
from verl.stepwise.config import BASE_YAML, ReasoningConfig, render_base_yaml
from verl.trainer.ppo.kl_in_reward import kl_cost
from verl.trainer.ppo.one_update import ENTROPY_COEFF, with_step_numbers
from verl.trainer.ppo.queue_rows import AccountedRows
from verl.trainer.ppo.scheduled import zero_variance_share
from verl.utils import tensordict_utils as tu

FALLS = {"temperature": {"kind": "exp", "start": 1.2, "end": 0.3, "decay": 0.5}}


def test_committed_yaml_of_the_node_is_generated() -> None:
    assert BASE_YAML.read_text() == render_base_yaml(), "run `python -m verl.stepwise.config --write`"


def test_without_a_schedule_nothing_changes() -> None:
    scheduled = trainer_with()
    for step in (1, 2, 9):
        scheduled.begin(step)
        assert scheduled._config.actor_rollout_ref.rollout.temperature == 1.0
        assert scheduled._config.actor_rollout_ref.actor.entropy_coeff == 0.0


def test_the_first_step_has_the_start_and_the_config_follows() -> None:
    scheduled = trainer_with(FALLS)
    for step, expected in ((1, 1.2), (2, 0.6), (3, 0.3), (9, 0.3)):
        scheduled.begin(step)
        assert scheduled._config.actor_rollout_ref.rollout.temperature == pytest.approx(expected)


def test_temperature_is_held_while_groups_teach_nothing(tmp_path: Path) -> None:
    scheduled = trainer_with(FALLS, folder=tmp_path)
    scheduled.after(1, {"reasoning/groups": 4, "reasoning/constant_groups": 3})
    assert scheduled.temperature(2) == 1.2
    # What dynamic sampling left out counts: 2 of 4, and 1 more of 5, is more than half.
    mixed = {"reasoning/groups": 4, "reasoning/constant_groups": 2, "training/filter_groups/evicted_samples": 1}
    assert zero_variance_share(mixed) == pytest.approx(3 / 5)
    scheduled.after(2, dict(mixed))
    assert scheduled.temperature(3) == 1.2
    scheduled.after(3, {"reasoning/groups": 4, "reasoning/constant_groups": 1})
    assert scheduled.temperature(4) == 0.6

    scheduled._trainer.global_steps = 3
    scheduled.saved_before(lambda: None)()
    again = trainer_with(FALLS, folder=tmp_path, step=3)
    assert again.temperature(4) == 0.6
    free = trainer_with({**FALLS, "hold_temperature": False})
    free.after(1, {"reasoning/groups": 4, "reasoning/constant_groups": 4})
    assert free.temperature(2) == 0.6


def test_a_target_steers_the_coefficient_by_a_tenth(tmp_path: Path) -> None:
    node = {"target_entropy": 1.0, "entropy_coeff": {"start": 0.01}}
    scheduled = trainer_with(node, folder=tmp_path, kl=0.2)
    metrics = {"actor/entropy": 0.2}
    scheduled.after(1, metrics)
    assert metrics["reasoning/entropy_coeff"] == 0.01
    assert scheduled.entropy_coeff(2) == pytest.approx(0.011)
    scheduled.after(2, {"actor/entropy": 5.0})
    assert scheduled.entropy_coeff(3) == pytest.approx(0.0099)
    scheduled.kl.value = 0.7
    scheduled._trainer.global_steps = 2
    scheduled.saved_before(lambda: None)()
    again = trainer_with(node, folder=tmp_path, step=2, kl=0.2)
    assert again.entropy_coeff(3) == pytest.approx(0.0099)
    assert again.kl.value == 0.7


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"temperature": {"kind": "exp"}}, "reasoning.temperature.end: where does exp stop?"),
        ({"temperature": {"start": 0}}, "answers drawn at 0 are all the same"),
        ({"temperature": {"kind": "piecewise", "points": [[0, 1.0], [2]]}}, "pairs of a step and a value"),
        ({"target_entropy": 0.5}, "write reasoning.entropy_coeff.start=0.001"),
        ({"temprature": {}}, "did you mean temperature?"),
    ],
)
def test_mistakes_in_the_node(node: dict, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        ReasoningConfig.read(node)
    assert message in str(error.value)


def test_the_loss_takes_the_coefficient_that_the_batch_brings() -> None:
    config = SimpleNamespace(entropy_coeff=0.5, global_batch_info={})
    data = TensorDict({"x": torch.zeros(1)}, batch_size=1)
    assert with_step_numbers(config, data) == (config, {})
    tu.assign_non_tensor(data, **{ENTROPY_COEFF: 0.1}, temperature=0.7)
    changed, told = with_step_numbers(config, data)
    assert changed.entropy_coeff == 0.1
    assert config.entropy_coeff == 0.5
    assert changed.global_batch_info is config.global_batch_info
    assert told == {"loss_entropy_coeff": 0.1, "loss_temperature": 0.7}


def test_kl_cost_is_coefficient_times_log_prob_difference() -> None:
    """By hand: KL of the two real rows is 0.5 and 0.25 a token; the third row only fills the batch."""
    rows = {
        "old_log_probs": torch.tensor([[-1.0, -1.0], [-1.0, -9.0], [-1.0, -1.0]]),
        "ref_log_prob": torch.tensor([[-1.5, -1.5], [-1.25, -1.0], [-99.0, -99.0]]),
        "response_mask": torch.tensor([[1, 1], [1, 0], [1, 1]]),
    }
    seen: list[dict] = []
    controller = SimpleNamespace(value=0.1, update=lambda **told: seen.append(told))
    metrics: dict = {}
    cost_BR = kl_cost(rows, torch.tensor([False, False, True]), "kl", controller, metrics)
    torch.testing.assert_close(cost_BR[:2], torch.tensor([[0.05, 0.05], [0.025, 0.0]]))
    assert metrics["actor/reward_kl_penalty"] == pytest.approx(0.375)
    assert seen == [{"current_kl": pytest.approx(0.375), "n_steps": 2}]


def test_dynamic_sampling_gives_up() -> None:
    buffer = SimpleNamespace(
        _materialize_batch=None, _wait_for_next_poll=None, _evict_terminal_groups=lambda: ({"a"}, 0, 3, {})
    )
    AccountedRows(buffer, most_left_out=5)
    buffer._evict_terminal_groups()
    with pytest.raises(RuntimeError, match="6 groups in a row were left out, since all rewards of each are the same"):
        buffer._evict_terminal_groups()


def test_nan_share_without_groups() -> None:
    assert math.isnan(zero_variance_share({}))
