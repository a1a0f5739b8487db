"""A judge of steps chooses among a problem's right solutions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl.reasoning.records import Solution
from verl.reasoning.reranking import Scores, refused, reranked


def solutions(*names: str) -> list[Solution]:
    """Of problem `a` the texts that begin with it, and so on."""
    return [Solution(problem_id=name[0], text=name) for name in names]


def test_the_soundest_are_taken_among_all() -> None:
    scores = [(0.9, 0.6), (0.9, 0.9), (0.8, 0.9), (0.7,)]
    assert reranked(solutions("a1", "a2", "a3", "b1"), scores, wanted={"a": 2, "b": 1}, rank=True, refuse=True) == [
        1,
        2,
        3,
    ]
    assert reranked(solutions("a1", "a2", "a3", "b1"), scores, wanted={"a": 2}, rank=False, refuse=True) == [0, 1]


def test_a_hard_problem_keeps_its_soundest_solution() -> None:
    scores = [(0.9, 0.1), (0.4, 0.9), (0.9,)]
    for rank in (True, False):
        places = reranked(solutions("a1", "a2", "b1"), scores, wanted={"a": 2, "b": 1}, rank=rank, refuse=True)
        assert places == [1, 2]


def test_refused_ones_give_way_to_others() -> None:
    scores = [(0.9, 0.1), (0.9, 0.6)]
    assert reranked(solutions("a1", "a2"), scores, wanted={"a": 1}, rank=False, refuse=True) == [1]
    assert reranked(solutions("a1", "a2"), scores, wanted={"a": 1}, rank=False, refuse=False) == [0]


def test_the_same_text_is_taken_once() -> None:
    scores = [(0.9,), (0.9,), (0.6,)]
    assert reranked(solutions("a1", "a1", "a2"), scores, wanted={"a": 2}, rank=True, refuse=True) == [0, 2]


@pytest.mark.parametrize("scores", [(), (None,), (0.9, None), (0.9, 0.49)])
def test_what_could_not_be_judged_is_not_sound(scores: Scores) -> None:
    assert refused(scores)
    assert not refused((0.5, 1.0))
    places = reranked(solutions("a1", "a2"), [scores, (0.6,)], wanted={"a": 2}, rank=True, refuse=True)
    assert places == [1]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.floats(0, 1), max_size=3)), max_size=12),
    st.booleans(),
    st.booleans(),
)
def test_no_problem_is_lost(rows: list[tuple[str, list[float]]], rank: bool, refuse: bool) -> None:
    some = [Solution(problem_id=name, text=str(i)) for i, (name, _) in enumerate(rows)]
    places = reranked(some, [scores for _, scores in rows], wanted=dict.fromkeys("abc", 2), rank=rank, refuse=refuse)
    taken = [rows[i][0] for i in places]
    assert set(taken) == {name for name, _ in rows}
    assert len({*places}) == len(places)
    assert all(taken.count(name) <= 2 for name in "abc")
