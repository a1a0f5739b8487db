"""A study's figures, PNG files about 1000 pixels wide.

One decision: a figure carries the hash of what it was drawn from, so that whether it is current can be told without
drawing it again, on any version of the plotting library.

    >>> for figure in FIGURES:
    ...     figure.draw(summary, figure.path(summary, Path("docs/claim")))
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from verl.data_preprocessing.worlds.spec import Role
from verl.evaluation.study.summary import BASELINE, PERCENTS, PRIMARY, Summary
from verl.evaluation.study.tables import main_styles

WIDTH, DPI = 10, 100
"""Inches, and pixels an inch."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's, which the colour-blind can tell apart, but for yellow, which white paper swallows."""
GREY = "#666666"
LINES, MARKERS = ("-", "--", ":"), "osD^vXP"
ROLES: tuple[tuple[Role, str], ...] = (
    ("classmate", "classmates"),
    ("unseen", "unseen readers"),
    ("insider", "insider"),
)
"""Panels, and their headings."""
LABELLED = 0.08
"""Shares that are this wide are written into their bar."""


@dataclass(frozen=True, kw_only=True)
class StudyFigure:
    """One figure of every study."""

    name: str
    """The end of its file's name."""
    shows: str
    """What it shows, for those who cannot see it."""
    has_data: Callable[[Summary], bool]
    """Whether anything that it shows was measured."""
    paint: Callable[[Summary], Figure]
    """Draws it."""

    def path(self, summary: Summary, folder: Path) -> Path:
        """Its file."""
        return folder / f"{summary.name}_{self.name}.png"

    def link(self, summary: Summary, folder: str) -> str:
        """Markdown that shows it; `folder` as the page links to it."""
        return f"![{summary.name}: {self.shows}]({folder}/{summary.name}_{self.name}.png)"

    def draw(self, summary: Summary, path: Path) -> None:
        """Writes the file."""
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            metadata = {"Software": "matplotlib", "Source": summary.digest()}
            FigureCanvasAgg(self.paint(summary)).print_png(file, metadata=metadata)
        partial.replace(path)

    def is_current(self, summary: Summary, path: Path) -> bool:
        """Whether the file is there and was drawn from these runs."""
        return path.is_file() and summary.digest().encode() in path.read_bytes()


def _has_primary(summary: Summary) -> bool:
    return any(summary.values(arm, PRIMARY) for arm in summary.arms)


def _has_curves(summary: Summary) -> bool:
    return any(run.curves for run in summary.runs.values())


def _has_styles(summary: Summary) -> bool:
    return bool(main_styles(summary))


def _figure(height: float) -> Figure:
    return Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained")


def _rows(axis: Any, labels: Sequence[str]) -> None:
    """One row an arm, the first on top."""
    axis.set_yticks(range(len(labels)), labels)
    axis.set_ylim(len(labels) - 0.5, -0.5)
    axis.spines[["top", "right"]].set_visible(False)


def _paint_unseen(summary: Summary) -> Figure:
    """The primary measure, and the policy's accuracy beside it: a dot a seed, mean and interval."""
    arms = summary.arms
    figure = _figure(1.5 + 0.42 * len(arms))
    left, right = figure.subplots(1, 2, sharey=True)
    panels = (
        (left, PRIMARY, "unseen readers: accuracy with the thought\nless accuracy without (no answer in it)"),
        (right, "accuracy", "policy's own accuracy"),
    )
    for axis, measure, title in panels:
        for row, arm in enumerate(arms):
            _paint_arm(axis, row, summary, arm, measure)
        start = summary.start(measure).value
        if start is not None:
            axis.axvline(start, color=GREY, linestyle="--", linewidth=1)
            axis.annotate("start", (start, 1.0), (2, 1), xycoords=("data", "axes fraction"), textcoords="offset points")
        axis.set_title(title, fontsize=11, pad=14)
        axis.grid(axis="x", alpha=0.3)
    left.set_xlim(left=min(0.0, left.get_xlim()[0]))
    _rows(left, [summary.labels[arm] for arm in arms])
    right.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("a dot a seed; mean and 95 % interval", fontsize=10)
    return figure


