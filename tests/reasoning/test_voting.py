"""Votes, against a brute force over classes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl.reasoning.answers import same_math, same_text
from verl.reasoning.voting import classes, vote

ANSWERS = st.lists(
    st.tuples(st.sampled_from(["1", "2", "3", None]), st.sampled_from([None, 0.1, 0.5, 0.9])), max_size=8
)


@given(ANSWERS)
def test_weighted_vote_against_brute_force(pool: list[tuple[str | None, float | None]]) -> None:
    answers, scores = [a for a, _ in pool], [s for _, s in pool]
    won = vote(answers, scores, same=same_text)
    sums: dict[str, float] = {}
    for answer, score in pool:
        if answer is not None and score is not None:
            sums[answer] = sums.get(answer, 0.0) + score
    assert won.totals == pytest.approx(sums)
    if not sums:
        assert won.winner is None
        assert won.best is None
        return
    assert won.winner is not None
    assert sums[won.winner] == pytest.approx(max(sums.values()))
    assert won.best is not None
    mine = [s for a, s in pool if a == won.winner and s is not None]
    assert (answers[won.best], scores[won.best]) == (won.winner, max(mine))


@pytest.mark.guards("a majority of one")
def test_single_votes_are_no_majority() -> None:
    won = vote(["1", "2", "3"], [1, 1, 1], same=same_text, scores=[0.1, 0.9, 0.5])
    assert (won.winner, won.method) == ("2", "best")
    won = vote(["1", "2", "2"], [1, 1, 1], same=same_text, scores=[0.9, 0.1, 0.2])
    assert (won.winner, won.method, won.best, won.agreement) == ("2", "vote", 2, 2 / 3)


def test_answers_are_compared_as_mathematics() -> None:
    assert classes(["0.5", "1/2", None, r"\frac{1}{2}", "2"], same_math) == [0, 0, None, 0, 1]
