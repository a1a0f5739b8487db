"""A step's metrics: what rows count in what, and under which names."""

import math

import pytest

from tests.classmate.test_scoring import row
from verl.classmate.scoring import Outcome
from verl.trainer.ppo.row_metrics import main_model_lengths, row_metrics


def test_a_row_whose_verifier_failed_is_no_zero_in_any_mean() -> None:
    rows = [
        row(main=1.0, scores=[[1.0]], samples=1),
        row(main=1.0, scores=[[None]], samples=1),
        row(main=None, main_outcome=Outcome.judge_error, scores=[[1.0]], samples=1),
    ]
    metrics = row_metrics([one.extra_info() for one in rows])
    assert (metrics["critic/score/mean"], metrics["critic/score/min"]) == (1.5, 1.0)
    assert metrics["critic/rewards/mean"] == metrics["critic/score/mean"]
    assert metrics["critic/score/std"] == pytest.approx(0.5)
    assert metrics["critic/base_reward/mean"] == 1.0
    assert metrics["critic/final_reward/mean"] == 2.0, "of rows with all of its parts"


def test_lengths_of_all_classmates_and_of_each() -> None:
    metrics = row_metrics(
        [{**row(scores=[[1.0]], samples=1).extra_info(), "classmate_0_clip_ratio": x} for x in (0.0, 1.0, math.nan)]
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
