"""How well a judge finds first errors, kind by kind.

One decision: the F1 of a kind is that of the solutions with a first error of this kind and of all solutions without
one, at the judge's own threshold; nothing is fitted on what is measured.

    >>> judge_numbers(judge, rows)["f1"]["copy"]
    0.88
"""

from collections.abc import Sequence
from typing import Any

from verl.data_preprocessing.reasoning_world.checking import KINDS
from verl.evaluation.step_judges.labelled import Labelled
from verl.reasoning.prm.metrics import solution_metrics
from verl.reasoning.step_scorer import StepScorer

ALL = "all"
"""All kinds together."""
THRESHOLD = 0.5
"""Of calibrated judges."""


def judge_numbers(judge: StepScorer, rows: Sequence[Labelled]) -> dict[str, Any]:
    """Numbers of a calibrated judge on labelled solutions.

    Returns:
        `f1`, `error_acc`, `weakest_step` by kind and of all; `correct_acc`; `weakest_planted`: the share of planted
        errors that are their solution's weakest step; `tokens`: read and written for a solution.
    """
    before = _tokens(judge)
    scores = judge.score_steps([one.row.prompt for one in rows], [one.row.completions for one in rows])
    found: dict[str, Any] = {"f1": {}, "error_acc": {}, "weakest_step": {}}
    for kind in (ALL, *KINDS):
        chosen = [place for place, one in enumerate(rows) if kind == ALL or one.kind in ("", kind)]
        told = solution_metrics(
            [scores[place] for place in chosen], [rows[place].row.first_error for place in chosen], THRESHOLD
        )
        found["f1"][kind], found["error_acc"][kind] = told["processbench_f1"], told["first_error_acc"]
        found["weakest_step"][kind] = told["weakest_step_acc"]
        found["correct_acc"] = told["correct_acc"]
    planted = [place for place, one in enumerate(rows) if one.planted]
    told = solution_metrics([scores[i] for i in planted], [rows[i].row.first_error for i in planted], THRESHOLD)
    found["weakest_planted"] = told["weakest_step_acc"]
    return {**found, "tokens": round((_tokens(judge) - before) / max(1, len(rows)), 1)}


def _tokens(judge: StepScorer) -> int:
    """Read and written so far; a judge in words counts its questions apart."""
    parts = getattr(judge, "scorers", (judge,))
    return sum(getattr(part, "tokens", 0) + getattr(part, "read", 0) for part in parts)
