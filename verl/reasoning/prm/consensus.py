"""Keeps only solutions of which completions and a judge say the same first error (Z. Zhang et al., 2025).

One decision: a judge that can only find false arithmetic is not asked whether a solution is right. Where the
completions name an error, `RuleJudge` must find the same; where they name none, it must find none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from verl.reasoning.prm.judge import StepJudge
from verl.reasoning.prm.rows import LabelledSolution


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How often two sources agreed."""

    kept: int
    """Solutions with the same first error, or none, by both."""
    differ: int
    """Solutions with different ones."""
    unjudged: int
    """Solutions of which the judge, or the labels, said nothing that could be read."""

    @property
    def share(self) -> float | None:
        """Of those that both judged, the share that was kept; None: there are none. About 0.4 in the paper."""
        both = self.kept + self.differ
        return self.kept / both if both else None


def keep_agreed(rows: Sequence[LabelledSolution], judge: StepJudge) -> tuple[list[LabelledSolution], Agreement]:
    """The rows on whose first error the judge agrees, and the counts of the rest.

    A row that the labels leave undecided before its first error, or without one, is counted as unjudged.
    """
    verdicts = judge.judge([row.prompt for row in rows], [row.completions for row in rows])
    kept, differ, unjudged = [], 0, 0
    for row, verdict in zip(rows, verdicts, strict=True):
        end = len(row.labels) if row.first_error < 0 else row.first_error
        if verdict.first_error is None or None in row.labels[:end]:
            unjudged += 1
        elif verdict.first_error == row.first_error:
            kept.append(row)
        else:
            differ += 1
    return kept, Agreement(kept=len(kept), differ=differ, unjudged=unjudged)
