"""Planted errors: they are where and what the planter says, and what follows them follows from them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data_preprocessing.reasoning_world.rewriting import first_difference, rewritten
from verl.data_preprocessing.reasoning_world import lessons
from verl.data_preprocessing.reasoning_world.checking import KINDS, check_solution
from verl.data_preprocessing.reasoning_world.planting import Edit, plant, solve
from verl.data_preprocessing.reasoning_world.problems import make_problem, parse_question
from verl.data_preprocessing.reasoning_world.spec import Flaws

PROBLEM = parse_question("(12 + 5) - (13 - 4) + 8 = ?")


@given(seed=st.integers(0, 10**6), kind=st.sampled_from(KINDS))
def test_a_planted_error_is_found_where_it_is(seed, kind):
    problem = make_problem(seed=3, split="train", index=seed)
    text, place = plant(problem, random.Random(seed), kind, mended_share=0.0)
    report = check_solution(problem, text)
    assert report.first_error == place == first_difference(problem.question, list(report.steps))
    assert report.first_kind == kind
    assert report.complete
    assert report.answer_follows
    # What comes behind it follows from it.
    assert sum(report.labels) == len(report.labels) - 1


@given(seed=st.integers(0, 10**6), kind=st.sampled_from(["copy", "arithmetic"]))
def test_a_mended_error_ends_right(seed, kind):
    problem = make_problem(seed=3, split="train", index=seed)
    text, place = plant(problem, random.Random(seed), kind, mended_share=1.0)
    report = check_solution(problem, text)
    assert report.answer_right
    assert report.first_error == place
    assert not report.sound


@given(seed=st.integers(0, 10**6))
def test_without_edits_the_solution_is_the_right_one(seed):
    problem = make_problem(seed=3, split="train", index=seed)
    assert list(solve(problem).lines) == rewritten(problem.question)
    assert check_solution(problem, solve(problem).text).sound


def test_edits_by_hand():
    worked = solve(PROBLEM, {1: Edit(shift=10)})
    assert worked.lines == ("12 + 5 = 17", "13 - 4 = 19", "So 17 - 19 = -2", "So -2 + 8 = 6")
    assert worked.answer == 6
    assert solve(PROBLEM, {2: Edit(op="+")}).lines[2:] == ("So 17 + 9 = 26", "So 26 + 8 = 34")
    assert solve(PROBLEM, {2: Edit(missed=True)}).lines[2:] == ("So 17 + 8 = 25",)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="unknown kind 'typo': use one of copy, arithmetic, combining, slip"):
        plant(PROBLEM, random.Random(0), "typo")


def test_a_trap_is_a_borrow_or_a_minus_behind_a_minus():
    assert lessons.trap(PROBLEM) == (2, Edit(op="+"))
    assert lessons.trap(parse_question("15 - 8 + 2 - (3 + 4) = ?")) == (1, Edit(shift=10))
    # Of two, the first.
    assert lessons.trap(parse_question("(15 - 8 + 2) - (9 - 4) = ?")) == (0, Edit(shift=10))
    assert lessons.trap(parse_question("12 + 5 - 4 - 6 = ?")) is None


def test_lessons_without_flaws_are_right():
    flaws = Flaws(trap_share=0.0, random_share=0.0)
    for index in range(50):
        problem = make_problem(seed=0, split="train", index=index)
        assert lessons.flawed_solution(problem, flaws, random.Random(index)) == solve(problem).text


def test_a_sprung_trap_goes_wrong_always_in_one_way():
    flaws = Flaws(trap_share=1.0, random_share=0.0)
    texts = {lessons.flawed_solution(PROBLEM, flaws, random.Random(seed)) for seed in range(20)}
    assert len(texts) == 1
    assert check_solution(PROBLEM, texts.pop()).kinds == ("", "", "combining", "")
