"""The tables of docs/step_judges.md, from result files and predictions alone.

One decision: a seed is one observation; each number is a mean over seeds with half its 95 % t interval. What stands
between the marks is never edited by hand, and a check says whether it is what the files give.

    >>> write_report(Path("docs/step_judges"))
    PosixPath('docs/step_judges.md')
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from verl.data_preprocessing.reasoning_world.checking import KINDS
from verl.data_preprocessing.reasoning_world.rows import HELD_OUT_KIND
from verl.evaluation.step_judges.numbers import ALL
from verl.evaluation.study.report import BEGIN, END
from verl.evaluation.study.statistics import Mean, mean_of
from verl.trainer.run.state import write_atomically

PREDICTIONS = "predictions.yaml"
TITLES = {
    "head": "head",
    "likelihood": "likelihood",
    "both": "both",
    "generative": "in words",
    "head_mc": "head, labels by completions",
    "both_mc": "both, labels by completions",
}
"""Of judges, in the order of the tables."""
_RULES = ("above", "below", "interval_above")


def page_of(results_dir: Path) -> Path:
    """`docs/step_judges.md` for `docs/step_judges`."""
    return results_dir.with_suffix(".md")


def write_report(results_dir: Path) -> Path:
    """Puts the tables between the marks of the page.

    Raises:
        ValueError: there are no results, or the page has no marks.
    """
    page = page_of(results_dir)
    write_atomically(page, _with_tables(page, results_dir))
    return page


def check_report(results_dir: Path) -> list[str]:
    """What is wrong with the page; []: it is what the files give."""
    page = page_of(results_dir)
    same = page.read_text() == _with_tables(page, results_dir)
    return [] if same else [f"{page} is not what {results_dir} gives; run python -m verl.evaluation.step_judges report"]


def tables(results: Sequence[Mapping[str, Any]], predictions: Sequence[Mapping[str, Any]]) -> str:
    """All tables, as Markdown."""
    seeds = ", ".join(str(one["seed"]) for one in results)
    kinds = (ALL, *KINDS)
    titles = [f"{kind} (never shown)" if kind == HELD_OUT_KIND else kind for kind in kinds]

    def by_judge(names: Sequence[str], heads: Sequence[str]) -> str:
        rows = [
            [title, *(_cell(results, f"judges.{judge}.{name}") for name in names)] for judge, title in TITLES.items()
        ]
        return _table(["judge", *heads], rows)

    search = [[title, *_choices(results, judge)] for judge, title in TITLES.items()]
    costs = ["tokens", "tokens_trained"]
    parts = [
        f"Seeds {seeds}. Each number is a mean over seeds, with half its 95 % t interval.",
        "### Predictions",
        _table(["prediction", "found", "verdict"], [_verdict(one, results) for one in predictions]),
        "### First errors, F1",
        by_judge([f"f1.{kind}" for kind in kinds], titles),
        "### Weakest step is the first error",
        "Share of wrong solutions; the first column is of solutions with a planted error alone.",
        by_judge(["weakest_planted", *(f"weakest_step.{kind}" for kind in kinds)], ["planted", *titles]),
        "### Choosing among the policy's solutions",
        f"pass@1 {_cell(results, 'search.pass@1')}, majority {_cell(results, 'search.majority')}, "
        f"a right one among them {_cell(results, 'search.any')}.",
        _table(["judge", "best", "weighted", "weighted less majority", "the same, seed by seed"], search),
        "### Tokens",
        "Read and written for each judged solution, and in training.",
        by_judge([*costs], ["a solution", "in training"]),
    ]
    return "\n\n".join(parts)


def _choices(results: Sequence[Mapping[str, Any]], judge: str) -> list[str]:
    at = f"search.judges.{judge}"
    each = [_value(one, f"{at}.less_majority") for one in results]
    seeds = "; ".join(f"{one['value']:+.3f} [{one['low']:.3f}, {one['high']:.3f}]" for one in each if one)
    return [*(_cell(results, f"{at}.{name}") for name in ("best", "weighted", "less_majority.value")), seeds]


def _verdict(said: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> list[str]:
    """A prediction beside what was found."""
    rule = next((name for name in _RULES if name in said), None)
    if rule is None or not {"text", "measure"} <= said.keys():
        raise ValueError(f"a prediction needs text, measure and one of {', '.join(_RULES)}: {dict(said)}")
    found = _mean(results, str(said["measure"]))
    if found is None or found.value is None:
        return [str(said["text"]), "-", "not measured"]
    half = float("inf") if found.half is None else found.half
    low = found.value if rule != "interval_above" else found.value - half
    right = low < said[rule] if rule == "below" else low > said[rule]
    return [str(said["text"]), _shown(found), "right" if right else "wrong"]


def _with_tables(page: Path, results_dir: Path) -> str:
    results = [json.loads(file.read_text()) for file in results_dir.glob("seed_*.json")]
    if not results:
        raise ValueError(f"{results_dir} has no results; run python -m verl.evaluation.step_judges first")
    predictions = yaml.safe_load((results_dir / PREDICTIONS).read_text())["predictions"]
    text = page.read_text()
    if BEGIN not in text or END not in text:
        raise ValueError(f"{page} has no place for tables; write {BEGIN} and {END} on lines of their own")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    made = tables(sorted(results, key=lambda one: one["seed"]), predictions)
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{after}"


def _value(result: Mapping[str, Any], path: str) -> Any:
    found: Any = result
    for name in path.split("."):
        found = None if found is None else found.get(name)
    return found


def _mean(results: Sequence[Mapping[str, Any]], path: str) -> Mean | None:
    values = [_value(one, path) for one in results]
    known = [float(value) for value in values if value is not None]
    return mean_of(known) if known else None


def _cell(results: Sequence[Mapping[str, Any]], path: str) -> str:
    found = _mean(results, path)
    return "-" if found is None else _shown(found)


def _shown(mean: Mean) -> str:
    assert mean.value is not None
    large = abs(mean.value) >= 10
    half = "" if mean.half is None else f" ± {mean.half:,.0f}" if large else f" ± {mean.half:.3f}"
    return f"{mean.value:,.0f}{half}" if large else f"{mean.value:.3f}{half}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
