"""A row's numbers and a step's metrics: what rows count in what, and under which names."""

import math

import pytest

from tests.classmate.rows import asked, read_row
from tests.classmate.scored_rows import STEP_WISE, numbers, rules, scored, views_numbers
from verl.classmate.cot import CotKind
from verl.classmate.metrics import main_model_lengths, row_numbers, step_metrics
from verl.classmate.outcome import Outcome
from verl.classmate.row import Continuation, Verdict
from verl.classmate.scoring import score_row


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
        "response_length/clip_ratio": 0.25,
        "response_length_non_aborted/max": 4.0,
        "response_length/cot/mean": 2.0,
    }
    found = main_model_lengths(upstream, [0, 4, 5, 9], limit=5)
    assert found["response_length/main_model/mean"] == 3.0
    assert found["response_length/main_model_non_aborted/max"] == 4.0
    assert found["response_length/clip_ratio"] == found["response_length/main_model/clip_ratio"] == 0.5
    assert found["response_length_non_aborted/clip_ratio"] == pytest.approx(2 / 3)
    assert "response_length/main_model/min" not in found


def test_no_response_at_the_limit_is_no_clipped_one() -> None:
    upstream = {"response_length/clip_ratio": 0.5}
    assert main_model_lengths(upstream, [3, 4], limit=64)["response_length/clip_ratio"] == 0.0
    assert "response_length_non_aborted/clip_ratio" not in main_model_lengths({}, [0, 0], limit=64)


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


def test_rows_have_the_same_numbers_by_name() -> None:
    rows = [
        scored(),
        scored(None, main_outcome=Outcome.judge_error),
        scored(
            None, main_outcome=Outcome.unfinished_cot, scores=[[Outcome.unfinished_cot] * 2] * 2, kind=CotKind.no_marker
        ),
        scored(scores=[[Outcome.timeout] * 2] * 2),
    ]
    keys = list(row_numbers(rows[0]))
    for one in rows:
        info = row_numbers(one)
        assert list(info) == keys
        assert all(type(value) is float for value in info.values())
    assert {
        "base_reward", "classmate_scores", "best_classmate_score", "avg_classmate_score", "main_model_reward",
        "main_model_score", "classmate_reward", "weighted_classmate_reward", "final_reward", "gamma",
        "classmate_response_length", "classmate_max_tokens_len", "main_cot_length", "main_output_length",
        "classmate_0_score", "classmate_1_score",
        *(f"outcome_{outcome}" for outcome in Outcome),
    } <= set(keys)  # fmt: skip


def test_values_of_a_row_s_numbers() -> None:
    info = numbers(
        0.0, scores=[[1.0, 0.0], [1.0, Outcome.judge_error]], classmate_reward_weight=0.5,
        use_classmate_main_cond="neg_classmate_when_main_incorrect",
    )  # fmt: skip
    assert info["classmate_scores"] == info["avg_classmate_score"] == 0.75
    assert info["classmate_reward"] == -0.75
    assert info["weighted_classmate_reward"] == -0.375
    assert (info["classmate_0_score"], info["classmate_1_score"]) == (0.5, 1.0)
    assert (info["outcome_ok"], info["outcome_judge_error"]) == (3.0, 1.0)
    assert (info["main_cot_length"], info["main_output_length"]) == (5.0, 2.0)
    assert info["classmate_response_length"] == pytest.approx((10 + 11 + 20 + 21) / 4)
    assert info["classmate_max_tokens_len"] == 21.0


def test_failures_of_every_view_are_counted_under_the_same_keys() -> None:
    full = views_numbers([[[1.0]], [[Outcome.timeout]], [[0.5]]], classmate_reward_type=STEP_WISE)
    assert (full["outcome_ok"], full["outcome_timeout"]) == (2.0, 1.0)
    unasked = row_numbers(score_row(read_row(), Verdict(score=1.0), [], rules([1.0], classmate_reward_type=STEP_WISE)))
    assert list(unasked) == list(full)
    assert math.isnan(unasked["classmate_alone_score"])


def test_share_of_answers_that_were_cut_short() -> None:
    reasons = ["length", "stop", "stop", None]
    outcomes = [Outcome.ok, Outcome.ok, Outcome.no_answer, Outcome.timeout]
    items = [
        Continuation(sample=i % 2, outcome=outcome, score=1.0, finish_reason=reason)
        for i, (outcome, reason) in enumerate(zip(outcomes, reasons, strict=True))
    ]
    cut = score_row(read_row(samples=2), Verdict(score=1.0), [asked(items[:2]), asked(items[2:])], rules([1.0, 1.0]))
    info = row_numbers(cut)
    assert info["classmate_clip_ratio"] == pytest.approx(1 / 3), "an answer that never came has no length"
    assert math.isnan(numbers(scores=[])["classmate_clip_ratio"])
