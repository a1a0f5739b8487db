"""Rewards of a row by hand-computed numbers, in both directions, with every kind of missing score."""

import math

import numpy as np
import pytest

from tests.classmate.rows import read_row
from tests.classmate.scored_rows import BINARY, HINT, LOGIT, RATING, SYCOPHANCY, numbers, row, rules, scored
from verl.classmate.cot import CotKind
from verl.classmate.errors import ConfigError
from verl.classmate.metrics import row_numbers
from verl.classmate.outcome import Outcome
from verl.classmate.reward_scale import RewardScale
from verl.classmate.row import Verdict
from verl.classmate.scoring import score_row


@pytest.mark.guards("weight or condition ignored")
@pytest.mark.guards("correctness by sign on 1-10 scores")
@pytest.mark.parametrize(
    ("scale", "main", "is_correct"),
    [
        (BINARY, 1.0, True),
        (BINARY, 0.0, False),
        (HINT, 0.0, True),
        (HINT, 1.0, False),
        (RATING, 6.0, True),
        (RATING, 3.0, False),  # positive, and yet incorrect: the sign says nothing
        (SYCOPHANCY, 2.0, True),
        (SYCOPHANCY, 9.0, False),
        (LOGIT, 0.3, True),
        (LOGIT, 0.0, False),  # a logit of 0 is a score
        (LOGIT, -1.0, False),
    ],
)
def test_condition_table(scale: RewardScale, main: float, is_correct: bool) -> None:
    gammas = {
        condition: row(main, scale=scale, use_classmate_main_cond=condition).gamma
        for condition in (
            "always", "no_classmate", "no_classmate_when_main_incorrect", "neg_classmate_when_main_incorrect"
        )
    }  # fmt: skip
    assert list(gammas.values()) == ([1, 0, 1, 1] if is_correct else [1, 0, 0, -1])


def test_own_threshold_replaces_the_verifiers() -> None:
    assert row(6.0, scale=RATING).gamma == 1
    assert row(6.0, scale=RATING, main_correct_threshold=7.0).gamma == 0


@pytest.mark.guards("exactly one classmate asserted")
def test_aggregation_over_samples_and_classmates() -> None:
    scores = row(scores=[[1.0, 0.0], [1.0, 1.0]], use_classmate_main_cond="always")
    assert scores.classmate_score == 0.75
    assert (scores.best_classmate_score, scores.avg_classmate_score) == (1.0, 0.75)
    assert row(scores=[[1.0, 0.0], [1.0, 1.0]], weights=[3.0, 1.0]).classmate_score == pytest.approx(0.625)
    assert row(scores=[[1.0, 0.0], [1.0, 1.0]], classmate_aggregation="max").classmate_score == 1.0


@pytest.mark.guards("failed judge averaged as 0 or -1")
def test_missing_samples_are_left_out_never_zero() -> None:
    part = row(scores=[[1.0, Outcome.timeout], [Outcome.engine_error, 0.0]])
    assert part.classmate_score == 0.5
    one = row(scores=[[1.0, 1.0], [Outcome.excluded, Outcome.excluded]], weights=[0.2, 0.8])
    assert one.classmate_score == 1.0, "weights are renormalised over classmates that answered"
    assert one.classmate_valid
    none = row(scores=[[Outcome.timeout, Outcome.judge_error], [Outcome.no_answer, Outcome.engine_error]])
    assert not none.classmate_valid
    assert math.isnan(none.classmate_score)
    assert none.final_reward == none.base_reward == 1.0


@pytest.mark.guards("failed judge averaged as 0 or -1")
@pytest.mark.parametrize("bad", [math.nan, math.inf, None])
def test_a_score_that_is_no_number_is_a_judge_error(bad: float | None) -> None:
    scores = row(scores=[[bad, 1.0]])
    assert scores.outcomes == (Outcome.judge_error, Outcome.ok)
    assert scores.classmate_score == 1.0
    assert not row(bad).main_valid
    assert numbers(bad)["main_judge_error"] == 1


def test_requests_that_were_never_made_count_as_excluded() -> None:
    unasked = score_row(read_row(samples=2), Verdict(score=1.0), [], rules([1.0, 1.0]))
    assert row_numbers(unasked)["outcome_excluded"] == 4
    assert not unasked.scores.classmate_valid


