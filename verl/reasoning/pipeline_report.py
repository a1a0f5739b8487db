"""`pipeline_report.md`: what each stage's model does on held-out problems, what it gained, and what it cost.

One decision: every share has its interval beside it, and a gain is of the same problems, so that nobody compares two
numbers by eye.

    >>> report_text(config, {"base": report, "pure_rl": other}, "pure_rl", {"pure_rl": 61.0})
"""

from collections.abc import Mapping

from verl.reasoning.estimates import Estimate
from verl.reasoning.evaluation import EvalReport, chosen_less, compared
from verl.reasoning.pipeline_config import ReasoningPipelineConfig

_STARTS = {
    "pure_rl": "base",
    "rft": "base",
    "rft_reranked": "rft",
    "distilled": "student",
}
"""What a model is compared with: what it was trained from, or the model that it is a variant of."""


def report_text(
    config: ReasoningPipelineConfig, reports: Mapping[str, EvalReport], best: str, seconds: Mapping[str, float]
) -> str:
    """The page in Markdown."""
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
        start = start_of(name, reports)
        gain = compared(one, reports[start]) if start is not None else None
        over = f"{gain} over {start}" if gain is not None else "-"
        shares = (one.greedy, one.pass_at_k, one.maj_at_k, one.best_of_k, one.weighted_of_k)
        length = "-" if one.avg_length is None else f"{one.avg_length:.0f}"
        cells = [name, _told(one.pass_at_1), over, *map(_told, shares), length, str(one.excluded)]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *_search(reports), "## How they reason", "", *_reasoning(reports), "", "## Seconds", ""]
    lines += ["| stage | seconds in this run |", "|---|---|"]
    lines += [f"| {name} | {'done before' if took == 0 else f'{took:.0f}'} |" for name, took in seconds.items()]
    return "\n".join(lines) + "\n"


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


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