def _paint_arm(axis: Any, row: int, summary: Summary, arm: str, measure: str) -> None:
    values = summary.values(arm, measure)
    colour = GREY if arm.startswith(BASELINE) else COLOURS[0]
    # Seeds lie at heights of their own, so that equal values do not hide each other.
    heights = [row + 0.28 * (k / max(1, len(values) - 1) - 0.5) + 0.22 for k in range(len(values))]
    axis.scatter(list(values.values()), heights, s=14, color=colour, alpha=0.55, linewidths=0)
    mean = summary.mean(arm, measure)
    if mean.value is not None:
        axis.errorbar(
            mean.value, row - 0.12, xerr=mean.half, fmt="D", markersize=6, color=colour, capsize=4, elinewidth=2
        )


def _paint_curves(summary: Summary) -> Figure:
    """Accuracy of the readers of each role against the share of the thought, a line an arm."""
    readers = {role: summary.readers(role) for role, _ in ROLES}
    panels = [(role, title) for role, title in ROLES if any(summary.curve(arm, readers[role]) for arm in summary.arms)]
    figure = _figure(4.2 + 0.25 * (len(summary.arms) / 4))
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    handles: dict[str, Any] = {}
    for axis, (role, title) in zip(axes, panels, strict=True):
        for number, arm in enumerate(summary.arms):
            points = summary.curve(arm, readers[role])
            if points is not None:
                (handles[summary.labels[arm]],) = axis.plot(
                    PERCENTS,
                    [point.value for point in points],
                    color=COLOURS[number % len(COLOURS)],
                    linestyle=LINES[number // len(COLOURS) % len(LINES)],
                    marker=MARKERS[number % len(MARKERS)],
                    markersize=5,
                )
        axis.set_title(title, fontsize=11)
        axis.set_xticks(PERCENTS)
        axis.set_xlabel("share of the thought, %")
        axis.set_ylim(0, 1)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("readers' accuracy")
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure


def _paint_styles(summary: Summary) -> Figure:
    """What share of the thoughts is in each style, a bar an arm."""
    styles = main_styles(summary)
    rows = [("start", [summary.start(f"style_{style}").value for style in styles])]
    rows += [
        (summary.labels[arm], [summary.mean(arm, f"style_{style}").value for style in styles]) for arm in summary.arms
    ]
    rows = [(label, shares) for label, shares in rows if any(share is not None for share in shares)]
    figure = _figure(1.3 + 0.36 * len(rows))
    axis = figure.subplots()
    for row, (_, shares) in enumerate(rows):
        ends = [0.0]
        for share in shares:
            ends.append(ends[-1] + (share or 0.0))
        for number, (begin, end) in enumerate(pairwise(ends)):
            colour = COLOURS[number % len(COLOURS)]
            axis.barh(row, end - begin, left=begin, height=0.7, color=colour, edgecolor="white")
            if end - begin >= LABELLED:
                axis.text(
                    (begin + end) / 2, row, f"{end - begin:.2f}", ha="center", va="center", color="white", fontsize=9
                )
    for number, style in enumerate(styles):
        axis.barh(0, 0, color=COLOURS[number % len(COLOURS)], label=style.replace("_", " "))
    _rows(axis, [label for label, _ in rows])
    axis.set_xlim(0, 1)
    axis.set_xlabel("share of the thoughts")
    figure.legend(loc="outside upper center", ncols=len(styles), frameon=False, fontsize=10)
    return figure


FIGURES = (
    StudyFigure(
        name="unseen",
        shows="how much unseen readers gain from the thought, and the policy's accuracy, of each arm and seed",
        has_data=_has_primary,
        paint=_paint_unseen,
    ),
    StudyFigure(
        name="styles",
        shows="shares of the styles of thought in each arm",
        has_data=_has_styles,
        paint=_paint_styles,
    ),
    StudyFigure(
        name="curves",
        shows="accuracy of the readers with 0 to 100 % of the thought, in each arm",
        has_data=_has_curves,
        paint=_paint_curves,
    ),
)
"""In the order of the page."""
