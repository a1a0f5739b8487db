"""A step's metrics: what rows count in what, and under which names."""

import math

import pytest

from tests.classmate.test_scoring import scored
from verl.classmate.cot import CotKind
from verl.classmate.metrics import main_model_lengths, row_numbers, step_metrics
from verl.classmate.outcome import Outcome


def test_a_row_whose_verifier_failed_is_no_zero_in_any_mean() -> None:
    rows = [
        scored(main=1.0, scores=[[1.0]], samples=1),
        scored(main=1.0, scores=[[None]], samples=1),
        scored(main=None, main_outcome=Outcome.judge_error, scores=[[1.0]], samples=1),
    ]
    metrics = step_metrics([row_numbers(one) for one in rows])
    assert (metrics["critic/score/mean"], metrics["critic/score/min"]) == (1.5, 1.0)
    assert metrics["critic/rewards/mean"] == metrics["critic/score/mean"]
    assert metrics["critic/score/std"] == pytest.approx(0.5)
    assert metrics["critic/base_reward/mean"] == 1.0
    assert metrics["critic/final_reward/mean"] == 2.0, "of rows with all of its parts"


def test_lengths_of_all_classmates_and_of_each() -> None:
    metrics = step_metrics(
        [{**row_numbers(scored(scores=[[1.0]], samples=1)), "classmate_0_clip_ratio": x} for x in (0.0, 1.0, math.nan)]
    )
    assert metrics["response_length/classmate_0/clip_ratio"] == 0.5
    assert metrics["response_length/classmate_0/mean"] == metrics["response_length/classmate/mean"]
    assert metrics["response_length/classmate/clip_ratio"] == 0.0
    assert "response_length/cot/max" in metrics


def test_the_policys_lengths_have_the_names_of_the_specification() -> None:
    upstream = {
        "response_length/mean": 3.0,
        "response_length_non_aborted/clip_ratio": 0.5,
        "response_length/cot/mean": 2.0,
    }
    assert main_model_lengths(upstream) == {
        "response_length/main_model/mean": 3.0,
        "response_length/main_model_non_aborted/clip_ratio": 0.5,
    }


def test_metrics_count_failures_and_skip_them_in_means() -> None:
    rows = [
        scored(1.0, scores=[[1.0, 1.0]]),
        scored(0.0, scores=[[Outcome.timeout, Outcome.timeout]]),
        scored(None, scores=[[1.0, 0.0]], main_outcome=Outcome.judge_error),
        scored(
            None, scores=[[Outcome.unfinished_cot] * 2], main_outcome=Outcome.unfinished_cot, kind=CotKind.unfinished
        ),
    ]  # fmt: skip
    metrics = step_metrics([row_numbers(one) for one in rows])
    assert metrics["classmate/valid_ratio"] == 0.5
    assert metrics["classmate/missing_ratio"] == 0.5
    assert metrics["classmate/failed_judge_ratio"] == 0.25
    assert metrics["classmate/unfinished_cot_ratio"] == 0.25
    assert metrics["classmate/no_marker_ratio"] == 0.0
    assert metrics["classmate/gamma_mean"] == pytest.approx(1 / 3)
    assert metrics["classmate/outcome/timeout"] == 2
    assert metrics["critic/base_reward/mean"] == pytest.approx(1 / 3)
    assert metrics["critic/classmate_reward/mean"] == 0.5, "a row with gamma 0 is valid, W is 0"
    assert metrics["critic/classmate_scores/mean"] == 0.75
    assert not any(math.isnan(value) for value in metrics.values())
    assert step_metrics([]) == {}
