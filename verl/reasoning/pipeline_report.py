"""`pipeline_report.md`: what each stage's model does on held-out problems, what it gained, and what it cost.

One decision: every share has its interval beside it, and a gain is of the same problems, so that nobody compares two
numbers by eye.

    >>> report_text(config, {"base": report, "pure_rl": other}, "pure_rl", runs)
"""

from collections.abc import Mapping

from verl.reasoning.estimates import Estimate
from verl.reasoning.evaluation import EvalReport, chosen_less, compared
from verl.reasoning.pipeline_config import ReasoningPipelineConfig
from verl.reasoning.stage_runs import StageRuns

_STARTS = {
    "pure_rl": "base",
    "rft": "base",
    "rft_reranked": "rft",
    "distilled": "student",
}
"""What a model is compared with: what it was trained from, or the model that it is a variant of."""
FIGURE = "pipeline_report.png"
"""Beside the page."""
EVALUATIONS = "evaluation/"
"""What the names of evaluations begin with, which are summed up in one line."""


def report_text(config: ReasoningPipelineConfig, reports: Mapping[str, EvalReport], best: str, runs: StageRuns) -> str:
    """The page in Markdown.

    Args:
        config: of the pipeline.
        reports: of each model on the test problems, in the order in which they were made.
        best: the model that was chosen.
        runs: of the stages, with what they took.
    """
    first = next(iter(reports.values()))
    settings = first.settings
    lines = [
        "# Reasoning pipeline",
        "",
        f"Base model `{config.base_model_name}`; {first.num_evaluated} held-out problems, {settings.k} samples each at "
        f"temperature {settings.temperature:g} and top_p {settings.top_p:g}. Brackets are 95 % intervals over problems."
        f" Best model on the problems that were set aside for the choice: **{best}**.",
        "",
        f"| model | pass@1 | gain | greedy | pass@{settings.k} | maj@{settings.k} | best-of-{settings.k} | "
        f"weighted-of-{settings.k} | tokens | left out |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, one in reports.items():
        over = _gained(name, reports)
        shares = (one.greedy, one.pass_at_k, one.maj_at_k, one.best_of_k, one.weighted_of_k)
        length = "-" if one.avg_length is None else f"{one.avg_length:.0f}"
        cells = [name, _told(one.pass_at_1), over, *map(_told, shares), length, str(one.excluded)]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", f"![What each model does on the held-out problems]({FIGURE})", "", *_search(reports)]
    lines += ["## How they reason", "", *_reasoning(reports), "", "## What each stage cost", "", *_costs(reports, runs)]
    return "\n".join(lines) + "\n"


def _gained(name: str, reports: Mapping[str, EvalReport]) -> str:
    start = start_of(name, reports)
    gain = compared(reports[name], reports[start]) if start is not None and name in reports else None
    return f"{gain} over {start}" if gain is not None else "-"


def _costs(reports: Mapping[str, EvalReport], runs: StageRuns) -> list[str]:
    lines = ["| stage | seconds in all | in this run | gain in pass@1 | what it counted |", "|---|---:|---:|---|---|"]
    evaluations: list[float | None] = []
    for name, cost in runs.costs.items():
        if name.startswith(EVALUATIONS):
            evaluations.append(cost.seconds)
            continue
        counted = ", ".join(f"{value:,.0f} {key.replace('_', ' ')}" for key, value in cost.counts.items())
        here = f"{runs.seconds[name]:.0f}" if runs.seconds[name] else "done before"
        lines.append(f"| {name} | {_whole(cost.seconds)} | {here} | {_gained(name, reports)} | {counted or '-'} |")
    if evaluations:
        known = [one for one in evaluations if one is not None]
        whole = sum(known) if len(known) == len(evaluations) else None
        now = sum(took for name, took in runs.seconds.items() if name.startswith(EVALUATIONS))
        lines.append(f"| evaluations | {_whole(whole)} | {now:.0f} | - | {len(evaluations)} evaluations |")
    lines += ["", "Seconds by the wall; of an attempt that was killed they count up to the last file that it wrote."]
    return lines


def start_of(name: str, reports: Mapping[str, EvalReport]) -> str | None:
    """The model that another one is compared with; None: none."""
    if name == "cot":
        return "pure_rl" if "pure_rl" in reports else "base"
    start = _STARTS.get(name)
    return start if start in reports else None


def _search(reports: Mapping[str, EvalReport]) -> list[str]:
    """Weighted best-of-k less majority, where there is a judge of steps."""
    lines = []
    for name, one in reports.items():
        gain = chosen_less(one, "weighted", "majority")
        if gain is not None:
            lines.append(f"* {name}: weighted best-of-{one.settings.k} less majority {gain}")
    return ["## Search with the judge of steps", "", *lines, ""] if lines else []


def _reasoning(reports: Mapping[str, EvalReport]) -> list[str]:
    names = list(dict.fromkeys(key for one in reports.values() for key in (*one.reasoning, *one.diversity)))
    lines = [f"| model | {' | '.join(names)} | tokens per right one | cut off |", f"|---|{'---|' * (len(names) + 2)}"]
    for name, one in reports.items():
        known = {**one.reasoning, **one.diversity, "price": one.tokens_per_correct, "cut": one.truncated}
        lines.append(f"| {name} | {' | '.join(_number(known.get(key)) for key in (*names, 'price', 'cut'))} |")
    return lines


def _told(estimate: Estimate | None) -> str:
    return "-" if estimate is None else str(estimate)


def _whole(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.0f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
