"""Means over seeds: known values, and what holds for any numbers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl.evaluation.study.statistics import Mean, mean_of, paired, t_quantile

SHARES = st.floats(0, 1)
BY_SEED = st.dictionaries(st.integers(0, 20), SHARES, max_size=10)
ROUNDED = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 10: 2.228, 29: 2.045, 120: 1.980}
"""Table of the t distribution, 0.975."""


@pytest.mark.parametrize("degrees", ROUNDED)
def test_quantiles_are_those_of_the_table(degrees):
    assert t_quantile(degrees) == pytest.approx(ROUNDED[degrees], abs=6e-4)


def test_other_levels_too() -> None:
    assert t_quantile(7, 0.9) == pytest.approx(1.895, abs=6e-4)
    assert t_quantile(1, 0.5) == pytest.approx(1)
    assert t_quantile(2, 0.99) == pytest.approx(9.925, abs=6e-4)
    for degrees, level in ((0, 0.95), (3, 1.0)):
        with pytest.raises(ValueError, match="no t quantile"):
            t_quantile(degrees, level)


def test_the_interval_of_four_numbers() -> None:
    mean = mean_of([1, 2, 3, 4])
    assert mean.value == 2.5
    # The table's 3.182446, times the standard error, sqrt(5 / 3) / 2.
    assert mean.half == pytest.approx(3.182446 * math.sqrt(5 / 3) / 2, rel=1e-6)
    assert mean.interval == pytest.approx((0.44574, 4.55426), abs=1e-5)


def test_one_seed_or_none_has_no_interval() -> None:
    assert mean_of([0.3]) == Mean(1, 0.3, None)
    assert mean_of([]) == Mean(0, None, None)
    assert paired({1: 0.5}, {1: 0.25, 2: 0.3}).interval is None
    assert paired({1: 0.5}, {2: 0.3}).mean == Mean(0, None, None)


def test_eight_of_eight_signs() -> None:
    eight = {seed: 0.5 + seed / 100 for seed in range(8)}
    assert paired(eight, dict.fromkeys(range(8), 0.1)).p == 0.0078125


def test_ties_are_dropped() -> None:
    found = paired({1: 0.5, 2: 0.5, 3: 0.7}, {1: 0.5, 2: 0.4, 3: 0.4})
    assert (found.higher, found.lower, found.n, found.p) == (2, 0, 3, 0.5)
    assert paired({1: 0.5, 2: 0.5}, {1: 0.5, 2: 0.5}).p == 1


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none_are_refused(number):
    with pytest.raises(ValueError, match=r"seed 3: .* cannot be compared; leave out what was not measured"):
        paired({3: number}, {1: 0.5})
    with pytest.raises(ValueError, match="has no mean"):
        mean_of([number, 1.0])


@given(left=BY_SEED, right=BY_SEED)
def test_swapping_the_arms_turns_the_sign(left, right):
    one, other = paired(left, right), paired(right, left)
    assert one.n == other.n == len(left.keys() & right.keys())
    assert (one.higher, one.lower, one.p) == (other.lower, other.higher, other.p)
    if one.mean.value is not None:
        assert one.mean.value == pytest.approx(-other.mean.value)


@given(left=BY_SEED, seeds=st.sets(st.integers(0, 20)), shift=SHARES)
def test_a_constant_shift_is_found_without_doubt(left, seeds, shift):
    right = {seed: left.get(seed, 0.0) + shift for seed in seeds}
    found = paired(left, right)
    if found.n > 1:
        assert found.mean.value == pytest.approx(-shift, abs=1e-12)
        assert found.mean.half == pytest.approx(0, abs=1e-12)


@given(degrees=st.integers(1, 200), level=st.floats(0.01, 0.999))
def test_quantiles_grow_with_the_level_and_fall_with_the_degrees(degrees, level):
    assert t_quantile(degrees, level) >= t_quantile(degrees + 1, level) > 0
    assert t_quantile(degrees, level) > t_quantile(degrees, level / 2)


@given(values=st.lists(SHARES, min_size=2, max_size=12), factor=st.floats(0.1, 10))
def test_the_interval_scales_with_its_unit(values, factor):
    one, scaled = mean_of(values), mean_of([factor * value for value in values])
    assert scaled.half == pytest.approx(factor * one.half, abs=1e-12)
    low, high = one.interval
    assert low <= one.value <= high
