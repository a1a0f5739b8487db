"""Difficulty, bins of any number, splits that share nothing."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl.reasoning.backends import Completion, SamplingParams
from verl.reasoning.difficulty import (
    check_disjoint,
    decontaminate,
    heuristic_difficulty,
    heuristic_level,
    heuristic_points,
    pass_rate_difficulty,
    quantile_bins,
    split_by_problem,
)
from verl.reasoning.records import Problem, as_problem


class Student:
    """Right in as many of its samples as the problem's last digit says; one of them fails."""

    model, revision = "student", "1"

    def generate(
        self, prompts: Sequence[str], *, n: int = 1, sampling: SamplingParams | None = None
    ) -> list[list[Completion]]:
        return [
            [Completion(text="", error="timeout")]
            + [Completion(text="yes" if i < int(prompt[-1]) else "no") for i in range(n - 1)]
            for prompt in prompts
        ]


def test_difficulty_is_the_share_of_wrong_samples() -> None:
    problems = [as_problem(f"problem {i}") for i in range(5)]

    def reward(problem: str, solution: str) -> float | None:
        return None if problem.endswith("4") else float(solution == "yes")

    found = pass_rate_difficulty(problems, Student(), reward, n=5, progress=False)  # type: ignore[arg-type]
    assert list(found.values()) == [1.0, 0.75, 0.5, 0.25, None], "a failure is no wrong answer"
    assert list(found) == [one.id for one in problems]


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=40), st.integers(1, 40))
@pytest.mark.guards("three stages of difficulty hard-coded")
def test_bins_of_any_number_are_even_and_in_order(values: list[float | None], stages: int) -> None:
    difficulties = dict(enumerate(values))
    known = [name for name, value in difficulties.items() if value is not None]
    if stages > len(known):
        with pytest.raises(ValueError, match="write 1 to"):
            quantile_bins(difficulties, stages)
        return
    bins = quantile_bins(difficulties, stages)
    assert len(bins) == stages
    assert sorted(name for one in bins for name in one) == known
    assert max(map(len, bins)) - min(map(len, bins)) <= 1
    flat = [difficulties[name] or 0.0 for one in bins for name in one]
    assert flat == sorted(flat)


@pytest.mark.parametrize(
    ("text", "points", "level"),
    [
        ("What is 3 + 4?", 0, "easy"),
        ("Solve for x: 2x = 4", 1, "easy"),
        ("Find the derivative of the curve", 2, "medium"),
        ("First find the integral, then the limit, such that x is at least 3", 4, "hard"),
        ("word " * 51 + "= 3", 2, "medium"),
        ("The unlimited, thenceforth firstborn", 0, "easy"),
    ],
)
def test_the_heuristic_by_hand(text: str, points: int, level: str) -> None:
    assert (heuristic_points(as_problem(text)), heuristic_level(as_problem(text))) == (points, level)


def test_the_guess_orders_by_points_then_level_then_length() -> None:
    texts = ["What is it?", "What is it then?", "Find the matrix"]
    problems = [
        as_problem(texts[0]),
        as_problem({"problem": texts[0] + " really", "answer": "a b c"}),
        as_problem({"problem": texts[0], "level": "Level 2"}),
        as_problem({"problem": texts[0], "level": "Level 5"}),
        as_problem(texts[1]),
        as_problem({"problem": texts[2], "solution": "word " * 500, "level": 5}),
    ]
    guesses = [heuristic_difficulty(one) for one in problems]
    assert guesses == sorted(set(guesses))
    assert all(0 <= guess <= 1 for guess in guesses)


def test_eight_words_in_a_row_contaminate() -> None:
    test = [as_problem("If Ann has three apples and buys four more, how many has she?")]
    near = as_problem("Today: IF ANN HAS THREE APPLES AND BUYS FOUR pears instead.")
    seven = as_problem("If Ann has three apples and buys five pears")
    short = as_problem("how many")
    kept, dropped = decontaminate([near, seven, short, *test], test)
    assert (kept, dropped) == ([seven, short], [near, *test])
    assert decontaminate([as_problem("3 + 4 = ?")], [as_problem("3 + 4 =")])[0] == [], "short ones count as a whole"
    assert decontaminate([as_problem("3 + 5 = ?")], [as_problem("3 + 4 =")])[1] == []
    with pytest.raises(ValueError, match="write at least 1"):
        decontaminate([], n=0)


@given(st.lists(st.integers(0, 30), max_size=80), st.integers(0, 5))
def test_all_rows_of_a_problem_are_in_one_split(rows: list[int], seed: int) -> None:
    splits = split_by_problem(rows, {"train": 0.8, "dev": 0.1, "none": 0.0, "test": 0.1}, seed=seed, problem_id=str)
    assert sorted(row for split in splits.values() for row in split) == sorted(rows)
    names = [set(split) for split in splits.values()]
    assert sum(map(len, names)) == len(set(rows))
    assert splits["none"] == []
    alone = split_by_problem(rows[:1], {"train": 0.8, "dev": 0.1, "none": 0.0, "test": 0.1}, seed=seed, problem_id=str)
    assert all(set(alone[name]) <= set(splits[name]) for name in alone), "others have no say in it"


def test_shares_of_a_split_are_kept() -> None:
    splits = split_by_problem(range(4000), {"train": 0.75, "dev": 0.25}, problem_id=str)
    assert len(splits["dev"]) == pytest.approx(1000, rel=0.1)
    with pytest.raises(ValueError, match="sum is 1"):
        split_by_problem([1], {"train": 0.5}, problem_id=str)


def test_splits_that_share_a_problem_are_refused() -> None:
    def problem(text: str, name: str) -> Problem:
        return as_problem({"problem": text, "id": name})

    check_disjoint(train=[problem("a b", "1"), problem("a b", "2")], test=[problem("c", "3")])
    for other in (problem("c", "1"), problem("A  b!", "9")):
        with pytest.raises(ValueError, match="is in train and in test"):
            check_disjoint(train=[problem("a b", "1")], test=[other])
