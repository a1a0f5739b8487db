"""`pipeline_report.png`: what each model of a pipeline does on held-out problems, one model a line.

One decision: the picture has the numbers of the page's first table and no others.

    >>> draw(reports, Path("outputs/reasoning/pipeline_report.png"))
"""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from verl.reasoning.estimates import Estimate
from verl.reasoning.evaluation import EvalReport
from verl.reasoning.pipeline_report import start_of

_WIDTH, _LINE, _DPI = 12.0, 0.55, 100
"""Inches of the picture, inches a model takes, and pixels an inch."""
_KINDS = (
    ("greedy", "greedy", "#CC79A7", "v"),
    ("pass_at_1", "pass@1", "#0072B2", "o"),
    ("maj_at_k", "majority of {k}", "#E69F00", "s"),
    ("best_of_k", "best of {k} by the judge", "#009E73", "D"),
    ("weighted_of_k", "weighted best of {k}", "#D55E00", "^"),
)
"""Fields of a report, their names, colours (Okabe and Ito's) and marks."""


def draw(reports: Mapping[str, EvalReport], path: Path) -> None:
    """Writes the picture.

    Args:
        reports: of each model on the same problems, in the order in which they were made.
        path: of the PNG.
    """
    figure = Figure(figsize=(_WIDTH, 1.6 + _LINE * len(reports)), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    k = next(iter(reports.values())).settings.k
    names = [name if start_of(name, reports) else f"{name} (as it was)" for name in reports]
    left.set_yticks(range(len(names)), names)
    left.invert_yaxis()
    for axes, kinds in ((left, _KINDS[1:2]), (right, (*_KINDS[:1], *_KINDS[2:]))):
        for number, (field, label, colour, mark) in enumerate(kinds):
            shift = 0.16 * (number - (len(kinds) - 1) / 2)
            known = [(row + shift, one) for row, one in enumerate(_of(reports, field)) if one is not None]
            if not known:
                continue
            rows, values = [row for row, _ in known], [one.value for _, one in known]
            # An interval that was rounded may miss its value by the last digit.
            low = [max(0.0, one.value - one.low) for _, one in known]
            high = [max(0.0, one.high - one.value) for _, one in known]
            axes.errorbar(values, rows, xerr=[low, high], fmt=mark, color=colour, capsize=3, label=label.format(k=k))
        axes.set_xlim(-0.02, 1.02)
        axes.grid(axis="x", color="#dddddd")
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, frameon=False)
    left.set_title("one sample")
    right.set_title(f"greedy, and chosen among {k} samples")
    figure.supxlabel("share of held-out problems solved, with 95 % intervals", fontsize="medium")
    figure.savefig(path)


def _of(reports: Mapping[str, EvalReport], field: str) -> list[Estimate | None]:
    return [getattr(report, field) for report in reports.values()]
