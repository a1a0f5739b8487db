"""Readers that are asked in validation only: what a config makes of them, and that nothing of theirs is in a reward."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.classmate.rows import asked, read_row, record
from tests.classmate.scored_rows import ALONE, BINARY, HINT, answers, rules
from verl.classmate.config import ClassmateRewardModelConfig, ReaderSpec, from_mapping
from verl.classmate.errors import ConfigError
from verl.classmate.frozen import frozen_classmates, frozen_models, frozen_readers
from verl.classmate.judgement import Judgement
from verl.classmate.metrics import row_numbers, step_metrics, validation_metrics
from verl.classmate.outcome import Outcome
from verl.classmate.record import RowRecord
from verl.classmate.row import Continuation, ScoredRow, Verdict
from verl.classmate.scoring import score_row, with_unseen
from verl.classmate.seeds import POLICY_SEED, seed_number

UNSEEN = "reward_model.evaluation_classmates"
SCORES = st.one_of(st.sampled_from([0.0, 1.0]), st.sampled_from([Outcome.timeout, Outcome.no_answer, Outcome.too_long]))


def reward(*unseen: dict[str, Any], **keys: Any) -> ClassmateRewardModelConfig:
    return from_mapping({"evaluation_classmates": list(unseen), **keys}, require_classmates=False)


def test_they_take_the_settings_of_classmates() -> None:
    given = {"classmate_placement": "dedicated", "classmate_replicas": 2, "classmate_dtype": "float16"}
    config = reward({"model": "u"}, {"model": "v", "backend": "openai"}, classmates=[{"model": "a"}], **given)
    assert config.evaluation_classmates[0] == ReaderSpec(
        model="u", backend="auto", placement="dedicated", replicas=2, tensor_parallel_size=1
    )
    first, second = frozen_readers(config)[1:]
    assert (first.name, first.label, first.keys) == ("unseen/0", "unseen 0", f"{UNSEEN}[0].")
    assert (first.placement, first.replicas, first.dtype, first.validation_only) == ("dedicated", 2, "float16", True)
    assert (second.name, second.engine, second.request_timeout) == ("unseen/1", "openai", 60)
    assert [one.name for one in frozen_classmates(config)] == ["classmate/0"]
    assert not frozen_classmates(config)[0].validation_only


def test_a_run_without_classmates_may_have_them() -> None:
    config = reward({"model": "u"})
    assert [one.name for one in frozen_models(config)] == ["unseen/0"]
    assert config.classmate_weights == ()
    assert frozen_models(reward()) == (), "by default there are none"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"evaluation_classmates": [{"model": "u", "weight": 1.0}]},
            f"{UNSEEN}[0].weight: such a reader has no part in the reward; leave it out",
        ),
        (
            {"evaluation_classmates": [{"model": "u"}, {"model": "a/"}], "classmates": [{"model": "a"}]},
            f"{UNSEEN}[1].model: a/ is classmate 0, which reads the validation rows too; name a model that is no "
            "classmate",
        ),
        (
            {"evaluation_classmates": [{"model": "u", "backend": "hf", "tensor_parallel_size": 2}]},
            f"{UNSEEN}[0].tensor_parallel_size: engine hf runs on one device; write backend: vllm, or replicas: 2 for "
            "that many engines",
        ),
        ({"evaluation_classmates": [{"model": " "}]}, f"{UNSEEN}[0].model: is empty; write a path or hub name"),
        ({"evaluation_classmates": "u"}, f"{UNSEEN}: expected a list, got 'u'; write [{{model: MODEL}}]"),
    ],
)
def test_mistakes_are_told_in_one_line(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        from_mapping(keys, require_classmates=False)
    assert str(refused.value) == message


@pytest.mark.parametrize("spelling", ["/m/./a", "/m//a", "/m/x/../a", "/m/a/"])
def test_a_classmate_is_known_in_any_spelling(spelling: str) -> None:
    with pytest.raises(ConfigError, match="is classmate 0"):
        reward({"model": spelling}, classmates=[{"model": "/m/a"}])


def test_the_policys_start_may_be_unseen_where_it_plays_live() -> None:
    def config(mode: str) -> ClassmateRewardModelConfig:
        play = {"self_play": mode, "self_play_model": "policy"}
        return reward({"model": "policy"}, classmate_cot_reward_configs=play)

    assert [one.weights for one in frozen_readers(config("live"))] == ["policy_live", "own"]
    with pytest.raises(ConfigError, match="policy is classmate 0"):
        config("frozen")


def test_their_seeds_do_not_depend_on_the_classmates() -> None:
    assert [seed_number(reader, classmates=2) for reader in range(4)] == [0, 1, -2, -3]
    assert [seed_number(reader, classmates=0) for reader in range(2)] == [-2, -3]
    assert POLICY_SEED == -1


def scored(scores_VMS: list, unseen_VUS: list, *, scale: Any = BINARY, **options: Any) -> tuple[ScoredRow, ScoredRow]:
    """A row without and with unseen readers."""
    read = read_row(samples=len(scores_VMS[0][0]), views=len(scores_VMS))
    of_run = rules([1.0] * len(scores_VMS[0]), scale, **options)
    row = score_row(read, Verdict(score=1.0), answers(scores_VMS), of_run)
    return row, with_unseen(row, answers(unseen_VUS), of_run)


@given(st.lists(st.lists(SCORES, min_size=2, max_size=2), min_size=1, max_size=3), st.booleans())
def test_no_reward_and_no_number_of_classmates_knows_of_them(unseen_US: list, add_consistency: bool) -> None:
    options = {"add_consistency_reward": add_consistency, "min_classmate_valid_fraction": 0.9}
    without, row = scored([[[1.0, 0.0], [Outcome.timeout, 1.0]]], [unseen_US], **options)
    assert row.scores is without.scores
    numbers = row_numbers(row)
    theirs = {name: value for name, value in numbers.items() if name.startswith("unseen_")}
    np.testing.assert_equal(
        {name: value for name, value in numbers.items() if name not in theirs}, row_numbers(without)
    )
    assert len(theirs) == 4 * len(unseen_US)
    line = RowRecord.of(row).as_dict()
    assert len(line.pop("unseen")) == len(unseen_US)
    assert line == RowRecord.of(without).as_dict()


def test_their_numbers() -> None:
    unseen = [[[1.0, 0.0], [Outcome.timeout, Outcome.no_answer]], [[0.0, 0.0], [1.0, Outcome.timeout]]]
    _, row = scored([[[1.0, 1.0]], [[0.0, 0.0]]], unseen, classmate_reward_type=ALONE)
    numbers = {name: value for name, value in row_numbers(row).items() if name.startswith("unseen_")}
    np.testing.assert_equal(
        numbers,
        {
            "unseen_0_score": 0.5,
            "unseen_0_alone_score": 0.0,
            "unseen_0_valid": 1.0,
            "unseen_0_response_length": 10.5,
            "unseen_0_clip_ratio": 0.0,
            "unseen_1_score": math.nan,
            "unseen_1_alone_score": 1.0,
            "unseen_1_valid": 0.25,
            "unseen_1_response_length": 20.5,
            "unseen_1_clip_ratio": 0.0,
        },
    )
    values = validation_metrics(["a", "a"], {"main_model_reward": [1, 1], "unseen_0_valid": [1.0, 0.5]}, samples=1)
    assert values["val-core/a/unseen_0_valid/mean@1"] == 0.75
    _, minimised = scored([[[1.0]]], [[[1.0]]], scale=HINT)
    assert row_numbers(minimised)["unseen_0_score"] == 0.0, "turned, as the classmates' scores are"


def test_a_baselines_row_has_theirs_alone() -> None:
    read, of_run = read_row(samples=2), rules([])
    row = with_unseen(score_row(read, Verdict(score=1.0), [], of_run), answers([[[1.0, 0.0]]]), of_run)
    numbers = row_numbers(row)
    assert (numbers["unseen_0_score"], numbers["unseen_0_valid"]) == (0.5, 1.0)
    assert (row.scores.final_reward, row.scores.asked, row.scores.outcomes) == (1.0, False, ())
    assert not any(name.startswith("classmate/") and "outcome" in name for name in step_metrics([numbers]))


def test_a_row_that_nobody_could_be_shown_counts_as_not_valid() -> None:
    read, of_run = replace(read_row(samples=2), thoughts=(), outcome=Outcome.unfinished_cot), rules([])
    unread = asked([Continuation(sample=s, outcome=Outcome.unfinished_cot) for s in range(2)])
    row = with_unseen(score_row(read, Verdict(outcome=Outcome.unfinished_cot), [], of_run), [unread], of_run)
    assert row_numbers(row)["unseen_0_valid"] == 0.0


JUDGED = Judgement(outcome=Outcome.ok, score=3.0, requests=1)


def test_their_answers_are_kept_beside_the_classmates() -> None:
    said = asked([Continuation(sample=0, outcome=Outcome.ok, text="7", score=1.0, judge=JUDGED)], model="other")
    row = replace(record([Continuation(sample=0, outcome=Outcome.ok, text="8", score=0.0)]), unseen=(said,))
    again = RowRecord.from_json(row.to_json())
    assert again.unseen == (said,)
    assert again.to_json() == row.to_json()
    assert again.judgements == [JUDGED], "they cost what others cost"
    assert "unseen" not in record().as_dict(), "where there are none, there is no key"


def test_a_line_of_the_first_schema_is_read() -> None:
    line = {**record().as_dict(), "schema": 1}
    assert RowRecord.from_json(json.dumps(line)).to_json() == record().to_json()
