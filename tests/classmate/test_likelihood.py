"""How likely classmates find the ground truth, as a score: what becomes of it, and what it cannot be combined with."""

import json
import math
from dataclasses import replace

import pytest

from tests.classmate.rows import answer_to, asked, read_row, record
from tests.classmate.scored_rows import BINARY, HINT
from verl.classmate import likelihood, prompts
from verl.classmate.algorithm_config import AdvantageConfig
from verl.classmate.config import ClassmateCotRewardConfig
from verl.classmate.errors import ConfigError
from verl.classmate.metrics import row_numbers
from verl.classmate.outcome import Outcome
from verl.classmate.record import RowRecord
from verl.classmate.reward_scale import RewardScale, directed
from verl.classmate.row import Continuation, ScoredRow, Verdict
from verl.classmate.scoring import RewardRules, score_row

GAIN = "likelihood_gain"


def told(*log_probs: float, view: int = 0) -> Continuation:
    """What a classmate says of one view."""
    score = likelihood.reduced(log_probs, "mean")
    return Continuation(sample=0, view=view, outcome=Outcome.ok, text="It is 7", score=score, log_probs=log_probs)


def lost(view: int = 0) -> Continuation:
    return Continuation(sample=0, view=view, outcome=Outcome.timeout, error="60 s")


def scored(*said: list[Continuation], main: float = 1.0, scale: RewardScale = BINARY, **options) -> ScoredRow:
    """A row of which each classmate says a list, one for each view."""
    defaults = {
        "classmate_reward_type": "likelihood",
        "use_classmate_main_cond": "always",
        "empty_cot_score": "exclude",
    }
    config = ClassmateCotRewardConfig(**defaults
                                      | options)  # fmt: skip
    rules = RewardRules(
        config=config,
        scale=scale,
        classmate_scale=likelihood.scale(scale.direction),
        weights=(1.0,) * len(said),
    )
    views = len(said[0])
    answers = [asked(items, model=f"m{m}", views=views) for m, items in enumerate(said)]
    return score_row(read_row(views=views), Verdict(score=main), answers, rules)


def test_the_mean_does_not_depend_on_how_many_tokens_there_are() -> None:
    assert likelihood.reduced((-1.0, -3.0), "mean") == -2.0 == likelihood.reduced((-2.0,), "mean")
    assert likelihood.reduced((-1.0, -3.0), "sum") == -4.0


def test_it_is_at_most_0_and_has_no_lowest_value() -> None:
    up, down = likelihood.scale("maximize"), likelihood.scale("minimize")
    assert (up.lowest, up.high) == (None, 0.0)
    assert not up.is_below_lowest(-1e9)
    assert [directed(-3.0, one) for one in (up, down)] == [-3.0, 3.0]
    assert down.lowest == 0.0, "where the ground truth is the answer to avoid, certainty of it is worst"


def test_classmates_are_averaged_and_a_missing_one_is_left_out() -> None:
    row = scored([told(-1.0, -3.0)], [told(-4.0)])
    assert (row.scores.classmate_score, row.scores.classmate_reward, row.scores.final_reward) == (-3.0, -3.0, -2.0)
    alone = scored([told(-1.0, -3.0)], [lost()])
    assert alone.scores.classmate_score == -2.0
    nobody = scored([lost()], [lost()])
    assert (nobody.scores.classmate_valid, nobody.scores.final_reward) == (False, 1.0)
    assert math.isnan(row_numbers(nobody)["classmate_likelihood"])


def test_the_gain_is_what_the_thought_adds() -> None:
    row = scored([told(-1.0), told(-3.0, view=1)], [told(-2.0), told(-1.5, view=1)], classmate_reward_type=GAIN)
    assert row.scores.classmate_score == pytest.approx((2.0 - 0.5) / 2)
    numbers = row_numbers(row)
    assert (numbers["classmate_likelihood"], numbers["classmate_likelihood_gain"]) == (-1.5, 0.75)
    assert (numbers["classmate_with_cot_score"], numbers["classmate_alone_score"]) == (-1.5, -2.25)
    assert (numbers["classmate_0_score"], numbers["classmate_1_score"]) == (-1.0, -2.0)
    half = scored([told(-1.0), lost(1)], [told(-2.0), told(-1.5, view=1)], classmate_reward_type=GAIN)
    assert half.scores.classmate_score == -0.5, "only those that told of both sides"
    turned = scored([told(-1.0), told(-3.0, view=1)], scale=HINT, main=0.0, classmate_reward_type=GAIN)
    assert turned.scores.classmate_score == -2.0, "the ground truth is what is to be avoided"


