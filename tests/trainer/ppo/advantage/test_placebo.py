"""The control arm: rows of a prompt exchange their classmate rewards, and nothing else."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.ppo.advantage.worked_example import CLASSMATE_MASK, RESPONSE_MASK, columns, inputs, run
from verl.classmate.algorithm_config import AdvantageConfig
from verl.classmate.config import ClassmateCotRewardConfig
from verl.classmate.errors import ConfigError
from verl.classmate.estimators import DECOUPLED_ESTIMATORS, ESTIMATORS
from verl.trainer.ppo.advantage import AdvantageInputs
from verl.trainer.ppo.advantage.placebo import permuted


@st.composite
def _steps(draw: st.DrawFn) -> AdvantageInputs:
    rows = draw(st.integers(1, 24))
    column = lambda values: torch.tensor(draw(st.lists(values, min_size=rows, max_size=rows)))  # noqa: E731
    gamma = column(st.sampled_from([-1.0, 0.0, 1.0, float("nan")]))
    groups = draw(st.lists(st.sampled_from(["3-1-a", "4-1-b", "5-1-c"]), min_size=rows, max_size=rows))
    return inputs(
        base=column(st.sampled_from([0.0, 1.0])),
        classmate=column(st.integers(0, 8)).float() / 8,
        groups=groups,
        main_valid_B=~gamma.isnan(),
        classmate_valid_B=column(st.booleans()),
        gamma_B=gamma,
        rollout_B=torch.arange(rows),
    )


def _strata(step: AdvantageInputs) -> dict:
    rewards: dict = {}
    for i in torch.nonzero(step.classmate_rows_B).flatten().tolist():
        place = step.group_B[i], float(step.gamma_B[i])
        rewards.setdefault(place, []).append(float(step.classmate_reward_B[i]))
    return {place: sorted(values) for place, values in rewards.items()}


@given(_steps())
def test_only_rows_of_one_prompt_and_one_gamma_exchange(step: AdvantageInputs) -> None:
    after = permuted(step)
    assert _strata(after) == _strata(step)
    out = ~step.classmate_rows_B
    assert torch.equal(after.classmate_reward_B[out], step.classmate_reward_B[out])
    for field in dataclasses.fields(step):
        if field.name != "classmate_reward_B":
            assert getattr(after, field.name) is getattr(step, field.name)


@given(_steps(), st.randoms(use_true_random=False))
def test_the_draw_does_not_depend_on_the_order_of_rows(step: AdvantageInputs, rng) -> None:
    order = list(range(len(step.group_B)))
    rng.shuffle(order)
    names = ("classmate_reward_B", "main_valid_B", "classmate_valid_B", "gamma_B", "rollout_B")
    moved = dataclasses.replace(
        step, group_B=step.group_B[order], **{name: getattr(step, name)[order] for name in names}
    )
    assert torch.equal(permuted(moved).classmate_reward_B, permuted(step).classmate_reward_B[order])


def test_the_reward_says_nothing_about_its_row() -> None:
    """Over many prompts the correlation of a row's own reward with the one it is given is 0."""
    prompts, answers = 4000, 8
    groups = np.repeat([f"{i}-1-x" for i in range(prompts)], answers)
    own = torch.arange(answers).float().repeat(prompts)
    step = inputs(
        base=torch.ones(len(own)),
        classmate=own,
        groups=list(groups),
        gamma_B=torch.ones(len(own)),
        rollout_B=torch.arange(answers).repeat(prompts),
    )
    given_to = permuted(step).classmate_reward_B
    assert abs(np.corrcoef(own, given_to)[0, 1]) < 0.02
    counts = torch.zeros(answers, answers)
    for place, reward in zip(own.long().tolist(), given_to.long().tolist(), strict=True):
        counts[place, reward] += 1
    assert (counts / prompts - 1 / answers).abs().max() < 0.03


def test_the_next_step_draws_anew() -> None:
    def drawn(uid: str) -> list[float]:
        step = inputs(
            base=torch.ones(8),
            classmate=torch.arange(8).float(),
            groups=[uid] * 8,
            gamma_B=torch.ones(8),
            rollout_B=torch.arange(8),
        )
        return permuted(step).classmate_reward_B.tolist()

    assert drawn("0-1-a") == drawn("0-1-a")
    assert len({tuple(drawn(f"{i}-{1 + i // 8}-a")) for i in range(40)}) > 35


@pytest.mark.parametrize("name", DECOUPLED_ESTIMATORS)
def test_only_tokens_that_classmates_read_are_trained_otherwise(name: str) -> None:
    classmate = torch.tensor([0.9, 0.1, 0.4, 0.7])
    more = {"gamma_B": torch.ones(4), "rollout_B": torch.arange(4)}
    options = {"adv_estimator": name, "gdpo_batch_norm": "none"}
    own, given_to = (
        columns(run(inputs(classmate=classmate, groups=["9-2-b"] * 4, **more), placebo=placebo, **options))
        for placebo in (False, True)
    )
    assert own[1] == given_to[1]
    assert sorted(np.subtract(own[0], own[1]).round(4)) == sorted(np.subtract(given_to[0], given_to[1]).round(4))
    assert own[0] != given_to[0]
    assert RESPONSE_MASK.sum() > CLASSMATE_MASK.sum()


@pytest.mark.parametrize("name", sorted(set(ESTIMATORS) - set(DECOUPLED_ESTIMATORS)))
def test_estimators_that_fuse_the_rewards_refuse_it(name: str) -> None:
    with pytest.raises(
        ConfigError, match=r"placebo: needs a classmate advantage of its own.*write False, or algorithm"
    ):
        AdvantageConfig(adv_estimator=name, placebo=True)


def test_segments_refuse_it() -> None:
    with pytest.raises(ConfigError, match=r"placebo: .*has rewards for segments.*write False"):
        ClassmateCotRewardConfig(placebo=True, classmate_reward_type="random_truncate_step_wise_utility")
