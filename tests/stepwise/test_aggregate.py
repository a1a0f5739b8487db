"""One number of the scores of steps: identities, bounds, and what is not scored."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl.stepwise.aggregate import AGGREGATIONS, aggregate, default_aggregation

SCORES = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def test_by_hand() -> None:
    scores = [0.5, 0.2, 0.8]
    assert aggregate(scores, "min") == 0.2
    assert aggregate(scores, "prod") == pytest.approx(0.08)
    assert aggregate(scores, "last") == 0.8
    assert aggregate(scores, "mean") == pytest.approx(0.5)
    assert aggregate(scores, "geo") == pytest.approx(0.08 ** (1 / 3), rel=1e-4)
    assert aggregate(scores, "first_error_pos") == pytest.approx(1 / 3)
    weights = [math.exp(-score / 0.5) for score in scores]
    soft = sum(w * s for w, s in zip(weights, scores, strict=True)) / sum(weights)
    assert aggregate(scores, "softmin", temperature=0.5) == pytest.approx(soft)


@given(SCORES)
def test_all_lie_between_nothing_and_all(scores: list[float]) -> None:
    assert all(0 <= (aggregate(scores, how) or 0.0) <= 1 for how in AGGREGATIONS)


@given(SCORES)
def test_softmin_is_between_min_and_mean(scores: list[float]) -> None:
    low, mean = min(scores), sum(scores) / len(scores)
    assert low - 1e-9 <= (aggregate(scores, "softmin", temperature=0.3) or 0) <= mean + 1e-9
    assert aggregate(scores, "softmin", temperature=1e-4) == pytest.approx(low, abs=1e-2)
    assert aggregate(scores, "softmin", temperature=1e6) == pytest.approx(mean, abs=1e-4)


@given(st.floats(0, 1))
def test_one_step_is_itself(score: float) -> None:
    for how in ("min", "prod", "last", "mean", "softmin"):
        assert aggregate([score], how) == pytest.approx(score)


@given(SCORES, st.floats(0, 1))
def test_a_worse_step_never_helps(scores: list[float], low: float) -> None:
    worse = [min(scores[0], low), *scores[1:]]
    for how in ("min", "prod", "mean", "geo"):
        assert (aggregate(worse, how) or 0) <= (aggregate(scores, how) or 0) + 1e-9


def test_what_is_not_scored_is_no_zero() -> None:
    assert aggregate([None, 0.4, None], "min") == aggregate([None, 0.4, None], "prod") == 0.4
    assert aggregate([None], "min") is None
    assert aggregate([], "mean") is None


def test_mistakes_say_what_to_write() -> None:
    with pytest.raises(ValueError, match="write one of min, prod"):
        aggregate([0.5], "median")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"write 0\.1"):
        aggregate([0.5], "softmin", temperature=0)


def test_labels_decide_the_default() -> None:
    assert (default_aggregation("mc"), default_aggregation("consensus")) == ("last", "prod")
