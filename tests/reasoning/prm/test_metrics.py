"""Numbers of step scores, against pairs that are counted one by one, and calibration."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl.reasoning.prm.calibration import Calibration, fit_temperature
from verl.reasoning.prm.metrics import auroc, average_precision, solution_metrics, step_metrics
from verl.stepwise.first_error import NONE, first_error, found_errors

PAIRS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]), st.booleans()), min_size=1, max_size=30
)


@given(PAIRS)
def test_auroc_counts_pairs(pairs: list[tuple[float, bool]]) -> None:
    scores, right = np.array([s for s, _ in pairs]), np.array([r for _, r in pairs])
    won = [1.0 if a > b else 0.5 if a == b else 0.0 for a in scores[right] for b in scores[~right]]
    told = auroc(scores, right)
    assert told == (pytest.approx(sum(won) / len(won)) if won else None)


@given(PAIRS)
def test_average_precision_walks_the_thresholds(pairs: list[tuple[float, bool]]) -> None:
    scores, right = np.array([s for s, _ in pairs]), np.array([r for _, r in pairs])
    area, before = 0.0, 0.0
    for cut in sorted(set(scores), reverse=True):
        called = scores >= cut
        recall = (called & right).sum() / max(1, right.sum())
        area += (recall - before) * (called & right).sum() / called.sum()
        before = recall
    assert average_precision(scores, right) == (pytest.approx(area) if right.any() else None)


def test_numbers_by_hand() -> None:
    told = step_metrics([0.9, 0.7, 0.4, 0.2], [1, 1, 1, 0])
    assert told["avg_correct_score"] == pytest.approx(2 / 3)
    assert told["avg_incorrect_score"] == pytest.approx(0.2)
    assert told["score_gap"] == pytest.approx(2 / 3 - 0.2)
    assert told["discrimination_accuracy"] == 0.75
    assert told["auroc"] == told["ap"] == 1.0
    assert told["brier"] == pytest.approx((0.01 + 0.09 + 0.36 + 0.04) / 4)
    assert told["f1_neg"] == pytest.approx(2 / 3), "two called wrong, one is"
    assert told["ece"] == pytest.approx((0.1 + 0.3 + 0.6 + 0.2) / 4)


def test_one_class_has_no_auroc() -> None:
    told = step_metrics([0.9, 0.8], [1, 1])
    assert (told["auroc"], told["avg_incorrect_score"], told["score_gap"]) == (None, None, None)


def test_solutions_by_hand() -> None:
    told = solution_metrics([[0.9, 0.1], [0.9, 0.8], [0.2, 0.1], [0.9, None]], [1, NONE, 0, 1])
    assert (told["first_error_acc"], told["correct_acc"], told["processbench_f1"]) == (1.0, 1.0, 1.0)
    assert told["min_at_last_share"] == 1.0
    assert told["weakest_step_acc"] == 0.5, "the weakest step is not the first error"
    assert told["n_unscored"] == 1


def test_a_temperature_undoes_false_certainty() -> None:
    rng = random.Random(0)
    true_odds = [rng.gauss(0, 2) for _ in range(4000)]
    labels = [float(rng.random() < 1 / (1 + math.exp(-odds))) for odds in true_odds]
    assert fit_temperature([3 * odds for odds in true_odds], labels) == pytest.approx(3, rel=0.1)
    assert fit_temperature([], []) == 1.0


def test_calibration_puts_the_threshold_at_a_half() -> None:
    scores = [[0.9, 0.02], [0.7, 0.8], [0.05, 0.5], [0.6, 0.9]]
    truths = [1, NONE, 0, NONE]
    scale = Calibration.fit(scores, truths)
    mapped = [[scale(score) for score in row] for row in scores]
    assert found_errors([first_error(row, 0.5) for row in mapped], truths).f1 == 1.0
    flat = sorted(score for row in scores for score in row)
    assert sorted(map(scale, flat)) == list(map(scale, flat)), "it keeps the order"
    assert all(0 <= scale(score) <= 1 for score in (0.0, 1e-30, 1.0))
    assert Calibration(**scale.as_dict()) == scale
