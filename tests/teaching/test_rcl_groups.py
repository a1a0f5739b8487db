"""What becomes of RCL rewards in their groups: with the project's own GRPO, behind the gate, and filtered."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.teaching.rows import TEACHER, advantages, reward, rlt_row
from verl.classmate.outcome import Outcome
from verl.teaching.rcl import conciseness, gated_advantages, unsolved_groups
from verl.teaching.reward_config import LeakConfig, RltConfig, TeachingRewardConfig
from verl.teaching.rlt import rlt_reward
from verl.teaching.tags import TeachingState

README, OPEN = TeachingRewardConfig(), TeachingRewardConfig(gate="none")
RCL = TeachingRewardConfig(preset="rcl")
LOST = reward(Outcome.timeout, 1.0)


@pytest.mark.acceptance("T5")
def test_std_normalisation_erases_the_degradation_penalty() -> None:
    """12 answers kept and 4 lost. Divided by the group's deviation, all penalties are the same."""

    def found(penalty: float, *, by_std: bool) -> list[float]:
        config = TeachingRewardConfig(degradation_penalty=penalty, r_min=-8.0)
        rewards = [reward(1, 1, length=100, config=config)] * 12 + [reward(1, 0, length=100, config=config)] * 4
        return gated_advantages(advantages(rewards, by_std=by_std), rewards, ["q1"] * 16, config)

    by_std = [found(penalty, by_std=True) for penalty in (0.5, 2, 8)]
    assert by_std[0] == pytest.approx(by_std[1], abs=1e-5)
    assert by_std[2] == pytest.approx(by_std[1], abs=1e-5)
    half, two, eight = (found(penalty, by_std=False) for penalty in (0.5, 2, 8))
    assert two == pytest.approx([4 * value for value in half])
    assert eight == pytest.approx([16 * value for value in half])
    assert half == pytest.approx([0.125] * 12 + [-0.375] * 4)


def test_both_kinds_of_reward_are_normalised_apart() -> None:
    """Their scales differ tenfold: the sum of raw rewards would follow RLT alone."""
    rcl = [reward(0, guided, length=100) for guided in (0, 1, 0, 1)]
    found = {}
    for scale in (1.0, 10.0):
        config = RltConfig(answer_log_prob_coeff=(scale, 0.0), r_min=-1000.0)
        rlt = [rlt_reward(rlt_row(solution=[-one], student=TEACHER), config) for one in (4.0, 3.0, 2.0, 1.0)]
        found[scale] = advantages(rcl, by_std=True, rlt=rlt)
    assert found[1.0] == pytest.approx(found[10.0], abs=1e-5)
    assert found[1.0][1] > 0 > found[1.0][2]


@pytest.mark.acceptance("T5")
def test_the_gate_ends_phantom_advantages() -> None:
    """All answers are kept and lengths differ by a token: as large an advantage as right against wrong."""
    rewards = [reward(1, 1, length=length, config=RCL) for length in (60, 61, 60, 61)]
    groups = ["q1"] * 4
    phantom = advantages(rewards, by_std=True)
    assert phantom[0] > 0.8
    ungated = TeachingRewardConfig(preset="rcl", gate="none")
    assert gated_advantages(phantom, rewards, groups, ungated) == phantom
    half = 0.1 * (conciseness(60, 100) - conciseness(61, 100)) / 2
    assert gated_advantages(phantom, rewards, groups, RCL) == pytest.approx([half, -half, half, -half])


def test_the_gate_leaves_groups_with_two_outcomes_alone() -> None:
    rewards = [reward(0, guided, length=10) for guided in (0, 1, 1, 0)]
    found = advantages(rewards, by_std=False)
    assert gated_advantages(found, rewards, ["q1"] * 4, README) == found


def test_nothing_is_paid_for_brevity_where_nothing_is_solved() -> None:
    for base in (0, 1):
        rewards = [reward(base, 0, length=length) for length in (0, 10, 100)]
        assert gated_advantages([5.0, 0.0, -5.0], rewards, ["q1"] * 3, README) == [0.0] * 3


def test_the_gate_keeps_the_penalties() -> None:
    """Rows without a tag show nothing, which would be the shortest advice of all."""
    rewards = [
        reward(1, 1, length=100),
        reward(1, 1, state=TeachingState.empty),
        reward(1, 1, state=TeachingState.missing),
    ]
    kept, abstained, broken = gated_advantages([0.0] * 3, rewards, ["q1"] * 3, README)
    assert abstained > kept > broken
    assert abstained - broken == pytest.approx(0.5)
    assert abstained - kept == pytest.approx(0.05)


