"""The results' part of docs/rival_study.md: verdicts, tables and figures, from result files and predictions alone.

One decision: nothing of it is edited by hand, and a check says whether it is what the files give.

    >>> write_report(Path("docs/rival_study"))
    >>> check_report(Path("docs/rival_study"))
    []
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from verl.evaluation.rival_study.presets import STUDIES
from verl.evaluation.rival_study.spec import RivalStudy
from verl.evaluation.study import tables
from verl.evaluation.study.figures import FIGURES
from verl.evaluation.study.report import StudyReport, check_page, write_page
from verl.evaluation.study.summary import PRIMARY, Summary
from verl.evaluation.study.tables import cell, difference_cells, table

_LEGEND = """
Each number is a mean over seeds, with half its 95 % t interval; a seed is one observation. p: exact two-sided sign test
over seeds, which is at least .0625 with five. *Unseen readers, gain*: accuracy of readers that were never asked in
training from the thought without its answer, less their accuracy from the question alone. *Sound*: share of the
held-out thoughts without a wrong step; *sound when right*: the same of those with a right answer. Tokens are in
thousands: *sampled* by the policy for training; *trained on*, every pass counted; *read*, shown to readers and written
by them for training. Tables and figures are made from the result files and the predictions by one command; nothing here
is edited.
"""
_COMPARED = (
    ("rl_classmates", "rl"),
    ("rl_classmates", "rft"),
    ("rl_classmates", "rft_reader"),
    ("rl_classmates", "rft_sound"),
    ("rl_classmates", "rft_worked"),
    ("rft", "rl"),
    ("rft", "start"),
    ("rft_3", "rft"),
    ("rft_reader", "rft"),
    ("rft_sound", "rft"),
    ("rft_worked", "rft_sound"),
)
"""Which arm less which, where a study has both."""
_OUTCOMES = {
    "accuracy": "policy's accuracy",
    "tokens": "tokens",
    PRIMARY: "unseen readers, gain",
    "unseen_raw": "unseen readers, whole thought",
    "classmates": "classmates",
    "sound": "sound",
    "sound_when_right": "sound when right",
    "follows_hint": "follows the hint",
}
_DIFFERENCES = ("accuracy", PRIMARY, "sound_when_right")
_COSTS = {
    "tokens_sampled": "sampled, thousands",
    "tokens_trained": "trained on, thousands",
    "tokens_read": "read, thousands",
}
_KEPT = {
    "kept_right": "right",
    "kept_approved": "readers approve, of the right",
    "kept_sound": "sound, of the right",
    "kept": "learnt from",
}


class Report(StudyReport):
    """Studies of rivals."""

    legend = _LEGEND
    figures = FIGURES

    def predictions(self) -> str:
        """Table of the verdicts."""
        labels = {summary.name: dict(summary.labels) for summary in self.summaries}
        return tables.verdicts_table(self.verdicts, labels)

    def study(self, summary: Summary, figures_at: str) -> list[str]:
        """What is shown of a study that has a run."""
        drawn = {figure.name: figure.link(summary, figures_at) for figure in FIGURES if figure.has_data(summary)}
        parts = [drawn.get("unseen", ""), _means(summary, _OUTCOMES), _differences(summary), "Tokens:", _costs(summary)]
        parts += [drawn.get("styles", ""), tables.styles_table(summary), drawn.get("curves", "")]
        shown = [arm for arm in ("rft", "rl_classmates") if arm in summary.arms]
        return [*parts, tables.examples_table(summary, shown) if shown else ""]


def _means(summary: Summary, measures: Mapping[str, str]) -> str:
    there = [name for name in measures if any(summary.values(arm, name) for arm in summary.arms)]
    rows = [
        [
            summary.labels[arm],
            str(len(summary.runs_of(arm))),
            *(cell(summary.mean(arm, name), tables.DIGITS.get(name, 2)) for name in there),
        ]
        for arm in summary.arms
    ]
    return table(["arm", "seeds", *(measures[name] for name in there)], rows)


def _differences(summary: Summary) -> str:
    rows = []
    for arm, other in _COMPARED:
        if arm in summary.arms and other in summary.arms:
            cells = [summary.labels[arm], summary.labels[other]]
            for measure in _DIFFERENCES:
                cells += difference_cells(summary.difference(arm, other, measure), 2)
            rows.append(cells)
    if not rows:
        return ""
    head = [name for measure in _DIFFERENCES for name in (_OUTCOMES[measure], "p")]
    return table(["arm", "less", *head], rows, left=2)


def _costs(summary: Summary) -> str:
    def in_thousands(arm: str, measure: str) -> str:
        values = list(summary.values(arm, measure).values())
        return f"{sum(values) / len(values) / 1000:.0f}" if values else tables.NOTHING

    rows: list[Sequence[str]] = []
    for arm in summary.arms:
        tokens = [in_thousands(arm, name) for name in _COSTS]
        seconds = [run.seconds["training"] for run in summary.runs_of(arm)]
        shares = [cell(summary.mean(arm, name)) for name in _KEPT]
        rows.append([summary.labels[arm], *tokens, f"{sum(seconds) / len(seconds):.0f}", *shares])
    return table(["arm", *_COSTS.values(), "seconds", *_KEPT.values()], rows)


def write_report(results_dir: Path, studies: Mapping[str, RivalStudy] = STUDIES) -> list[Path]:
    """Makes the page beside `results_dir`, and says what was written.

    Raises:
        ValueError: the page lacks a mark, or a file is no result or no prediction; in one line.
    """
    return write_page(Report.read(results_dir, studies), results_dir)


def check_report(results_dir: Path, studies: Mapping[str, RivalStudy] = STUDIES) -> list[str]:
    """What of the page and its figures is not what the files give, a line each; empty if all is."""
    return check_page(Report.read(results_dir, studies), results_dir)
