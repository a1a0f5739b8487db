"""Selection by relevance and difference: its limits, and a brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl.reasoning.mmr import clusters, relevance, select, without_near_copies


@st.composite
def pools(draw: st.DrawFn) -> tuple[list[float], np.ndarray, int]:
    n = draw(st.integers(1, 7))
    scores = draw(st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=n, max_size=n))
    numbers = draw(st.lists(st.sampled_from([0.0, 0.3, 0.9, 1.0]), min_size=n * n, max_size=n * n))
    sims = np.array(numbers).reshape(n, n)
    sims = np.minimum(sims, sims.T)
    np.fill_diagonal(sims, 1.0)
    return scores, sims, draw(st.integers(1, 7))


@given(pools())
def test_lambda_0_takes_the_best(pool: tuple[list[float], np.ndarray, int]) -> None:
    scores, _, count = pool
    sims = np.eye(len(scores))
    picked = [one.index for one in select(scores, sims, count=count, weight=0.0)]
    assert picked == sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:count]


@given(pools())
def test_lambda_1_takes_the_most_unlike(pool: tuple[list[float], np.ndarray, int]) -> None:
    scores, sims, count = pool
    picks = select(scores, sims, count=count, weight=1.0)
    taken = [picks[0].index]
    for pick in picks[1:]:
        left = [i for i in range(len(scores)) if i not in taken]
        assert max(sims[pick.index, j] for j in taken) == min(max(sims[i, j] for j in taken) for i in left)
        taken.append(pick.index)


@given(pools(), st.floats(0, 1))
def test_greedy_against_the_formula(pool: tuple[list[float], np.ndarray, int], weight: float) -> None:
    scores, sims, count = pool
    rel = relevance(scores)
    taken: list[int] = []
    for pick in select(scores, sims, count=count, weight=weight):
        near = {i: max((sims[i, j] for j in taken), default=0.0) for i in range(len(scores)) if i not in taken}
        value = {i: rel[i] if not taken else (1 - weight) * rel[i] + weight * (1 - near[i]) for i in near}
        allowed = [i for i in near if near[i] < 1] or list(near)
        assert value[pick.index] == max(value[i] for i in allowed)
        assert pick.max_sim == near[pick.index]
        taken.append(pick.index)


@pytest.mark.guards("the least similar neighbour in MMR")
def test_the_most_similar_neighbour_counts() -> None:
    # 2 is like 0 and unlike 1; by the least similar neighbour it would win over 3.
    sims = np.array([[1, 0.2, 0.9, 0.5], [0.2, 1, 0.0, 0.5], [0.9, 0.0, 1, 0.1], [0.5, 0.5, 0.1, 1]])
    picks = select([1.0, 0.9, 0.8, 0.8], sims, count=3, weight=0.5)
    assert [one.index for one in picks] == [0, 1, 3]


@given(st.floats(0, 1))
def test_identical_texts_are_never_both_taken(weight: float) -> None:
    sims = np.array([[1, 1, 0.99], [1, 1, 0.99], [0.99, 0.99, 1]])
    assert [one.index for one in select([1.0, 1.0, 0.0], sims, count=2, weight=weight)] == [0, 2]


def test_ties_go_to_the_shorter_and_scores_are_scaled() -> None:
    assert [one.index for one in select([5.0, 5.0], np.eye(2), count=2, weight=0.3, lengths=[9, 4])] == [1, 0]
    assert list(relevance([-1.0, 0.0, 3.0])) == [0.0, 0.25, 1.0]
    assert list(relevance([0.2, 0.4])) == [0.2, 0.4]
    with pytest.raises(ValueError, match="between 0"):
        select([1.0], np.eye(1), count=1, weight=1.5)


def test_of_near_copies_the_better_stays() -> None:
    sims = np.array([[1, 0.85, 0.1], [0.85, 1, 0.1], [0.1, 0.1, 1]])
    assert without_near_copies([0.5, 0.9, 0.2], sims, threshold=0.8) == [1, 2]
    assert without_near_copies([0.5, 0.9, 0.2], sims, threshold=0.85) == [0, 1, 2]
    assert clusters(sims, threshold=0.8) == [0, 0, 1]
