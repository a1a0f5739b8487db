"""Rows and numbers of ProcessBench and PRMBench against numbers computed by hand."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from verl.stepwise.first_error import first_error, found_errors
from verl.stepwise.processbench import StepVerdicts, bench_row, verdicts

PRM_ROW = {
    "original_question": "q",
    "modified_question": "What is 3 + 4 + 1?",
    "original_process": ["3 + 4 = 7", "7 + 1 = 8", "8"],
    "modified_process": ["3 + 4 = 6", "6 + 1 = 7", "7"],
    "modified_steps": [1, 2, 3],
    "error_steps": [1, 3],
    "idx": "prm_test_p1_0",
    "classification": "confidence",
}


def test_both_formats_become_one() -> None:
    row = bench_row({"id": "gsm8k-7", "problem": "p", "steps": ["a", "b"], "label": 1, "final_answer_correct": True})
    assert (row.first_error, row.wrong_steps, row.kind, row.answer_right) == (1, (1,), "gsm8k", True)
    assert bench_row({"problem": "p", "steps": ["a", "b"], "label": 0}).wrong_steps is None, "b is not known"
    other = bench_row(PRM_ROW)
    assert (other.problem, other.first_error, other.wrong_steps) == ("What is 3 + 4 + 1?", 0, (0, 2))
    assert other.kind == "confidence"


def test_no_row_of_a_benchmark_is_told() -> None:
    with pytest.raises(ValueError, match="needs problem, steps and label"):
        bench_row({"question": "p"})
    with pytest.raises(ValueError, match="label 2 of a solution with 2 steps"):
        bench_row({"problem": "p", "steps": ["a", "b"], "label": 2})


def test_prm_score_by_hand() -> None:
    # Wrong are steps 0 and 2; called wrong are 0 and 1: one hit, one miss, one false alarm, no right step left.
    told = verdicts(bench_row(PRM_ROW), [False, False, True])
    assert told == StepVerdicts(true_positive=0, false_positive=1, true_negative=1, false_negative=1)
    assert told.f1 == 0.0
    assert told.f1_neg == pytest.approx(0.5)
    assert told.prm_score == pytest.approx(0.25)
    both = told + StepVerdicts(true_positive=3)
    assert both.f1 == pytest.approx(6 / 8)
    assert verdicts(bench_row(PRM_ROW), [None, False, True]).true_negative == 0, "what was not judged counts nowhere"


def test_processbench_f1_by_hand() -> None:
    # Of three with an error one is exact; of two without both are: 2 * 1/3 * 1 / (1/3 + 1) = 1/2.
    rows = [[0.9, 0.1], [0.1, 0.1], [0.9, 0.9], [0.9, 0.9], [0.8]]
    told = found_errors([first_error(row) for row in rows], [1, 1, 0, -1, -1])
    assert told.f1 == pytest.approx(0.5)


def test_real_rows_are_read(sample_data: Callable[[str], Path]) -> None:
    rows = [bench_row(json.loads(line)) for line in sample_data("processbench_gsm8k.jsonl").read_text().splitlines()]
    assert len(rows) == 297
    always_right = found_errors([-1] * len(rows), [row.first_error for row in rows])
    assert (always_right.correct_accuracy, always_right.error_accuracy, always_right.f1) == (1.0, 0.0, 0.0)
