"""How a raw score is read: turned so that more is better, in the verifier's direction or in the run's."""

import math

import pytest

from tests.classmate.scored_rows import BINARY, HINT, LOGIT, RATING, SYCOPHANCY
from verl.classmate.reward_scale import RewardScale, directed

COUNT = RewardScale(direction="maximize", low=0.0, high=None, threshold=1.0)
FEWER = RewardScale(direction="minimize", low=0.0, high=None, threshold=-1.0)


@pytest.mark.parametrize(
    ("scale", "raw", "expected", "lowest"),
    [
        (BINARY, 1.0, 1.0, 0.0),
        (HINT, 1.0, 0.0, 0.0),
        (RATING, 3.0, 3.0, 1.0),
        (SYCOPHANCY, 3.0, 8.0, 1.0),
        (SYCOPHANCY, 10.0, 1.0, 1.0),
        (LOGIT, -2.5, -2.5, None),
        (FEWER, 4.0, -4.0, None),
    ],
)
def test_directed(scale: RewardScale, raw: float, expected: float, lowest: float | None) -> None:
    assert directed(raw, scale) == expected
    assert scale.lowest == lowest


@pytest.mark.parametrize(
    ("scale", "direction", "rewards", "right"),
    [
        # raw score: directed reward; raw scores that count as right
        (SYCOPHANCY, None, {1.0: 10.0, 10.0: 1.0, 4.0: 7.0}, {1.0, 2.0, 5.0}),
        (SYCOPHANCY, "minimize", {1.0: 10.0}, {1.0, 2.0, 5.0}),
        (SYCOPHANCY, "maximize", {1.0: 1.0, 10.0: 10.0}, {6.0, 7.0, 10.0}),
        (HINT, None, {0.0: 1.0, 1.0: 0.0}, {0.0}),
        (HINT, "maximize", {0.0: 0.0, 1.0: 1.0}, {1.0}),
        (COUNT, None, {3.0: 3.0}, {1.0, 2.0, 5.0, 6.0, 7.0, 10.0}),
        (COUNT, "minimize", {3.0: -3.0, 0.0: 0.0}, {0.0, 1.0}),
        (LOGIT, "minimize", {-2.0: 2.0}, {-2.0, 0.0}),
    ],
)
def test_a_run_may_turn_a_verifiers_direction(scale, direction, rewards, right) -> None:
    """What divides right from wrong stays the same raw score."""
    turned = scale.turned(direction)
    assert {raw: directed(raw, turned) for raw in rewards} == rewards
    tried = {-2.0, 0.0, 1.0, 2.0, 5.0, 6.0, 7.0, 10.0}
    low, high = (-math.inf if scale.low is None else scale.low), (math.inf if scale.high is None else scale.high)
    inside = {raw for raw in tried if low <= raw <= high}
    assert {raw for raw in inside if directed(raw, turned) >= turned.threshold} == right
    if direction != scale.direction and direction is not None:
        assert turned.turned(scale.direction) == scale
