"""Which solutions stage 4 labels: of as many problems as can be, and of none that nobody solved."""

from collections import Counter

from verl.reasoning.records import Solution
from verl.reasoning.stages import solutions_to_label


def solutions(correct: bool, **count: int) -> list[Solution]:
    return [
        Solution(problem_id=name, text=f"{name} {i}", correct=correct) for name, n in count.items() for i in range(n)
    ]


def names(some: list[Solution]) -> list[str]:
    return [one.text for one in some]


def test_what_nobody_solved_is_not_labelled() -> None:
    chosen = solutions_to_label(solutions(True, a=1), solutions(False, a=1, b=7), 10)
    assert names(chosen) == ["a 0", "a 0"]
    assert [one.correct for one in chosen] == [True, False]


def test_wrong_ones_are_half_and_of_problems_solved_most_often() -> None:
    right, wrong = solutions(True, a=1, b=1, c=1, d=1), solutions(False, a=6, b=2, c=1)
    chosen = solutions_to_label(right, wrong, 6)
    assert names(chosen[:3]) == ["a 0", "b 0", "c 0"]
    assert names(chosen[3:]) == ["c 0", "b 0", "a 0"], "one of each before a second of any"
    assert names(solutions_to_label(right, wrong, 8)[4:]) == ["c 0", "b 0", "a 0", "b 1"]


def test_few_of_one_kind_leave_room_for_the_other() -> None:
    counts = Counter(one.correct for one in solutions_to_label(solutions(True, a=9), solutions(False, a=2), 10))
    assert counts == {True: 8, False: 2}
    counts = Counter(one.correct for one in solutions_to_label(solutions(True, a=1), solutions(False, a=9), 10))
    assert counts == {True: 1, False: 9}