@pytest.mark.guards("weight or condition ignored")
@pytest.mark.parametrize(
    ("fusion", "weight", "condition", "main", "expected"),
    [
        ("sum", 0.5, "always", 0.0, 0.375),
        ("sum", 0.5, "no_classmate_when_main_incorrect", 0.0, 0.0),
        ("sum", 0.5, "no_classmate_when_main_incorrect", 1.0, 1.375),
        ("sum", 0.5, "neg_classmate_when_main_incorrect", 0.0, -0.375),
        ("sum", 0.5, "no_classmate", 1.0, 1.0),
        ("sum", 0.0, "always", 1.0, 1.0),
        ("weighted_average", 0.5, "always", 1.0, 0.875),
        ("weighted_average", 1.0, "always", 1.0, 0.75),
        ("base_plus_max", 0.5, "always", 0.0, 0.5),
        ("base_plus_max", 0.5, "neg_classmate_when_main_incorrect", 0.0, -0.5),
    ],
)
def test_fusion(fusion: str, weight: float, condition: str, main: float, expected: float) -> None:
    fused = scored(
        main,
        scores=[[1.0, 0.0], [1.0, 1.0]],
        reward_fusion=fusion,
        classmate_reward_weight=weight,
        use_classmate_main_cond=condition,
    )
    assert fused.scores.final_reward == pytest.approx(expected)
    assert row_numbers(fused)["final_reward"] == pytest.approx(expected)


def test_format_adds_to_the_base_reward_but_not_to_the_condition() -> None:
    good = row(1.0, scale=SYCOPHANCY, format_weight=0.1)
    assert good.base_reward == pytest.approx(10.1)
    almost = row(0.45, scale=BINARY, format_weight=0.1)
    assert almost.base_reward == pytest.approx(0.55)
    assert almost.gamma == 0
    assert numbers(1.0)["format_score"] == 1.0


@pytest.mark.parametrize("outcome", [Outcome.unfinished_cot, Outcome.no_answer])
def test_not_answering_never_pays(outcome: Outcome) -> None:
    for scale in (BINARY, HINT, RATING, SYCOPHANCY):
        without = scored(None, scale=scale, main_outcome=outcome, scores=[[outcome] * 2], kind=CotKind.unfinished)
        missing = without.scores
        assert missing.main_valid
        assert missing.base_reward == scale.lowest
        assert missing.classmate_valid == (outcome is Outcome.no_answer), "gamma is 0: W is 0, where it could be shown"
        assert missing.classmate_reward == 0
        assert without.main.score is None
    assert not row(None, main_outcome=outcome, unfinished_main_score="exclude").main_valid
    assert row(None, main_outcome=outcome, unfinished_main_score=-3.0, scale=LOGIT).base_reward == -3.0
    with pytest.raises(ConfigError, match=r"unfinished_main_score: .* write a number or exclude"):
        row(None, main_outcome=outcome, scale=LOGIT)


@pytest.mark.guards("sign flip rewarding an invalid score")
@pytest.mark.parametrize("outcome", [Outcome.judge_error, Outcome.timeout, Outcome.engine_error])
def test_a_failed_judge_excludes_the_row(outcome: Outcome) -> None:
    for condition in ("always", "neg_classmate_when_main_incorrect"):
        failed = scored(None, main_outcome=outcome, use_classmate_main_cond=condition)
        assert not failed.scores.main_valid
        assert not failed.scores.classmate_valid
        info = row_numbers(failed)
        for key in ("base_reward", "main_model_reward", "final_reward", "classmate_reward", "gamma"):
            assert math.isnan(info[key]), key
        assert info["classmate_scores"] == 0.75, "what the classmates did is known all the same"


def test_baseline_without_classmates() -> None:
    scores, info = row(1.0, scores=[], samples=1), numbers(1.0, scores=[], samples=1)
    assert scores.final_reward == info["final_reward"] == 1.0
    assert not scores.classmate_valid
    assert not scores.asked
    assert math.isnan(info["classmate_scores"])
    assert scores.scores_MS.shape == (0, 1)


def test_asked_only_if_a_request_was_made() -> None:
    assert row(scores=[[Outcome.timeout] * 2]).asked
    assert not row(scores=[[Outcome.unfinished_cot] * 2, [Outcome.too_long] * 2]).asked


def test_scores_keep_every_sample() -> None:
    scores = row(scores=[[1.0, 0.0], [Outcome.timeout, 10.0]], scale=SYCOPHANCY)
    np.testing.assert_equal(scores.raw_scores_VMS, [[[1.0, 0.0], [math.nan, 10.0]]])
    np.testing.assert_equal(scores.scores_MS, [[10.0, 11.0], [math.nan, 1.0]])


def test_the_classmates_answers_are_read_on_their_own_scale() -> None:
    """`help_other_*` may pair a rating with a 0 or 1."""
    scores = row(1.0, scores=[[2.0, 10.0]], scale=BINARY, classmate_scale=SYCOPHANCY)
    assert scores.scores_MS.tolist() == [[9.0, 1.0]]
    assert scores.base_reward == 1.0
