"""Lengths, repetitions, and parts of unlike scale."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl.reasoning.shaping import cosine_length, decoupled_sum, repetition, soft_overlong


@given(st.booleans(), st.integers(0, 300), st.integers(0, 300))
def test_the_cosine_falls_for_right_and_rises_for_wrong(correct: bool, one: int, other: int) -> None:
    short, long = (cosine_length(correct=correct, length=n, max_length=200) for n in sorted((one, other)))
    assert (short >= long - 1e-12) if correct else (short <= long + 1e-12)
    assert (0.5 <= short <= 1) if correct else (-1 <= short <= -0.5)


def test_lengths_by_hand() -> None:
    ends = [cosine_length(correct=c, length=n, max_length=10) for c in (True, False) for n in (0, 5, 10, 99)]
    assert ends == pytest.approx([1.0, 0.75, 0.5, 0.5, -1.0, -0.75, -0.5, -0.5])
    assert [soft_overlong(length=n, max_length=100, buffer=20) for n in (0, 80, 90, 100, 999)] == [0, 0, -0.5, -1, -1]
    assert soft_overlong(length=100, max_length=100, buffer=0) == 0.0
    assert soft_overlong(length=101, max_length=100, buffer=0) == -1.0
    for call in (
        lambda: cosine_length(correct=True, length=1, max_length=0),
        lambda: soft_overlong(length=1, max_length=5, buffer=6),
        lambda: repetition("a", n=0),
    ):
        with pytest.raises(ValueError, match="write"):
            call()


def test_repetition_by_hand() -> None:
    assert repetition("a b c d a b c d", n=4) == pytest.approx(1 / 5)
    assert repetition("no " * 100, n=4) == pytest.approx(1 - 1 / 97)
    assert repetition("a b c", n=4) == repetition("") == 0.0


@given(st.lists(st.tuples(st.floats(-5, 5), st.one_of(st.none(), st.floats(-500, 500))), min_size=1, max_size=12))
def test_parts_of_unlike_scale_weigh_the_same(rows: list[tuple[float, float | None]]) -> None:
    sums = decoupled_sum([{"a": a, "b": b} for a, b in rows], {"a": 1.0, "b": 2.0})
    expected = []
    for a, b in rows:
        total = 0.0
        for value, weight, column in ((a, 1.0, [x for x, _ in rows]), (b, 2.0, [y for _, y in rows if y is not None])):
            if value is not None:
                total += weight * (value - statistics.fmean(column)) / (statistics.pstdev(column) + 1e-6)
        expected.append(total)
    assert sums == pytest.approx(expected, rel=1e-6, abs=1e-5)
    assert math.fsum(one or 0.0 for one in sums) == pytest.approx(0, abs=1e-5)


def test_a_solution_without_parts_has_no_sum() -> None:
    assert decoupled_sum([{"a": 1.0}, {"a": None}, {}], {"a": 1.0}) == [0.0, None, None]
