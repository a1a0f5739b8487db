"""Tests and intervals of shares: values from the literature and by hand, and what holds for any counts."""

import math
from fractions import Fraction
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl.utils.significance import fewer_right, percentiles, sign_test, wilson


def test_eight_of_eight_signs() -> None:
    assert sign_test(8, 0) == 0.0078125
    assert sign_test(7, 1) == 0.0703125
    assert sign_test(5, 0) == 0.0625
    assert sign_test(0, 0) == 1


@settings(deadline=None)
@given(higher=st.integers(0, 5), lower=st.integers(0, 5))
def test_the_sign_test_counts_all_ways(higher: int, lower: int) -> None:
    n = higher + lower
    ways = [sum(way) for way in product((0, 1), repeat=n)]
    as_uneven = sum(abs(2 * up - n) >= abs(higher - lower) for up in ways)
    assert sign_test(higher, lower) == float(Fraction(as_uneven, len(ways)))


def test_the_lady_tasting_tea() -> None:
    # Four cups of eight, all four right: one way of 70 (R. A. Fisher, The Design of Experiments, 1935).
    assert fewer_right(0, 4, 4, 4) == pytest.approx(1 / 70)
    assert fewer_right(1, 4, 3, 4) == pytest.approx(17 / 70)
    assert fewer_right(4, 4, 0, 4) == 1


@settings(deadline=None)
@given(data=st.data(), of=st.integers(1, 4), of_other=st.integers(1, 4))
def test_fishers_test_counts_all_ways(data: st.DataObject, of: int, of_other: int) -> None:
    right, other = data.draw(st.integers(0, of)), data.draw(st.integers(0, of_other))
    ways = [sum(cup < of for cup in way) for way in combinations(range(of + of_other), right + other)]
    assert fewer_right(right, of, other, of_other) == pytest.approx(sum(way <= right for way in ways) / len(ways))


@pytest.mark.parametrize("counts", [(2, 1, 0, 1), (-1, 1, 0, 1), (0, 0, 0, 1), (0, 1, 2, 1), (0, 1, 0, 0)])
def test_counts_are_counts(counts: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="are no counts; write right <= all, all > 0"):
        fewer_right(*counts)


def test_wilsons_interval() -> None:
    # R. G. Newcombe, Statistics in Medicine 17 (1998), table I: 81/263, 15/148, 0/20, 1/29.
    for right, n, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        assert wilson(right, n) == pytest.approx((low, high), abs=5e-5)
    assert wilson(0, 0) is None
    for right, n in ((2, 1), (-1, 1), (math.nan, 1)):
        with pytest.raises(ValueError, match="is no share; write a count between 0 and"):
            wilson(right, n)


@settings(deadline=None)
@given(right=st.floats(0, 50), more=st.floats(0, 50), level=st.floats(0.5, 0.99))
def test_wilsons_interval_holds_the_share(right: float, more: float, level: float) -> None:
    found = wilson(right, right + more, level)
    if found is None:
        assert right + more == 0
        return
    low, high = found
    assert 0 <= low <= right / (right + more) <= high <= 1
    wider = wilson(right, right + more, (1 + level) / 2)
    assert wider is not None
    assert wider[0] <= low + 1e-9
    assert wider[1] >= high - 1e-9


def test_percentiles() -> None:
    # Places 1 and 39 of 0..40.
    assert percentiles(range(40, -1, -1)) == pytest.approx((1, 39))
    assert percentiles([0.0, 1.0], 0.5) == (0.25, 0.75)
    assert percentiles([7.0]) == (7.0, 7.0)