def test_a_wrong_main_answer_earns_no_gain() -> None:
    condition = "no_classmate_when_main_incorrect"
    row = scored([told(-1.0), told(-3.0, view=1)], main=0.0, classmate_reward_type=GAIN,
                 use_classmate_main_cond=condition)  # fmt: skip
    assert (row.scores.gamma, row.scores.classmate_reward) == (0.0, 0.0)


def test_nothing_is_written_so_nothing_has_a_length() -> None:
    numbers = row_numbers(scored([told(-1.0)]))
    assert math.isnan(numbers["classmate_response_length"])
    assert math.isnan(numbers["classmate_0_clip_ratio"])
    assert numbers["outcome_ok"] == 1.0
    assert "classmate_likelihood" not in row_numbers(
        score_row(read_row(), Verdict(score=1.0), [asked([Continuation(sample=0, outcome=Outcome.ok, score=1.0)])],
                  RewardRules(config=ClassmateCotRewardConfig(), scale=BINARY, classmate_scale=BINARY, weights=(1.0,)))
    )  # fmt: skip


def test_the_line_of_the_dump_has_the_log_probs() -> None:
    row = record([told(-0.1, -2 / 3), lost()])
    line = row.as_dict()
    assert line["classmates"][0]["samples"][0]["log_probs"] == [-0.1, -2 / 3]
    assert "log_probs" not in line["classmates"][0]["samples"][1]
    again = RowRecord.from_json(row.to_json())
    assert again.asked[0].continuations[0].log_probs == (-0.1, -2 / 3)
    older = json.loads(row.to_json())
    older["schema"] = 1
    assert RowRecord.from_json(json.dumps(older)).asked == again.asked


@pytest.mark.parametrize(
    ("cue", "truth", "text"),
    [
        ("\n\nThe answer is", "7", "\n\nThe answer is 7"),
        ("\n\nThe answer is \\boxed{", "\\frac{1}{2}", "\n\nThe answer is \\boxed{\\frac{1}{2}}"),
        ("So: ", "7", "So: 7"),
        ("", "7", "7"),
    ],
)
def test_a_statement_begins_with_its_cue(cue: str, truth: str, text: str) -> None:
    assert prompts.statement(cue, truth) == text
    assert text.startswith(cue)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"use_classmate_main_cond": "no_classmate_when_main_incorrect"}, "write always, or .*=likelihood_gain$"),
        ({"use_classmate_main_cond": "neg_classmate_when_main_incorrect"}, "write always, or .*=likelihood_gain$"),
        ({"classmate_close_marker": "never"}, "classmate_close_marker: never contradicts .*; write auto$"),
        ({"add_consistency_reward": True}, "add_consistency_reward: .* write no answers .*; write False$"),
    ],
)
def test_what_it_cannot_be_combined_with(options: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ClassmateCotRewardConfig(
            **{"classmate_reward_type": "likelihood", "use_classmate_main_cond": "always", "empty_cot_score": "exclude"}
            | options
        )


def test_verls_estimators_would_pay_a_row_without_a_score_best() -> None:
    with pytest.raises(ConfigError, match=r"verl's rloo, .* write likelihood_gain, or algorithm.adv_estimator="):
        AdvantageConfig(classmate_reward_type="likelihood", adv_estimator="rloo")
    assert AdvantageConfig(classmate_reward_type=GAIN, adv_estimator="rloo").adv_estimator == "rloo"
    ClassmateCotRewardConfig(classmate_reward_type=GAIN)


def test_validation_scores_answers_and_logs_the_likelihood() -> None:
    answer = Continuation(sample=0, outcome=Outcome.ok, text="7", token_length=4, score=1.0, log_probs=(-2.0,))
    second = Continuation(sample=1, outcome=Outcome.ok, text="8", token_length=2, score=0.0)
    config = ClassmateCotRewardConfig(
        classmate_reward_type="likelihood", use_classmate_main_cond="always", empty_cot_score="exclude"
    )
    rules = RewardRules(config=config, scale=BINARY, classmate_scale=BINARY, weights=(1.0,))
    read = replace(read_row(samples=2), answer=answer_to(uid=None, validate=True))
    numbers = row_numbers(score_row(read, Verdict(score=1.0), [asked([answer, second])], rules))
    assert (numbers["classmate_scores"], numbers["classmate_likelihood"]) == (0.5, -2.0)
    assert numbers["classmate_response_length"] == 3.0
