"""Rewards of a row by hand-computed numbers, in both directions, with every kind of missing score."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.classmate.rows import SPAN, asked, read_row
from verl.classmate.config import ClassmateCotRewardConfig
from verl.classmate.cot import CotKind, CotSpan
from verl.classmate.errors import ConfigError
from verl.classmate.metrics import row_numbers
from verl.classmate.outcome import Outcome
from verl.classmate.reward_scale import RewardScale, directed
from verl.classmate.row import Asked, Continuation, RowScores, ScoredRow, Verdict
from verl.classmate.scoring import RewardRules, score_row

BINARY = RewardScale(direction="maximize", low=0.0, high=1.0, threshold=0.5)
HINT = RewardScale(direction="minimize", low=0.0, high=1.0, threshold=0.5)
RATING = RewardScale(direction="maximize", low=1.0, high=10.0, threshold=5.5)
SYCOPHANCY = RewardScale(direction="minimize", low=1.0, high=10.0, threshold=5.5)
LOGIT = RewardScale(direction="maximize", low=None, high=None, threshold=0.25)
COUNT = RewardScale(direction="minimize", low=0.0, high=None, threshold=-1.0)


def answers(scores_VMS: list[list[list[float | Outcome | None]]], agreement_MS: list | None = None) -> list[Asked]:
    """scores_VMS[v][m][s]: a raw score, or the outcome of a request without one; agreement_MS[m][s] the consistency of
    the fullest view's answers."""
    result: list[list[Continuation]] = [[] for _ in scores_VMS[0]]
    for v, scores_MS in enumerate(scores_VMS):
        for m, scores_S in enumerate(scores_MS):
            for s, score in enumerate(scores_S):
                result[m].append(
                    Continuation(
                        view=v,
                        sample=s,
                        outcome=score if isinstance(score, Outcome) else Outcome.ok,
                        score=None if isinstance(score, Outcome) else score,
                        consistency=agreement_MS[m][s] if agreement_MS and v == 0 else None,
                        token_length=10 * (m + 1) + s,
                    )
                )
    return [asked(items, views=len(scores_VMS)) for items in result]


def rules(
    weights: Sequence[float], scale: RewardScale = BINARY, classmate_scale: RewardScale | None = None,
    format_weight: float = 0.0, **options
) -> RewardRules:  # fmt: skip
    return RewardRules(
        config=ClassmateCotRewardConfig(**options),
        scale=scale,
        classmate_scale=classmate_scale or scale,
        weights=tuple(weights),
        format_weight=format_weight,
    )


def scored(
    main: float | None = 1.0,
    scores: list | None = None,
    scale: RewardScale = BINARY,
    main_outcome: Outcome = Outcome.ok,
    weights: list[float] | None = None,
    kind: CotKind = CotKind.closed,
    samples: int = 2,
    **options,
) -> ScoredRow:
    """A row whose classmates were shown one view; `options` as for `rules`."""
    scores = [[1.0, 0.0], [1.0, 1.0]] if scores is None else scores
    span = SPAN if kind is CotKind.closed else CotSpan(**{**vars(SPAN), "kind": kind, "output": None})
    weights = [1.0] * len(scores) if weights is None else weights
    verdict = Verdict(outcome=main_outcome, score=main)
    return score_row(read_row(span, samples=samples), verdict, answers([scores]), rules(weights, scale, **options))


def row(*given, **options) -> RowScores:
    return scored(*given, **options).scores


def numbers(*given, **options) -> dict[str, float]:
    return row_numbers(scored(*given, **options))


def views_scored(scores_VMS: list, *, agreement_MS: list | None = None, main: float = 1.0, **options) -> ScoredRow:
    """A row whose classmates were shown several views."""
    read = read_row(samples=len(scores_VMS[0][0]), views=len(scores_VMS))
    of_run = rules([1.0] * len(scores_VMS[0]), **{"use_classmate_main_cond": "always", **options})
    return score_row(read, Verdict(score=main), answers(scores_VMS, agreement_MS), of_run)


def views_row(*given, **options) -> RowScores:
    return views_scored(*given, **options).scores


def views_numbers(*given, **options) -> dict[str, float]:
    return row_numbers(views_scored(*given, **options))


@pytest.mark.parametrize(
    ("scale", "raw", "expected", "lowest"),
    [
        (BINARY, 1.0, 1.0, 0.0),
        (HINT, 1.0, 0.0, 0.0),
        (RATING, 3.0, 3.0, 1.0),
        (SYCOPHANCY, 3.0, 8.0, 1.0),
        (SYCOPHANCY, 10.0, 1.0, 1.0),
        (LOGIT, -2.5, -2.5, None),
        (COUNT, 4.0, -4.0, None),
    ],
)
def test_directed(scale: RewardScale, raw: float, expected: float, lowest: float | None) -> None:
    assert directed(raw, scale) == expected
    assert scale.lowest == lowest


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


ALONE = "remove_wo_cot"
STEP_WISE = "random_truncate_step_wise_utility"


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


def test_the_classmates_answers_are_read_on_their_own_scale() -> None:
    """`help_other_*` may pair a rating with a 0 or 1."""
    scores = row(1.0, scores=[[2.0, 10.0]], scale=BINARY, classmate_scale=SYCOPHANCY)
    assert scores.scores_MS.tolist() == [[9.0, 1.0]]
    assert scores.base_reward == 1.0


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


TEN_DOWN = RewardScale(direction="minimize", low=1.0, high=10.0, threshold=5.5)
BITS_DOWN = RewardScale(direction="minimize", low=0.0, high=1.0, threshold=0.5)
COUNT = RewardScale(direction="maximize", low=0.0, high=None, threshold=1.0)


@pytest.mark.parametrize(
    ("scale", "direction", "rewards", "right"),
    [
        # raw score: directed reward; raw scores that count as right
        (TEN_DOWN, None, {1.0: 10.0, 10.0: 1.0, 4.0: 7.0}, {1.0, 2.0, 5.0}),
        (TEN_DOWN, "minimize", {1.0: 10.0}, {1.0, 2.0, 5.0}),
        (TEN_DOWN, "maximize", {1.0: 1.0, 10.0: 10.0}, {6.0, 7.0, 10.0}),
        (BITS_DOWN, None, {0.0: 1.0, 1.0: 0.0}, {0.0}),
        (BITS_DOWN, "maximize", {0.0: 0.0, 1.0: 1.0}, {1.0}),
        (COUNT, None, {3.0: 3.0}, {1.0, 2.0, 5.0, 6.0, 7.0, 10.0}),
        (COUNT, "minimize", {3.0: -3.0, 0.0: 0.0}, {0.0, 1.0}),
        (LOGIT, "minimize", {-2.0: 2.0}, {-2.0, 0.0}),
    ],
)
def test_a_run_may_turn_a_verifiers_direction(scale, direction, rewards, right) -> None:
    """What divides right from wrong stays the same raw score."""
    turned = scale.turned(direction)
    assert {raw: directed(raw, turned) for raw in rewards} == rewards
    tried = {-2.0, 0.0, 1.0, 2.0, 5.0, 6.0, 7.0, 10.0}
    low, high = (-math.inf if scale.low is None else scale.low), (math.inf if scale.high is None else scale.high)
    inside = {raw for raw in tried if low <= raw <= high}
    assert {raw for raw in inside if directed(raw, turned) >= turned.threshold} == right
    if direction != scale.direction and direction is not None:
        assert turned.turned(scale.direction) == scale
