"""Numbers of what a student has kept, against hand-made fixtures and enumeration."""

import math

import pytest

from verl.reasoning.distill import preservation


def test_retention_by_hand() -> None:
    told = preservation.retention([1, 1, 0, 1], [1, 0, 0, 1])
    assert told["retention"] == pytest.approx(2 / 3)
    assert told["difference"] == pytest.approx(-0.25)
    low, high = told["difference_ci"]
    assert low <= -0.25 <= high
    assert preservation.retention([0, 0], [1, 0])["retention"] is None


def test_a_paired_interval_is_narrow_where_all_problems_agree() -> None:
    """Both models have half of the problems right, the same ones: the difference is 0 in every resample."""
    told = preservation.retention([1, 0] * 50, [1, 0] * 50)
    assert told["difference_ci"] == (0.0, 0.0)
    assert told["retention_ci"] == (1.0, 1.0)


def test_a_majority_and_a_tie() -> None:
    assert preservation.majority(["7", "7", "8", None], [True, True, False, False]) == (1.0, 2 / 3)
    assert preservation.majority(["7", "8"], [True, False]) == (0.5, 0.5)
    assert preservation.majority([None, None], [False, False]) is None


def test_kappa_by_hand() -> None:
    one, other = [True] * 6 + [False] * 4, [True] * 5 + [False] * 5
    # 9 of 10 agree; by chance 0.6 * 0.5 + 0.4 * 0.5.
    assert preservation.kappa(one, other) == pytest.approx((0.9 - 0.5) / 0.5)
    assert preservation.kappa([True, True], [True, True]) is None


def test_forgetting_and_calibration_by_hand() -> None:
    told = preservation.forgetting([True, True, False, False], [True, False, True, False])
    assert told == {"lost": 0.25, "gained": 0.25}
    # Bin 0.9..1: surely right in half of the cases; bin 0.2..0.3: never right.
    error = preservation.calibration_error([1.0, 1.0, 0.25, 0.25], [1, 0, 0, 0])
    assert error == pytest.approx(0.5 * 0.5 + 0.5 * 0.25)
    assert preservation.calibration_error([], []) is None


def test_behaviours_apart_are_one_bit_and_the_same_none() -> None:
    assert preservation.behaviour_divergence({"verify": 3}, {"backtrack": 5}) == pytest.approx(1.0)
    assert preservation.behaviour_divergence({"a": 1, "b": 3}, {"a": 2, "b": 6}) == pytest.approx(0.0)
    # Halves against all of one: the mean is (0.75, 0.25).
    wanted = 0.5 * (0.5 * math.log2(0.5 / 0.75) + 0.5 * math.log2(0.5 / 0.25)) + 0.5 * math.log2(1 / 0.75)
    assert preservation.behaviour_divergence({"a": 1, "b": 1}, {"a": 4}) == pytest.approx(wanted)
    assert preservation.behaviour_divergence({}, {"a": 1}) is None


@pytest.mark.guards("distillation: Pearson r sold as percent")
def test_a_correlation_is_between_minus_1_and_1_or_none() -> None:
    assert preservation.correlation([1, 2, 3], [2, 4, 6]) == pytest.approx(1.0)
    assert preservation.correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert preservation.correlation([1, 1, 1], [1, 2, 3]) is None
    assert preservation.correlation([1], [2]) is None


def test_lengths_are_compared_by_their_means() -> None:
    assert preservation.length_ratio([10, 20], [30, 60]) == pytest.approx(3.0)
    assert preservation.length_ratio([], [1]) is None
