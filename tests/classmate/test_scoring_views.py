"""Rewards of rows that were shown in several views: what a thought adds, each segment's part of it, and agreement."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.classmate.rows import read_row
from tests.classmate.scored_rows import ALONE, STEP_WISE, answers, rules, views_row, views_scored
from verl.classmate.metrics import row_numbers
from verl.classmate.outcome import Outcome
from verl.classmate.row import Verdict
from verl.classmate.scoring import score_row


def test_what_the_question_alone_reaches_is_subtracted() -> None:
    with_and_without = views_scored([[[1.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 1.0]]], classmate_reward_type=ALONE)
    scores = with_and_without.scores
    assert scores.classmate_score == pytest.approx(0.75 - 0.75)
    assert (scores.best_classmate_score, scores.avg_classmate_score) == (0.5, 0.0)
    info = row_numbers(with_and_without)
    assert (info["classmate_with_cot_score"], info["classmate_alone_score"]) == (0.75, 0.75)
    harmful = views_row([[[0.0]], [[1.0]]], classmate_reward_type=ALONE)
    assert (harmful.classmate_score, harmful.final_reward) == (-1.0, 0.0)
    assert harmful.classmate_valid


def test_a_difference_needs_both_of_its_sides() -> None:
    """A classmate that failed in one view is left out of the difference, whatever it scored in the other."""
    one_side = views_row([[[1.0], [1.0]], [[Outcome.timeout], [0.5]]], classmate_reward_type=ALONE)
    assert one_side.classmate_score == 0.5
    for broken in ([[[1.0]], [[Outcome.timeout]]], [[[Outcome.no_answer]], [[1.0]]]):
        missing = views_row(broken, classmate_reward_type=ALONE)
        assert not missing.classmate_valid
        assert missing.final_reward == missing.base_reward == 1.0


def test_the_best_of_each_view_is_compared() -> None:
    """C' = C(with) - C(alone), each with the best classmate."""
    scores = views_row([[[1.0], [0.0]], [[0.0], [0.75]]], classmate_reward_type=ALONE, classmate_aggregation="max")
    assert scores.classmate_score == 0.25
    assert scores.best_classmate_score == 1.0


def test_each_segment_gets_what_it_added() -> None:
    """Views from the whole prefix down to the question alone; segments from the first one up."""
    scores = views_row([[[1.0]], [[0.25]], [[0.5]]], classmate_reward_type=STEP_WISE, step_wise_segments=2)
    assert scores.segment_rewards_K.tolist() == [-0.25, 0.75]
    assert scores.classmate_reward == 0.5
    turned = views_row([[[1.0]], [[0.25]], [[0.5]]], classmate_reward_type=STEP_WISE, main=0.0,
                       use_classmate_main_cond="neg_classmate_when_main_incorrect")  # fmt: skip
    assert turned.segment_rewards_K.tolist() == [0.25, -0.75], "the condition is the segments' too"
    fewer = views_row([[[1.0]], [[0.5]]], classmate_reward_type=STEP_WISE, step_wise_segments=3)
    np.testing.assert_equal(fewer.segment_rewards_K, [0.5, math.nan, math.nan])
    assert views_row([[[1.0]]]).segment_rewards_K.shape == (0,)


def test_a_segment_whose_view_failed_is_missing() -> None:
    scores = views_row([[[1.0]], [[Outcome.timeout]], [[0.5]]], classmate_reward_type=STEP_WISE)
    np.testing.assert_equal(scores.segment_rewards_K, [math.nan, math.nan])
    assert scores.classmate_reward == 0.5, "whole and nothing were answered"
    scores = views_row([[[Outcome.timeout]], [[1.0]], [[0.5]]], classmate_reward_type=STEP_WISE)
    np.testing.assert_equal(scores.segment_rewards_K, [math.nan, math.nan])
    assert not scores.classmate_valid


@given(data=st.data(), m=st.integers(1, 3), s=st.integers(1, 3), k=st.integers(1, 4),
       how=st.sampled_from(["mean", "max"]))  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_segments_sum_to_the_whole(data: st.DataObject, m: int, s: int, k: int, how: str) -> None:
    """sum_k u_k = C(prefix_K) - C(prefix_0), if every answer is valid, whatever the weights."""
    number = st.integers(0, 4).map(lambda quarters: quarters / 4)
    scores_VMS = data.draw(st.lists(st.lists(st.lists(number, min_size=s, max_size=s), min_size=m, max_size=m),
                                    min_size=k + 1, max_size=k + 1))  # fmt: skip
    weights = data.draw(st.lists(st.integers(1, 5).map(float), min_size=m, max_size=m))
    of_run = rules(
        weights, classmate_reward_type=STEP_WISE, step_wise_segments=k, classmate_aggregation=how,
        use_classmate_main_cond="always",
    )  # fmt: skip
    read = read_row(samples=s, views=k + 1)
    scores = score_row(read, Verdict(score=1.0), answers(scores_VMS), of_run).scores
    assert scores.segment_rewards_K.sum() == pytest.approx(scores.classmate_score, abs=1e-9)
    means_VM = np.array(scores_VMS).mean(-1)
    totals = means_VM.max(-1) if how == "max" else np.average(means_VM, axis=-1, weights=weights)
    assert scores.classmate_score == pytest.approx(totals[0] - totals[-1], abs=1e-9)


@pytest.mark.guards("undefined variable with consistency off")
def test_no_condition_gates_the_consistency_component() -> None:
    options = {"add_consistency_reward": True, "consistency_reward_weight": 0.5}
    options["use_classmate_main_cond"] = "no_classmate_when_main_incorrect"
    agreeing = views_scored([[[1.0, 0.0]], [[1.0, 1.0]]], agreement_MS=[[1.0, 0.0]], main=0.0,
                            classmate_reward_type=ALONE, **options)  # fmt: skip
    scores = agreeing.scores
    assert (scores.consistency_reward, scores.consistency_valid, scores.classmate_reward) == (0.5, True, 0.0)
    assert scores.final_reward == 0.25
    assert row_numbers(agreeing)["consistency_reward"] == 0.5
    nobody = views_row([[[1.0, 0.0]]], **options)
    assert (nobody.consistency_reward, nobody.consistency_valid, nobody.final_reward) == (0.0, False, 1.5)
    off = views_scored([[[1.0]]], agreement_MS=[[1.0]])
    assert (off.scores.consistency_valid, off.scores.final_reward) == (False, 2.0)
    assert "consistency_reward" not in row_numbers(off)