def test_gains_that_do_not_count_are_another_outcome() -> None:
    config = TeachingRewardConfig(leak=LeakConfig(mode="zero_gain"))
    rewards = [reward(0, 1, length=9, config=config, leak=leak) for leak in (True, False)]
    found = advantages(rewards, by_std=False)
    assert found[0] < -0.5
    assert gated_advantages(found, rewards, ["q1"] * 2, config) == found


@pytest.mark.acceptance("T13")
def test_rows_that_failed_get_nothing_and_move_nobody() -> None:
    kept = [reward(1, 1, length=length, config=RCL) for length in (10, 20)]
    alone = gated_advantages([0.0, 0.0], kept, ["q1"] * 2, RCL)
    assert gated_advantages([0.0, 9.0, 0.0], [kept[0], LOST, kept[1]], ["q1"] * 3, RCL) == [alone[0], 0.0, alone[1]]
    for config in (README, OPEN):
        assert gated_advantages([3.0, math.nan], [reward(0, 1), LOST], ["q1"] * 2, config) == [0.0, 0.0]
        assert gated_advantages([3.0, -3.0], [LOST, LOST], ["q1"] * 2, config) == [0.0, 0.0]


def test_groups_are_apart() -> None:
    rewards = [reward(1, 1, length=10), reward(0, 1), reward(1, 1, length=20), reward(0, 0)]
    groups = ["a", "b", "a", "b"]
    found = gated_advantages([7.0, 0.5, -7.0, -0.5], rewards, groups, README)
    assert found[1::2] == [0.5, -0.5]
    assert found[0] == pytest.approx(-found[2])
    assert 0 < found[0] < 0.01


def test_groups_that_nobody_solves_are_left_out() -> None:
    pairs = {
        "none": (reward(0, 0), reward(0, 0, state=TeachingState.missing)),
        "some": (reward(0, 0), reward(0, 1)),
        "harm": (reward(1, 0), reward(1, 0)),
        "half": (reward(0, 0), LOST),
        "lost": (LOST, LOST),
        "rare": (reward(0.125, 0), reward(0.125, 0)),
    }
    groups = [name for name in pairs for _ in range(2)]
    rewards = [one for pair in pairs.values() for one in pair]
    assert unsolved_groups(rewards, groups, README) == {"none", "half"}
    assert unsolved_groups(rewards, groups, TeachingRewardConfig(drop_unsolved_groups=False)) == frozenset()


def test_advantages_may_be_a_tensor() -> None:
    found = gated_advantages(torch.tensor([0.5, -0.5]), [reward(0, 1), reward(0, 0)], ["q1"] * 2, README)
    assert [type(one) for one in found] == [float, float]
    assert found == [0.5, -0.5]


@pytest.mark.guards("list shorter than the batch")
def test_lists_of_different_lengths_are_refused() -> None:
    for counts in ((2, 3, 3), (3, 2, 3), (3, 3, 2)):
        values, rewards, groups = [0.0] * counts[0], [reward(0, 1)] * counts[1], ["q1"] * counts[2]
        with pytest.raises(ValueError, match="give one for each row"):
            gated_advantages(values, rewards, groups, README)


@pytest.mark.guards("probe and baseline resampled per rollout")
def test_one_group_has_one_baseline() -> None:
    with pytest.raises(ValueError, match=r"'q1' have the baselines 0\.5 and 0\.625; measure the baseline once"):
        gated_advantages([0.0, 0.0], [reward(0.5, 1), reward(0.625, 1)], ["q1"] * 2, README)
    assert gated_advantages([1.0, 2.0], [reward(0.5, 1), reward(0.625, 1)], ["q1", "q2"], README) == [0.0, 0.0]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 400), st.sampled_from(TeachingState)), min_size=2),
    st.integers(0, 1),
)
def test_what_the_gate_makes_is_centred(members: list[tuple[int, int, TeachingState]], base: int) -> None:
    rewards = [reward(base, guided, length=length, state=state) for guided, length, state in members]
    found = gated_advantages(advantages(rewards, by_std=False), rewards, ["q1"] * len(members), README)
    assert math.fsum(found) == pytest.approx(0, abs=1e-4 * len(found))
