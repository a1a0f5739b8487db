"""Problems: what they ask, how they are worked out, and that the splits are apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data_preprocessing.reasoning_world.rewriting import rewritten
from verl.data_preprocessing.reasoning_world.problems import (
    make_problem,
    parse_question,
    right_lines,
    right_results,
    split_of,
)

INDICES = st.integers(0, 10**6)


@given(seed=st.integers(0, 99), index=INDICES)
def test_solutions_equal_those_of_an_independent_solver(seed, index):
    problem = make_problem(seed=seed, split="train", index=index)
    assert right_lines(problem) == rewritten(problem.question)
    assert problem.answer == eval(problem.question.removesuffix(" = ?"))
    assert all(1 <= number <= 20 for number in (*problem.numbers, *right_results(problem)))
    assert 4 <= len(problem.plan) <= 8


@given(index=INDICES, steps=st.integers(1, 8))
def test_a_problem_has_as_many_steps_as_are_asked(index, steps):
    assert len(make_problem(seed=0, split="train", index=index, steps=steps).plan) == steps


@given(index=INDICES, split=st.sampled_from(["train", "val"]))
def test_a_question_is_read_back(index, split):
    problem = make_problem(seed=5, split=split, index=index)
    assert parse_question(problem.question) == problem
    assert split_of(problem) == split
    assert make_problem(seed=5, split=split, index=index) == problem


def test_a_problem_by_hand():
    problem = parse_question("(12 + 5) - (13 - 4 + 2) + 8 = ?")
    assert right_lines(problem) == ["12 + 5 = 17", "13 - 4 = 9", "9 + 2 = 11", "So 17 - 11 = 6", "So 6 + 8 = 14"]
    assert problem.answer == 14


@pytest.mark.parametrize(
    "text",
    ["", "7 = ?", "(7) = ?", "7 + = ?", "(7 + 2 = ?", "7 + 2) = ?", "123 + 4 = ?", "٣ + ٤ = ?", "7 + 2", "() + 2 = ?"],
)
def test_what_is_no_problem_is_refused_in_one_line(text):
    with pytest.raises(ValueError, match="is no problem of this world; write one such as"):
        parse_question(text)
