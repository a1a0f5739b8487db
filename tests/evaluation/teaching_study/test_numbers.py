"""What is kept of an evaluation."""

import pytest

from tests.evaluation.teaching_study.made_up import evaluation
from verl.evaluation.teaching_study.numbers import examples_of, numbers_of
from verl.evaluation.teaching_study.presets import STUDIES


def words(text: str, *, add_special_tokens: bool) -> dict[str, list[int]]:
    """A tokenizer with a token for each word."""
    assert not add_special_tokens
    return {"input_ids": list(range(len(text.split())))}


def test_the_numbers_of_an_evaluation() -> None:
    found = numbers_of(evaluation(), words)
    assert found["teacher.weak.APG"] == 0.25
    assert found["teacher.weak.harm"] == 0.75, "1 - NDR_c"
    assert found["teacher.trained.w"] == 0.75
    # One of four trials gives nothing away and gains .2.
    assert found["teacher.weak.clean"] == pytest.approx(0.05)
    assert found["untrained.weak.clean"] == 0.0, "all of it gave the answer away"
    assert (found["offtask.before"], found["offtask.after"]) == (1.0, 0.75)


def test_a_length_is_that_of_what_could_be_shown() -> None:
    found = numbers_of(evaluation(), words)
    assert found["teacher.weak.length"] == 1.5, "three words and none; the lost one is in no mean"
    assert found["untrained.weak.length"] == 0.0
    assert "null.weak.length" not in found


def test_what_was_not_measured_is_left_out() -> None:
    found = numbers_of(evaluation(), words)
    assert not {"untrained.weak.NDR_c", "untrained.weak.harm", "untrained.weak.TES", "null.weak.leak"} & found.keys()
    assert not [name for name in found if name.startswith("fixed_all")]


def test_every_number_has_a_name_that_can_be_predicted() -> None:
    study = STUDIES["adaptive_teaching"]
    for name in numbers_of(evaluation(), words):
        assert study.is_measured(name), name
    assert not study.is_measured("teacher.weakest.APG")
    assert not study.is_measured("teacher.weak.APG2")


def test_examples_show_both_teachers() -> None:
    first, *_ = examples_of(evaluation())
    assert first == {"question": "weak: 7+8?", "before": "", "after": "Carry the one."}
