"""Figures of studies of teachers: what each student gains from whom, and how much of a gain tells the answer.

>>> for figure in FIGURES[summary.name]:
...     figure.draw(summary, figure.path(summary, Path("docs/teaching_study")))
"""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from verl.evaluation.study.figures import COLOURS, DPI, GREY, MARKERS, WIDTH, StudyFigure
from verl.evaluation.study.summary import Summary

TUTORS = {
    "null": "nobody (asked again)",
    "untrained": "untrained teacher",
    "fixed_all": "best fixed advice, one for all",
    "fixed_own": "best fixed advice, one for each",
    "teacher": "trained teacher",
    "reveal": "who tells the answer",
}
"""Who may advise, in the order of tables."""


def students_of(summary: Summary) -> list[str]:
    """Names of the students that any run measured, in the order of the evaluation."""
    found = dict.fromkeys(name.split(".")[1] for run in summary.runs.values() for name in run.numbers if ".APG" in name)
    return [name for name in found if name not in ("trained", "unseen", "all")]


def has_tutors(summary: Summary) -> bool:
    """Whether any teacher was compared with fixed advice."""
    return any(summary.values(arm, "fixed_own.all.APG") for arm in summary.arms)


def has_leaks(summary: Summary) -> bool:
    """Whether any arm does something about leaks."""
    return "reported" in summary.arms


def _rows_of(summary: Summary) -> list[tuple[str, str, str]]:
    """Label, arm and tutor of each row."""
    first = summary.arms[0]
    rows = [(label, first, tutor) for tutor, label in TUTORS.items() if tutor != "teacher"]
    trained = [(f"teacher, {summary.labels[arm]}", arm, "teacher") for arm in summary.arms]
    return [*rows[:-1], *trained, rows[-1]]


def _paint_gains(summary: Summary) -> Figure:
    """Gain of each student from each tutor: a dot a seed, mean and interval."""
    students, rows = students_of(summary), _rows_of(summary)
    figure = Figure(figsize=(WIDTH, 1.5 + 0.36 * len(rows)), dpi=DPI, layout="constrained")
    axes = figure.subplots(1, len(students), sharey=True, squeeze=False)[0]
    for axis, student in zip(axes, students, strict=True):
        for place, (_, arm, tutor) in enumerate(rows):
            colour = COLOURS[0] if tutor == "teacher" else GREY
            _paint_cell(axis, place, summary, arm, f"{tutor}.{student}.APG", colour)
        axis.axvline(0, color=GREY, linewidth=1)
        axis.set_title(student.replace("_", " "), fontsize=11)
        axis.grid(axis="x", alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_yticks(range(len(rows)), [label for label, _, _ in rows])
    axes[0].set_ylim(len(rows) - 0.5, -0.5)
    figure.supxlabel("gain in the share solved; a dot a seed, mean and 95 % interval", fontsize=10)
    return figure


def _paint_cell(axis: Any, place: float, summary: Summary, arm: str, measure: str, colour: str) -> None:
    values = list(summary.values(arm, measure).values())
    axis.scatter(values, [place + 0.2] * len(values), s=14, color=colour, alpha=0.55, linewidths=0)
    mean = summary.mean(arm, measure)
    if mean.value is not None:
        axis.errorbar(
            mean.value, place - 0.1, xerr=mean.half, fmt="D", markersize=5, color=colour, capsize=3, elinewidth=2
        )


def _paint_leaks(summary: Summary) -> Figure:
    """Share solved with advice against the share of advice that gives the answer away."""
    figure = Figure(figsize=(WIDTH, 4.8), dpi=DPI, layout="constrained")
    axis = figure.subplots()
    points = [("before training", summary.arms[0], "untrained", GREY)]
    points += [
        (summary.labels[arm], arm, "teacher", COLOURS[number % len(COLOURS)]) for number, arm in enumerate(summary.arms)
    ]
    for number, (label, arm, tutor, colour) in enumerate(points):
        pairs = _pairs(summary, arm, tutor)
        if not pairs:
            continue
        leak, solved = zip(*pairs, strict=True)
        marker = MARKERS[number % len(MARKERS)]
        axis.scatter(leak, solved, s=20, color=colour, alpha=0.45, marker=marker, linewidths=0)
        axis.scatter(
            [sum(leak) / len(leak)], [sum(solved) / len(solved)], s=90, color=colour, marker=marker, label=label
        )
    alone = summary.mean(summary.arms[0], "teacher.all.b").value
    if alone is not None:
        axis.axhline(alone, color=GREY, linestyle="--", linewidth=1)
        axis.annotate("solved alone", (1.0, alone), (-2, 3), textcoords="offset points", ha="right", color=GREY)
    axis.set_xlabel("share of advice that gives the answer away")
    axis.set_ylabel("share solved with advice, all students")
    axis.set_xlim(-0.02, 1.02)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=9)
    figure.supxlabel("small: a seed; large: mean", fontsize=10)
    return figure


def _pairs(summary: Summary, arm: str, tutor: str) -> Sequence[tuple[float, float]]:
    """Leak rate and solve rate at each seed that has both."""
    leaks, solved = (summary.values(arm, f"{tutor}.all.{measure}") for measure in ("leak", "w"))
    return [(leaks[seed], solved[seed]) for seed in sorted(leaks.keys() & solved.keys())]


FIGURES = (
    StudyFigure(
        name="gains",
        shows="how much each student gains from the trained teacher and from its rivals, at each seed",
        has_data=has_tutors,
        paint=_paint_gains,
    ),
    StudyFigure(
        name="leaks",
        shows="share solved with advice against the share of advice that gives the answer away, for each setting",
        has_data=has_leaks,
        paint=_paint_leaks,
    ),
)
"""In the order of the page."""
