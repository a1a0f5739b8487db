"""Advice that gives the answer away, and advice that only looks like it."""

import pytest

from verl.teaching.leak import Leak, find_leak

BOXES = "How many boxes are needed?"


def told(advice: str, truth: str, question: str = BOXES) -> bool:
    return find_leak(advice, question=question, truth=truth).told


@pytest.mark.guards("thousands, fractions and percent not normalised")
@pytest.mark.parametrize(
    ("advice", "truth"),
    [
        ("You should get 1000.", "1000"),
        ("You should get 1,000 in the end.", "1000"),
        ("You should get 1000 in the end.", "1,000"),
        ("It is $1,000.00 then.", "1000"),
        ("Half of it: 0.5", "1/2"),
        ("It is 1/2 of it", "0.5"),
        ("It is \\frac{1}{2} of it", "1/2"),
        ("Half of all, 50%, are red.", "50%"),
        ("Half of all, 50 percent, are red.", "50%"),
        ("A share of 0.5", "50%"),
        ("That is 1/2 of them", "50\\%"),
        ("That is 50% of them", "0.5"),
        ("That is 12.5 % of them", "1/8"),
        ("That is 12.5\\% of them", "0.125"),
        ("x = \N{MINUS SIGN}4", "-4"),
        ("Remember that they wrote **Paris**.", "Paris"),
        ("the answer is paris", "Paris"),
        ("Pick (B) and be done.", "B"),
        ("The value 0.001 is small.", "0.001"),
        ("so 2\\sqrt{3} it is", "2\\sqrt{3}"),
    ],
)
def test_an_answer_is_found_in_any_of_its_forms(advice: str, truth: str) -> None:
    assert told(advice, truth)


@pytest.mark.guards("thousands, fractions and percent not normalised")
@pytest.mark.parametrize(
    ("advice", "truth"),
    [
        ("Think of 10000, 21000 and 1000.5.", "1000"),
        ("Think of 1,000,000 boxes.", "1000"),
        ("Think of 1,000 boxes.", "1"),
        ("Think of 0.004.", "0.001"),
        ("Think of 1/20 and 11/2.", "1/2"),
        ("Think of 50 boxes.", "0.5"),
        ("Think of 150%.", "0.5"),
        ("Think of 5% of them.", "0.5"),
        ("Think of 4.", "-4"),
        ("Comparison parishes apart.", "Paris"),
        ("Begin with the biggest box.", "B"),
        ("Divide first, then add.", "1000"),
    ],
)
def test_no_answer_is_found_inside_of_another(advice: str, truth: str) -> None:
    assert not told(advice, truth)


def test_what_the_question_holds_says_nothing() -> None:
    question = "Tom has 1,000 apples in 4 boxes and eats none. How many does he have?"
    assert not told("Look at the 1000 apples.", "1000", question)
    assert told("He has 250 in each.", "250", question)
    assert not told("Is it (A) or (B)?", "B", "Which is it? (A) 3 (B) 4")


@pytest.mark.parametrize(
    "truth",
    ["1.0/2", "1/2/3", "5/0", "50%%", "%", "$$", "1e400", "-", "\\frac{1}{0}", "9" * 500, "\N{INFINITY}", "\x00"],
)
def test_truths_that_are_no_numbers_are_no_errors(truth: str) -> None:
    assert not find_leak("Some 7 things, 3% or 2/7 of them.", question=BOXES, truth=truth).any


@pytest.mark.guards("substring match, which an empty answer passes")
@pytest.mark.parametrize("blank", ["", " ", "\n", "\u200b"])
def test_blanks_give_nothing_away(blank: str) -> None:
    def always(text: str, truth: str) -> bool:
        return True

    nothing = Leak(told=False, extracted=False)
    assert find_leak(blank, question=BOXES, truth="3", is_right=always) == nothing
    assert find_leak("Some advice.", question=BOXES, truth=blank, is_right=always) == nothing
    assert not nothing.any


def test_what_the_checker_finds_counts_in_any_case() -> None:
    def is_right(text: str, truth: str) -> bool:
        return text.endswith(f"<solution>{truth}</solution>")

    advice = "So write <solution>B</solution>"
    leak = find_leak(advice, question="Which is it? (A) 3 (B) 4", truth="B", is_right=is_right)
    assert leak == Leak(told=False, extracted=True)
    assert leak.any
    assert not find_leak("Which is bigger?", question=BOXES, truth="B", is_right=is_right).any
