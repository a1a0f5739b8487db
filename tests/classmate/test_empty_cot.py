"""A row that shows nothing: its classmate reward is that of the worst thought, and nobody is asked about it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.classmate.rows import read_row
from tests.classmate.scored_rows import (
    ALONE,
    BINARY,
    HINT,
    LOGIT,
    RATING,
    STEP_WISE,
    SYCOPHANCY,
    answers,
    row,
    rules,
    views_row,
)
from verl.classmate.errors import ConfigError
from verl.classmate.metrics import row_numbers, step_metrics
from verl.classmate.outcome import Outcome
from verl.classmate.reward_scale import RewardScale
from verl.classmate.row import RowScores, ScoredRow, Verdict
from verl.classmate.scoring import score_row

FUSIONS = ("sum", "weighted_average", "base_plus_max")
RIGHT = Verdict(score=1.0)


def unshown(
    main: Verdict = RIGHT, scale: RewardScale = BINARY, outcome: Outcome = Outcome.empty_cot, **options
) -> ScoredRow:
    """A row that two classmates were to answer twice, and which could not be shown."""
    read = replace(read_row(samples=2), outcome=outcome, thoughts=())
    return score_row(read, main, answers([[[outcome] * 2] * 2]), rules([1.0, 1.0], scale, **options))


def scores(*given, **options) -> RowScores:
    return unshown(*given, **options).scores


@pytest.mark.parametrize(("scale", "main"), [(BINARY, 1.0), (HINT, 0.0), (RATING, 9.0), (SYCOPHANCY, 2.0)])
def test_it_is_the_lowest_score_of_the_scale(scale: RewardScale, main: float) -> None:
    for fusion in FUSIONS:
        empty = scores(Verdict(score=main), scale, reward_fusion=fusion, classmate_reward_weight=0.5)
        raw = scale.low if scale.direction == "maximize" else scale.high
        worst = row(main, [[raw] * 2] * 2, scale, reward_fusion=fusion, classmate_reward_weight=0.5)
        assert empty.classmate_valid
        assert empty.classmate_score == empty.classmate_reward == scale.lowest
        assert empty.final_reward == worst.final_reward


@given(answered=st.lists(st.floats(1, 10), min_size=2, max_size=2), weight=st.floats(0, 3))
def test_no_thought_is_worse(answered: list[float], weight: float) -> None:
    for scale in (RATING, SYCOPHANCY):
        main = 10.0 if scale is RATING else 1.0
        thought = row(main, [answered] * 2, scale, classmate_reward_weight=weight)
        assert scores(Verdict(score=main), scale, classmate_reward_weight=weight).final_reward <= thought.final_reward


@pytest.mark.parametrize(
    ("condition", "gamma"),
    [
        ("always", 1.0),
        ("no_classmate", 0.0),
        ("no_classmate_when_main_incorrect", 0.0),
        ("neg_classmate_when_main_incorrect", -1.0),
    ],
)
def test_the_condition_holds_as_ever(condition: str, gamma: float) -> None:
    wrong = scores(Verdict(score=2.0), RATING, use_classmate_main_cond=condition)
    assert (wrong.gamma, wrong.classmate_valid, wrong.classmate_reward) == (gamma, True, gamma * 1.0)
    unscored = scores(Verdict(outcome=Outcome.judge_error), RATING, use_classmate_main_cond=condition)
    assert not unscored.classmate_valid


def test_where_scores_are_compared_it_adds_nothing() -> None:
    harmful = views_row([[[0.0]], [[1.0]]], classmate_reward_type=ALONE)
    empty = scores(classmate_reward_type=ALONE)
    assert (empty.classmate_valid, empty.classmate_reward, empty.final_reward) == (True, 0.0, 1.0)
    assert harmful.classmate_reward < empty.classmate_reward
    assert scores(scale=LOGIT, classmate_reward_type=ALONE).classmate_reward == 0.0, "no lowest score is needed"


def test_step_by_step_it_is_one_segment_without_use() -> None:
    empty = scores(classmate_reward_type=STEP_WISE, step_wise_segments=3)
    np.testing.assert_equal(empty.segment_rewards_K, [0.0, math.nan, math.nan])
    assert empty.classmate_reward == 0.0
    excluded = scores(classmate_reward_type=STEP_WISE, empty_cot_score="exclude")
    np.testing.assert_equal(excluded.segment_rewards_K, [math.nan, math.nan])


@pytest.mark.parametrize(
    "options",
    [{"empty_cot_score": "exclude"}, {"outcome": Outcome.unfinished_cot}, {"outcome": Outcome.too_long}],
    ids=str,
)
def test_what_has_no_classmate_reward(options: dict) -> None:
    for condition in ("always", "no_classmate"):
        excluded = unshown(use_classmate_main_cond=condition, **options)
        assert (excluded.scores.classmate_valid, excluded.scores.final_reward) == (False, 1.0)
        assert not excluded.mask.any()
        assert math.isnan(row_numbers(excluded)["classmate_scores"])


def test_a_baseline_has_none_either() -> None:
    read = replace(read_row(samples=0), outcome=Outcome.empty_cot)
    alone = score_row(read, Verdict(score=1.0), [], rules([])).scores
    assert (alone.classmate_valid, alone.final_reward) == (False, 1.0)


def test_a_verifier_without_a_lowest_score_is_told() -> None:
    with pytest.raises(ConfigError, match=r"empty_cot_score: lowest needs a verifier with a lowest score; write excl"):
        unshown(scale=LOGIT)
    assert not scores(scale=LOGIT, empty_cot_score="exclude").classmate_valid


def test_it_is_counted_and_no_classmate_is_charged_with_it() -> None:
    info = row_numbers(unshown(scale=RATING, main=Verdict(score=9.0)))
    assert (info["outcome_empty_cot"], info["empty_cot"], info["classmate_asked"]) == (4.0, 1.0, 0.0)
    assert (info["classmate_scores"], info["best_classmate_score"], info["avg_classmate_score"]) == (1.0, 1.0, 1.0)
    assert math.isnan(info["classmate_0_score"]), "it answered nothing"
    metrics = step_metrics([info])
    assert (metrics["classmate/outcome/empty_cot"], metrics["classmate/missing_ratio"]) == (4.0, 0.0)
    assert metrics["critic/empty_cot/mean"] == 1.0
