"""Rows and metrics of the two public benchmarks of step judges: ProcessBench and PRMBench.

ProcessBench (arXiv:2412.06559) asks for the earliest wrong step; PRMBench (arXiv:2501.03124) for a verdict on each.
One decision: both become one kind of row, so that whatever judges steps is asked once and measured either way.

    >>> row = bench_row({"problem": "3 + 4?", "steps": ["3 + 4 = 8."], "label": 0})
    >>> row.first_error, row.wrong_steps
    (0, (0,))
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl.stepwise.first_error import NONE

REDUNDANT = ("redundency", "circular")
"""PRMBench's kinds of steps that are needless and not false; the first is spelled as in its files."""


@dataclass(frozen=True, kw_only=True)
class BenchRow:
    """One solution of a benchmark."""

    id: str
    """Its name in the benchmark."""
    problem: str
    """The question."""
    steps: tuple[str, ...]
    """Of the solution."""
    first_error: int
    """Earliest wrong step, counted from 0; -1: none."""
    wrong_steps: tuple[int, ...] | None
    """All wrong steps, from 0; None: only the first is known, as in ProcessBench."""
    kind: str = ""
    """PRMBench's class, or ProcessBench's split."""
    answer_right: bool | None = None
    """Whether the final answer is right; None: not told."""


@dataclass(frozen=True, kw_only=True)
class StepVerdicts:
    """Verdicts on single steps against the truth; a right step is the positive class."""

    true_positive: int = 0
    """Right steps called right."""
    false_positive: int = 0
    """Wrong steps called right."""
    true_negative: int = 0
    """Wrong steps called wrong."""
    false_negative: int = 0
    """Right steps called wrong."""

    @property
    def f1(self) -> float | None:
        """Of finding the right steps; None: there are none, and none was named."""
        return _f1(self.true_positive, self.false_positive, self.false_negative)

    @property
    def f1_neg(self) -> float | None:
        """Of finding the wrong steps."""
        return _f1(self.true_negative, self.false_negative, self.false_positive)

    @property
    def prm_score(self) -> float | None:
        """PRMBench's number: the mean of the two."""
        return None if self.f1 is None or self.f1_neg is None else (self.f1 + self.f1_neg) / 2

    def __add__(self, other: "StepVerdicts") -> "StepVerdicts":
        return StepVerdicts(
            true_positive=self.true_positive + other.true_positive,
            false_positive=self.false_positive + other.false_positive,
            true_negative=self.true_negative + other.true_negative,
            false_negative=self.false_negative + other.false_negative,
        )


def bench_row(values: Mapping[str, Any]) -> BenchRow:
    """A row of ProcessBench (`problem, steps, label`) or of PRMBench (`modified_process, error_steps`, from 1).

    Raises:
        ValueError: it is neither, or names a step that it does not have.
    """
    if "modified_process" in values:
        return _prmbench_row(values)
    try:
        problem, steps, label = str(values["problem"]), _texts(values["steps"]), int(values["label"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"no row of a benchmark ({type(error).__name__}: {error}); it needs problem, steps and label, or PRMBench's"
            " modified_question, modified_process and error_steps"
        ) from None
    if not NONE <= label < len(steps):
        raise ValueError(f"label {label} of a solution with {len(steps)} steps; write -1 or the place of a step")
    right = values.get("final_answer_correct")
    name = str(values.get("id", ""))
    return BenchRow(
        id=name,
        problem=problem,
        steps=steps,
        first_error=label,
        wrong_steps=() if label == NONE else ((label,) if label == len(steps) - 1 else None),
        kind=name.rsplit("-", 1)[0],
        answer_right=None if right is None else bool(right),
    )


def verdicts(row: BenchRow, right: Sequence[bool | None]) -> StepVerdicts:
    """Verdicts on the steps of one row; a step without one is left out.

    Raises:
        ValueError: not all wrong steps of the row are known, or there is not one verdict for each step.
    """
    if row.wrong_steps is None:
        raise ValueError(f"row {row.id!r} tells its first error only; use found_errors, as ProcessBench does")
    if len(right) != len(row.steps):
        raise ValueError(f"{len(right)} verdicts for the {len(row.steps)} steps of {row.id!r}; give one for each")
    counted = [(is_right, place in row.wrong_steps) for place, is_right in enumerate(right) if is_right is not None]
    return StepVerdicts(
        true_positive=sum(said and not wrong for said, wrong in counted),
        false_positive=sum(said and wrong for said, wrong in counted),
        true_negative=sum(not said and wrong for said, wrong in counted),
        false_negative=sum(not said and not wrong for said, wrong in counted),
    )


def _prmbench_row(values: Mapping[str, Any]) -> BenchRow:
    try:
        problem = str(values.get("modified_question") or values["question"])
        steps = _texts(values["modified_process"])
        wrong = sorted(int(number) - 1 for number in values["error_steps"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"no row of PRMBench ({type(error).__name__}: {error})") from None
    # A step that is not there counts nowhere, as in PRMBench's own metric.
    wrong = [place for place in wrong if 0 <= place < len(steps)]
    return BenchRow(
        id=str(values.get("idx", "")),
        problem=problem,
        steps=steps,
        first_error=wrong[0] if wrong else NONE,
        wrong_steps=tuple(wrong),
        kind=str(values.get("classification", "")),
    )


def _texts(steps: Any) -> tuple[str, ...]:
    if isinstance(steps, str) or not all(isinstance(step, str) for step in steps):
        raise ValueError("the steps are no list of texts")
    return tuple(steps)


def _f1(hit: int, wrongly: int, missed: int) -> float | None:
    total = 2 * hit + wrongly + missed
    return 2 * hit / total if total else None
