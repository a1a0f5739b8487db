"""Problems, workings, habits and advice: what a mistake is, how plans give it away, and what each sentence does."""

import random
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl.data_preprocessing.teaching_world import advice
from verl.data_preprocessing.teaching_world.advice import Advice
from verl.data_preprocessing.teaching_world.problems import KINDS, OUTCOMES, kind_of, problem, working
from verl.data_preprocessing.teaching_world.students import (
    STUDENTS,
    WEAKNESSES,
    Habit,
    changed,
    plan,
    plan_text,
    shown,
)
from verl.teaching.leak import find_leak

MANY = 3000


def habits():
    return [(student, kind, student.habits[kind]) for student in STUDENTS.values() for kind in KINDS]


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**6), split=st.sampled_from(["train", "val"]), index=st.integers(0, 10**6))
def test_every_problem_hangs_on_its_carry(seed, split, index):
    one = problem(seed=seed, split=split, index=index)
    assert kind_of(one) == KINDS[index % 2]
    assert tuple(int(number) for number in re.findall(r"\d+", one.question)) == one.operands
    assert one.hint is None
    texts, numbers = zip(*(working(one, outcome) for outcome in OUTCOMES), strict=True)
    assert numbers[0] == one.answer
    step = -10 if kind_of(one) == "sum" else 10
    assert [number - one.answer for number in numbers] == [0, step, -step]
    for text, number in zip(texts, numbers, strict=True):
        for equation in re.findall(r"([\d+-]+)=(-?\d+)", text):
            assert eval(equation[0]) == int(equation[1])
        ones, tens = re.findall(r"=(-?\d+)", text)
        assert 10 * int(tens) + int(ones) % 10 == number


def test_no_two_numbers_are_in_both_splits():
    def operands(split: str, seed: int) -> set[tuple[int, ...]]:
        made = (problem(seed=seed, split=split, index=index) for index in range(600))
        return {tuple(sorted(one.operands)) for one in made}

    assert not operands("train", 0) & operands("val", 1)


def test_mistakes_are_as_frequent_as_the_habit_says():
    rng = random.Random(0)
    for _, _, habit in habits():
        drawn = Counter(habit.draw(rng) for _ in range(MANY))
        assert drawn["forgotten"] / MANY == pytest.approx(habit.forgets, abs=0.04)
        assert drawn["twice"] / MANY == pytest.approx(habit.twice, abs=0.04)
        assert drawn["right"] / MANY == pytest.approx(habit.solves, abs=0.04)


def test_a_cooler_model_has_a_more_pronounced_habit():
    habit = Habit(forgets=0.60, twice=0.02)
    assert habit.sampled_at(1.0).solves == pytest.approx(habit.solves)
    assert habit.sampled_at(0.7).solves < habit.solves
    assert habit.sampled_at(0.7).forgets > habit.forgets


def test_a_plan_says_what_its_student_does_wrong():
    for weakness in WEAKNESSES:
        for kind in KINDS:
            for wording in range(3):
                assert shown(plan_text(weakness, kind, wording)) == weakness
    for text in ("", "I do not know.", "Ones first, mark", "7+8=15"):
        assert shown(text) is None
    rng = random.Random(1)
    for student, kind, habit in habits():
        plans = [plan(student, kind, rng) for _ in range(MANY)]
        assert sum(shown(text) == habit.weakness for text in plans) / MANY == pytest.approx(0.95, abs=0.02)
        assert not any(re.search(r"\d", text) for text in plans)


def test_the_teacher_has_not_seen_every_wording():
    rng = random.Random(2)
    seen = {plan(STUDENTS[name], kind, rng) for name in ("weak", "strong") for kind in KINDS for _ in range(200)}
    unseen = {plan(STUDENTS["unseen_llama"], kind, rng) for kind in KINDS for _ in range(200)}
    assert unseen - seen
    assert unseen & seen


def gain(student, kind, what: Advice) -> float:
    habit = student.habits[kind]
    return changed(habit, kind, what).solves - habit.solves


def test_what_cures_one_student_harms_another():
    for kind in KINDS:
        for student in STUDENTS.values():
            weakness = student.habits[kind].weakness
            remember, once = (gain(student, kind, Advice(what, kind)) for what in ("remember", "once"))
            if weakness == "forgets":
                assert remember > 0.3
                assert once < -0.1
            else:
                assert remember < -0.2
                assert once >= -0.001
            assert gain(student, kind, Advice("never", kind)) < -0.2
            assert gain(student, kind, Advice("useless", kind)) == 0


def test_no_sentence_serves_all_problems_of_weak_and_strong():
    for what in advice.WORDINGS:
        gains = [gain(STUDENTS[name], kind, what) for name in ("weak", "strong") for kind in KINDS]
        assert min(gains) < 0 or max(gains) < 0.3, what


def test_every_wording_says_one_thing_and_no_number():
    assert len(advice.SENTENCES) == 2 * len(advice.WORDINGS) == 16
    for text, what in advice.SENTENCES.items():
        assert advice.known(f" {text} ") == what
        assert not re.search(r"\d", text)
    for short, long in advice.WORDINGS.values():
        assert len(short) < len(long)
    assert advice.known("Remember the carry. Never carry.") is None


def test_the_product_finds_told_answers_and_only_right_ones():
    found = Counter()
    for index in range(600):
        one = problem(seed=3, split="train", index=index)
        # A column of a wrong working can come to an answer as small as this one.
        if one.answer < 22 or str(one.answer) in re.findall(r"\d+", one.question):
            continue
        for outcome in OUTCOMES:
            told = advice.tells(one, outcome)
            found[outcome] += find_leak(told, question=one.question, truth=str(one.answer)).told
        found["only"] += find_leak(advice.tells_only(one.answer), question=one.question, truth=str(one.answer)).told
        found["all"] += 1
    assert found["right"] == found["only"] == found["all"] > 400
    assert found["forgotten"] == found["twice"] == 0
    one = problem(seed=3, split="train", index=0)
    assert not any(find_leak(text, question=one.question, truth=str(one.answer)).any for text in advice.SENTENCES)
