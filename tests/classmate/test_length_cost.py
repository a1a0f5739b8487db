"""A cost of length: part of every r, of neither condition nor accuracy, and no reason not to answer."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.classmate.rows import answer_to, read_row
from tests.classmate.scored_rows import BINARY, HINT, RATING, SYCOPHANCY, numbers, row, rules, scored
from verl.classmate.cot import CotKind
from verl.classmate.metrics import row_numbers, step_metrics, validation_metrics
from verl.classmate.outcome import Outcome
from verl.classmate.reward_scale import RewardScale
from verl.classmate.row import RowScores, Verdict
from verl.classmate.scoring import score_row


def main_only(main: Verdict, tokens: int, scale: RewardScale = BINARY, *, turns: tuple = (), **options) -> RowScores:
    """The scores of a baseline's row with a response of so many tokens."""
    answer = answer_to(response_ids=list(range(tokens)), turns=turns)
    return score_row(replace(read_row(samples=0), answer=answer), main, [], rules([], scale, **options)).scores


def test_length_is_taken_off_r_and_seen_apart() -> None:
    costly = scored(1.0, format_weight=0.1, token_cost=0.02)  # of ten tokens
    assert costly.scores.base_reward == pytest.approx(1.1 - 0.2)
    assert costly.scores.final_reward == pytest.approx(1.1 - 0.2 + 0.75)
    info = row_numbers(costly)
    assert (info["main_model_score"], info["main_model_reward"]) == (1.0, 1.1)
    assert (info["base_reward"], info["length_cost"]) == pytest.approx((0.9, 0.2))
    average = row(1.0, token_cost=0.02, reward_fusion="weighted_average", classmate_reward_weight=0.5)
    assert average.final_reward == pytest.approx(0.5 * 0.8 + 0.5 * 0.75)


def test_accuracy_is_logged_without_it() -> None:
    info = [numbers(main, token_cost=0.03) for main in (1.0, 0.0)]
    validation = validation_metrics(["a", "a"], {name: [one[name] for one in info] for name in info[0]}, samples=1)
    assert validation["val-core/a/reward/mean@1"] == validation["val-core/a/main_model_reward/mean@1"] == 0.5
    assert validation["val-core/a/length_cost/mean@1"] == pytest.approx(0.3)
    assert validation["val-core/a/base_reward/mean@1"] == pytest.approx(0.2)
    metrics = step_metrics(info)
    assert metrics["critic/main_model_reward/mean"] == 0.5
    assert metrics["critic/length_cost/mean"] == pytest.approx(0.3)


def test_a_run_without_the_cost_has_no_such_number() -> None:
    assert "length_cost" not in numbers()


def test_whether_an_answer_is_correct_is_decided_without_it() -> None:
    right = row(1.0, token_cost=0.09)
    assert right.base_reward == pytest.approx(0.1)
    assert (right.main_correct, right.gamma, right.classmate_reward) == (True, 1.0, 0.75)
    assert row(6.0, scale=RATING, main_correct_threshold=6.0, token_cost=0.1).gamma == 1


@given(endless=st.integers(1, 64), short=st.integers(1, 64), token_cost=st.floats(0, 2))
def test_an_endless_thought_never_pays(endless: int, short: int, token_cost: float) -> None:
    """Against a wrong answer that is no longer, on any scale."""
    short = min(short, endless)
    for scale in (BINARY, HINT, RATING, SYCOPHANCY):
        worst = scale.low if scale.direction == "maximize" else scale.high
        wrong = main_only(Verdict(score=worst), short, scale, token_cost=token_cost)
        for outcome in (Outcome.unfinished_cot, Outcome.no_answer):
            missing = main_only(Verdict(outcome=outcome), endless, scale, token_cost=token_cost)
            assert missing.base_reward <= wrong.base_reward
            assert missing.base_reward == pytest.approx(scale.lowest - token_cost * endless)


@given(tokens=st.integers(1, 64), bonus=st.floats(0.001, 2))
def test_a_bonus_is_for_answers_alone(tokens: int, bonus: float) -> None:
    wrong = main_only(Verdict(score=0.0), tokens, token_cost=-bonus)
    assert (wrong.base_reward, wrong.length_cost) == pytest.approx((bonus * tokens, -bonus * tokens))
    assert wrong.main_correct is False
    for outcome in (Outcome.unfinished_cot, Outcome.no_answer):
        missing = main_only(Verdict(outcome=outcome), tokens, token_cost=-bonus)
        assert (missing.base_reward, missing.length_cost) == (0.0, 0.0)


def test_rows_without_a_reward_have_no_cost() -> None:
    for outcome, options in (
        (Outcome.judge_error, {}),
        (Outcome.unfinished_cot, {"unfinished_main_score": "exclude"}),
    ):
        nothing = scored(None, main_outcome=outcome, kind=CotKind.unfinished, token_cost=0.1, **options)
        assert (nothing.scores.main_valid, nothing.scores.known_base) == (False, None)
        assert math.isnan(row_numbers(nothing)["length_cost"])
        assert math.isnan(row_numbers(nothing)["main_model_reward"])


def test_what_tools_wrote_costs_nothing() -> None:
    alone = main_only(Verdict(score=1.0), 10, token_cost=0.05)
    with_tools = main_only(Verdict(score=1.0), 10, turns=((0, 3), (5, 7)), token_cost=0.05)
    assert (alone.base_reward, with_tools.base_reward) == pytest.approx((0.5, 0.75))
    assert main_only(Verdict(outcome=Outcome.no_answer), 10, turns=((0, 0),), token_cost=0.05).base_reward == 0.0


def test_a_score_that_the_cost_eats_up_is_zero() -> None:
    """Not what rounding leaves of it, which a group's standard deviation would blow up."""
    assert 0.3 - 3 * 0.1 != 0
    assert main_only(Verdict(score=0.3), 3, token_cost=0.1).base_reward == 0.0
