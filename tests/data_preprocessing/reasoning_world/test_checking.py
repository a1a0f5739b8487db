"""The checker: each kind of error by hand, its first errors against an independent solver, texts of any sort."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data_preprocessing.reasoning_world.rewriting import first_difference, rewritten
from verl.data_preprocessing.reasoning_world.checking import check_solution
from verl.data_preprocessing.reasoning_world.problems import make_problem, parse_question

PROBLEM = parse_question("(12 + 5) - (13 - 4 + 2) + 8 = ?")
RIGHT = ["12 + 5 = 17", "13 - 4 = 9", "9 + 2 = 11", "So 17 - 11 = 6", "So 6 + 8 = 14"]


def solution(lines, answer):
    return "\n".join(["<think>", *lines, "</think>", f"The answer is {answer}."])


def check(lines, answer=14):
    return check_solution(PROBLEM, solution(lines, answer))


def test_a_right_solution_is_sound():
    report = check(RIGHT)
    assert (report.labels, report.kinds, report.first_error) == ((1,) * 5, ("",) * 5, -1)
    assert (report.answer, report.answer_right, report.sound) == (14, True, True)
    assert report.steps == tuple(RIGHT)


@pytest.mark.parametrize(
    ("changed", "kinds"),
    [
        # A false equation, taken over by what follows.
        ({1: "13 - 4 = 8", 2: "8 + 2 = 10", 3: "So 17 - 10 = 7", 4: "So 7 + 8 = 15"}, ["", "arithmetic", "", "", ""]),
        # The same, not taken over: that is one more error.
        ({1: "13 - 4 = 8"}, ["", "arithmetic", "copy", "", ""]),
        # A digit of the question, then one of an earlier line.
        ({0: "12 + 6 = 18", 3: "So 18 - 11 = 7", 4: "So 7 + 8 = 15"}, ["copy", "", "", "", ""]),
        ({3: "So 17 - 10 = 7", 4: "So 7 + 8 = 15"}, ["", "", "", "copy", ""]),
        # The other operator, then the number of another bracket.
        ({3: "So 17 + 11 = 28", 4: "So 28 + 8 = 36"}, ["", "", "", "combining", ""]),
        ({3: "So 17 - 9 = 8", 4: "So 8 + 8 = 16"}, ["", "", "", "combining", ""]),
    ],
)
def test_each_kind_of_error_in_a_step(changed, kinds):
    lines = [changed.get(at, line) for at, line in enumerate(RIGHT)]
    report = check(lines, answer=lines[-1].split()[-1])
    assert report.kinds == tuple(kinds)
    assert report.labels == tuple(int(not kind) for kind in kinds)
    assert report.first_kind == next(kind for kind in kinds if kind)
    assert report.complete
    assert not report.sound


@pytest.mark.parametrize(
    ("lines", "place", "answer"),
    [
        # Not written, but used.
        ([RIGHT[0], *RIGHT[2:]], 1, 14),
        # Written twice.
        ([*RIGHT[:2], *RIGHT[1:]], 2, 14),
        # A number of the bracket is left out.
        ([RIGHT[0], "13 + 2 = 15", "So 17 - 15 = 2", "So 2 + 8 = 10"], 1, 10),
        # A bracket is taken away twice.
        ([*RIGHT[:4], "So 6 - 11 = -5", "So -5 + 8 = 3"], 4, 3),
        # One step too many at the end.
        ([*RIGHT, "So 14 + 8 = 22"], 5, 22),
    ],
)
def test_steps_that_are_skipped_or_done_twice(lines, place, answer):
    report = check(lines, answer)
    assert [at for at, label in enumerate(report.labels) if not label] == [place] == [report.first_error]
    assert report.first_kind == "slip"
    assert report.complete
    assert report.answer_follows
    assert report.answer_right == (answer == 14)
    assert not report.sound


def test_missing_steps_and_other_answers_are_not_sound():
    assert check(RIGHT[:3]).labels == (1, 1, 1)
    assert not check(RIGHT[:3]).complete
    assert check(RIGHT, answer=15).labels == (1,) * 5
    assert not check(RIGHT, answer=15).answer_follows
    assert not check(RIGHT, answer=15).answer_right
    assert check_solution(PROBLEM, "\n".join(RIGHT)).answer is None
    assert check_solution(PROBLEM, "\n".join(RIGHT)).labels == (1,) * 5


@given(seed=st.integers(0, 10**6))
def test_first_errors_are_those_of_the_independent_solver(seed):
    rng = random.Random(seed)
    problem = make_problem(seed=2, split="train", index=seed)
    lines = rewritten(problem.question)
    for _ in range(rng.randint(0, 3)):
        at = rng.randrange(len(lines))
        change = rng.choice(("drop", "double", "swap", "digit", "operator"))
        if change == "drop" and len(lines) > 1:
            del lines[at]
        elif change == "double":
            lines.insert(at, lines[at])
        elif change == "swap":
            other = rng.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        elif change == "digit":
            digits = [place for place, letter in enumerate(lines[at]) if letter.isdigit()]
            place = rng.choice(digits)
            lines[at] = lines[at][:place] + rng.choice("123456789") + lines[at][place + 1 :]
        elif change == "operator":
            lines[at] = lines[at].translate(str.maketrans("+-", "-+"))
    report = check_solution(problem, solution(lines, 7))
    assert report.first_error == first_difference(problem.question, lines)
    assert len(report.labels) == len(report.kinds) == len(report.steps) == len(lines)


@given(text=st.text(max_size=200))
def test_any_text_is_judged(text):
    report = check_solution(PROBLEM, text)
    assert not report.sound
    assert len(report.labels) == len(report.steps)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("", 0),
        (" " * 50_000, 0),
        ("<think>" + "\n \t" * 50_000 + "</think>" + " " * 50_000, 0),
        ("<think>" * 50_000, 0),
        ("12 + 5 = 17\n" * 50_000, 50_000),
        ("So " * 50_000, 1),
        ("9" * 50_000 + " + 1 = 2", 1),
        ("</think>" + "9" * 50_000, 0),
        ("</think>" + "9 " * 50_000, 0),
    ],
)
def test_long_texts_are_judged_in_no_time(text, steps):
    began = time.perf_counter()
    report = check_solution(PROBLEM, text)
    assert time.perf_counter() - began < 2
    assert len(report.steps) == steps
    assert not report.answer_right
    assert not report.sound


@pytest.mark.parametrize(
    "line",
    ["\N{ARABIC-INDIC DIGIT THREE} + 5 = 8", "12 + 5 = 1\N{SUPERSCRIPT TWO}", "12 \N{MINUS SIGN} 5 = 7", "12+5=17"],
)
def test_only_plain_digits_and_signs_are_a_step(line):
    report = check([line, *RIGHT[1:]])
    assert report.kinds[0] == "form"


def test_a_line_of_another_form_takes_no_step():
    report = check(["Let us see.", *RIGHT])
    assert report.labels == (0, 1, 1, 1, 1, 1)
    assert report.complete


def test_repeated_lines_count_once():
    report = check([RIGHT[0]] * 4 + RIGHT[1:])
    assert report.labels == (1, 0, 0, 0, 1, 1, 1, 1)
    wrong = check(["12 + 5 = 18"] * 2 + ["13 - 4 = 9", "9 + 2 = 11", "So 18 - 11 = 7", "So 7 + 8 = 15"], 15)
    assert wrong.kinds == ("arithmetic", "slip", "", "", "", "")
