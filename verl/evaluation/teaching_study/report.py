"""The results' part of docs/teaching_study.md: verdicts, tables and figures, from result files and predictions alone.

One decision: nothing of it is edited by hand, and a check says whether it is what the files give.

    >>> write_report(Path("docs/teaching_study"))
    >>> check_report(Path("docs/teaching_study"))
    []
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from verl.evaluation.study.report import StudyReport, check_page, write_page
from verl.evaluation.study.results import load_results
from verl.evaluation.study.summary import Summary
from verl.evaluation.study.tables import as_code, cell, difference_cells, one_line, rule_of, table
from verl.evaluation.study.verdicts import AnyStudy, Verdict
from verl.evaluation.teaching_study.bounds import refuse_impossible
from verl.evaluation.teaching_study.figures import FIGURES, TUTORS, has_leaks, has_tutors, students_of
from verl.evaluation.teaching_study.presets import STUDIES
from verl.evaluation.teaching_study.spec import TeachingStudy

_LEGEND = """
Each number is a mean over seeds, with half its 95 % t interval. A seed is one observation: it has its own questions,
teacher and training, so that the interval covers both the choice of questions and the luck of a training. p: exact
two-sided sign test over seeds, which is at least .0625 with five. Numbers are explained in
[Teachers evaluated](teaching_evaluation.md#numbers). Tables and figures are made from the result files and the
predictions by one command; nothing here is edited.
"""


class Report(StudyReport):
    """Studies of teachers."""

    legend = _LEGEND
    figures = FIGURES

    @classmethod
    def read(cls, results_dir: Path, studies: Mapping[str, AnyStudy]) -> Self:
        """From the files.

        Raises:
            ValueError: as above it, and for a number that its measure cannot have; in one line.
        """
        for run in load_results(results_dir):
            refuse_impossible(str(run.path(results_dir)), run.numbers)
        return super().read(results_dir, studies)

    def predictions(self) -> str:
        """Table of the verdicts."""
        head = ["prediction", "study", "compared", "predicted", "found", "p", "verdict"]
        return table(head, map(_verdict_row, self.verdicts), left=4)

    def study(self, summary: Summary, figures_at: str) -> list[str]:
        """What is shown of a study that has a run."""
        parts = [figure.link(summary, figures_at) for figure in FIGURES if figure.has_data(summary)]
        if has_tutors(summary):
            parts += ["Gain in the share solved (APG):", _gains(summary), _HARM, _harm(summary)]
        if has_leaks(summary):
            parts += [_LEAKS, _leaks(summary)]
        return [*parts, _examples(summary)]


def _verdict_row(one: Verdict) -> list[str]:
    predicted = one.prediction
    left, right = (
        f"`{arm}: {measure}`"
        for arm, measure in (
            (predicted.left, predicted.measure),
            (predicted.right, predicted.right_measure or predicted.measure),
        )
    )
    return [
        f"**{predicted.name}**: {one_line(predicted.text)}",
        predicted.study,
        f"{left} less {right}",
        rule_of(one),
        *difference_cells(one.difference, 2),
        f"**{one.outcome}**" + (f": {one.why}" if one.why else ""),
    ]


def _gains(summary: Summary) -> str:
    students, first = students_of(summary), summary.arms[0]
    rows = [["solved alone", *(cell(summary.mean(first, f"teacher.{name}.b")) for name in students)]]

    def row(label: str, arm: str, tutor: str) -> list[str]:
        return [label, *(cell(summary.mean(arm, f"{tutor}.{name}.APG"), signed=True) for name in students)]

    rows += [row(label, first, tutor) for tutor, label in TUTORS.items() if tutor not in ("teacher", "reveal")]
    rows += [row(f"teacher, {summary.labels[arm]}", arm, "teacher") for arm in summary.arms]
    rows.append(row(TUTORS["reveal"], first, "reveal"))
    return table(["advice of", *students], rows)


def _harm(summary: Summary) -> str:
    """What a teacher does to those who were right, how often it says nothing, and how long its advice is."""
    measures = {"harm": "right to wrong (1 - NDR_c)", "empty": "empty advice", "length": "tokens, in the teacher's"}
    tutors = [(f"teacher, {summary.labels[arm]}", arm, "teacher") for arm in summary.arms]
    tutors = [*((TUTORS[tutor], summary.arms[0], tutor) for tutor in ("null", "untrained")), *tutors]
    rows = []
    for name in students_of(summary):
        for label, arm, tutor in tutors:
            cells = [
                cell(summary.mean(arm, f"{tutor}.{name}.{measure}"), 1 if measure == "length" else 2)
                for measure in measures
            ]
            rows.append([name, label, *cells])
    return table(["student", "advice of", *measures.values()], rows, left=2)


_HARM = (
    "Harm, abstention and length. A student that is right in a part of its answers loses some of them by chance "
    "alone, when it is asked again: harm is to be read beside nobody's."
)
_LEAKS = (
    "All students together. *Clean gain*: the gain that comes of advice which does not give the answer away, over all "
    "questions. *Strong, right to wrong*: 1 - NDR_c of the strong student."
)


def _leaks(summary: Summary) -> str:
    measures = {
        "all.leak": "leak rate",
        "all.w": "solved with advice",
        "all.APG": "gain",
        "all.clean": "clean gain",
        "all.empty": "empty advice",
        "strong.harm": "strong, right to wrong",
    }

    def row(label: str, arm: str, tutor: str) -> list[str]:
        return [label, *(cell(summary.mean(arm, f"{tutor}.{measure}")) for measure in measures)]

    rows = [row("before training", summary.arms[0], "untrained")]
    rows += [row(summary.labels[arm], arm, "teacher") for arm in summary.arms]
    return table(["setting", *measures.values()], rows)


def _examples(summary: Summary) -> str:
    """What one teacher says, in the first arm at its first seed."""
    arm = summary.arms[0]
    run = summary.runs_of(arm)[0]
    rows: list[Sequence[str]] = [[as_code(one[key]) for key in ("question", "before", "after")] for one in run.examples]
    if not rows:
        return ""
    shown = table(["student and question", "untrained teacher", f"teacher, {summary.labels[arm]}"], rows, left=3)
    return f"<details><summary>What is said, at seed {run.seed}</summary>\n\n{shown}\n\n</details>"


def write_report(results_dir: Path, studies: Mapping[str, TeachingStudy] = STUDIES) -> list[Path]:
    """Makes the page beside `results_dir`, and says what was written.

    Raises:
        ValueError: the page lacks a mark, or a file is no result or no prediction; in one line.
    """
    return write_page(Report.read(results_dir, studies), results_dir)


def check_report(results_dir: Path, studies: Mapping[str, TeachingStudy] = STUDIES) -> list[str]:
    """What of the page and its figures is not what the files give, a line each; empty if all is."""
    return check_page(Report.read(results_dir, studies), results_dir)
