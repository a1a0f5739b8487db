"""Estimates against enumeration, and intervals that hold what they should."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl.reasoning.estimates import Estimate, accuracy, best_of_k, difference, maj_at_k, mean_of, pass_at_k

VERDICTS = st.lists(st.booleans(), min_size=1, max_size=7)


@given(VERDICTS, st.integers(1, 7))
def test_pass_at_k_is_the_mean_over_all_choices(rights: list[bool], k: int) -> None:
    k = min(k, len(rights))
    choices = list(itertools.combinations(rights, k))
    expected = sum(any(choice) for choice in choices) / len(choices)
    assert pass_at_k(n=len(rights), c=sum(rights), k=k) == pytest.approx(expected)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=7), st.integers(1, 7))
def test_best_of_k_is_the_mean_over_all_choices(samples: list[tuple[int, bool]], k: int) -> None:
    k = min(k, len(samples))
    found = []
    for choice in itertools.combinations(samples, k):
        best = [right for score, right in choice if score == max(one for one, _ in choice)]
        found.append(sum(best) / len(best))
    scores, rights = zip(*samples, strict=True)
    assert best_of_k(scores, rights, k) == pytest.approx(sum(found) / len(found))


@given(st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=1, max_size=8), st.integers(1, 8))
def test_maj_at_k_is_the_mean_over_all_choices(answers: list[int | None], k: int) -> None:
    k, found = min(k, len(answers)), []
    for choice in itertools.combinations(answers, k):
        votes = {one: choice.count(one) for one in choice if one is not None}
        winners = [one for one, times in votes.items() if times == max(votes.values())]
        found.append(winners.count(2) / len(winners) if winners else 0.0)
    rights = [answer == 2 for answer in answers]
    assert maj_at_k(answers, rights, k) == pytest.approx(sum(found) / len(found))


def test_many_votes_are_drawn() -> None:
    answers = [i % 20 for i in range(60)] + [7] * 8
    assert maj_at_k(answers, [answer == 7 for answer in answers], 40) > 0.9


def test_bad_numbers_are_refused() -> None:
    for call in (
        lambda: pass_at_k(n=4, c=5, k=1),
        lambda: pass_at_k(n=4, c=1, k=5),
        lambda: best_of_k([1.0], [True, False], 1),
        lambda: maj_at_k([1, 1], [True, False], 1),
        lambda: difference([1.0], [1.0, 2.0]),
    ):
        with pytest.raises(ValueError, match=r"write|give"):
            call()


@pytest.mark.guards("mean of an empty list")
def test_without_scores_there_is_no_number() -> None:
    assert mean_of([]) is None
    assert mean_of([None, None]) is None
    assert difference([None, 1.0], [1.0, None]) is None
    assert accuracy(0, 0) is None


def test_what_has_no_score_is_left_out_and_pairs_stay_pairs() -> None:
    found = difference([1.0, None, 0.5, 1.0], [0.0, 1.0, 0.0, None])
    assert found is not None
    assert (found.value, found.n) == (0.75, 2)
    same = difference([0.0, 1.0] * 50, [0.0, 1.0] * 50)
    assert same == Estimate(value=0.0, low=0.0, high=0.0, n=100)
    assert not same.excludes_zero
    assert str(mean_of([1.0] * 5)) == "1.000 [1.000, 1.000]"


def test_samples_of_one_problem_do_not_count_as_many() -> None:
    generator = np.random.default_rng(0)
    levels = generator.random(30)
    values = [float(level) for level in levels for _ in range(20)]
    problems = [i for i in range(30) for _ in range(20)]
    clustered, naive = mean_of(values, problems=problems), mean_of(values)
    assert clustered is not None
    assert naive is not None
    assert (clustered.high - clustered.low) / (naive.high - naive.low) == pytest.approx(math.sqrt(20), rel=0.15)
    assert clustered.high - clustered.low == pytest.approx(2 * 1.96 * levels.std() / math.sqrt(30), rel=0.15)


def test_seeds_widen_the_interval_where_they_differ() -> None:
    values = [seed / 10 for seed in range(5) for _ in range(50)]
    problems = [i for _ in range(5) for i in range(50)]
    seeds = [seed for seed in range(5) for _ in range(50)]
    without, with_seeds = mean_of(values, problems=problems), mean_of(values, problems=problems, seeds=seeds)
    assert without is not None
    assert with_seeds is not None
    assert without.high - without.low < 1e-9
    assert with_seeds.high - with_seeds.low > 0.15


def test_the_interval_holds_the_truth_in_most_cases() -> None:
    generator, held = np.random.default_rng(1), 0
    for _ in range(60):
        found = mean_of(generator.normal(0.3, 1, 60).tolist())
        assert found is not None
        held += found.low <= 0.3 <= found.high
    assert held >= 52
