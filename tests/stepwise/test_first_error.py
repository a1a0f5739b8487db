"""First errors: where a solution goes wrong, how well that is found, and which threshold finds it best."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl.stepwise.first_error import NONE, best_threshold, first_error, first_wrong, found_errors

SOLUTIONS = st.lists(
    st.integers(1, 5).flatmap(
        lambda n: st.tuples(
            st.lists(st.sampled_from([0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95]), min_size=n, max_size=n),
            st.integers(-1, n - 1),
        )
    ),
    min_size=1,
    max_size=12,
)


def test_the_earliest_low_score_counts() -> None:
    assert first_error([0.9, 0.4, 0.1]) == 1
    assert first_error([0.9, 0.5]) == NONE, "at the threshold is right"
    assert first_error([]) == NONE
    assert first_wrong([True, None, False, False]) == 2


def test_a_gap_makes_it_unknown() -> None:
    assert first_error([0.9, None, 0.1]) is None, "the step between may be the first error"
    assert first_error([0.1, None]) == 0
    assert first_error([0.9, None]) is None


def test_f1_by_hand() -> None:
    told = found_errors([1, NONE, 2, NONE, None], [1, NONE, 0, NONE, 3])
    assert (told.error_accuracy, told.correct_accuracy) == (0.5, 1.0)
    assert told.f1 == pytest.approx(2 / 3)
    assert told.n_unscored == 1
    assert found_errors([0], [0]).f1 is None, "no right solution, no F1"
    assert found_errors([0, 0], [1, NONE]).f1 == 0.0


@settings(max_examples=200)
@given(SOLUTIONS)
def test_no_threshold_is_better(solutions: list[tuple[list[float], int]]) -> None:
    scores, truths = [one for one, _ in solutions], [truth for _, truth in solutions]

    def worth(threshold: float) -> float:
        told = found_errors([first_error(one, threshold) for one in scores], truths)
        if told.f1 is not None:
            return told.f1
        exact = [(told.error_accuracy or 0) * told.n_error, (told.correct_accuracy or 0) * told.n_correct]
        return sum(exact)

    best = best_threshold(scores, truths)
    assert 0 <= best <= 1
    assert worth(best) >= max(worth(cut / 40) for cut in range(41)) - 1e-9


def test_the_threshold_lies_in_the_middle_of_the_gap() -> None:
    assert best_threshold([[0.9, 0.2], [0.8, 0.7]], [1, NONE]) == pytest.approx(0.45)


def test_unscored_solutions_do_not_move_the_threshold() -> None:
    rows = [[0.9, 0.2], [0.8, 0.7]]
    assert best_threshold([*rows, [None, 0.3]], [1, NONE, 1]) == pytest.approx(0.25 + 0.2, abs=0.21)
    assert first_error([0.9, 0.2], best_threshold([*rows, [None, 0.3]], [1, NONE, 1])) == 1


def test_nothing_to_choose_from_is_told() -> None:
    with pytest.raises(ValueError, match="at least one"):
        best_threshold([], [])
    with pytest.raises(ValueError, match="give one for each"):
        found_errors([1], [])
