"""Several runs of the reasoning pipeline side by side: what each stage gave and cost, over seeds.

    python -m verl.evaluation.pipelines outputs/reasoning_11 outputs/reasoning_12 outputs/reasoning_13

One decision: a run is one observation, for its world, models and problems are its own; what is shown besides is in how
many runs the interval over problems alone excludes 0.

docs/reasoning_runs.md was made so.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from verl.classmate.errors import ConfigError
from verl.evaluation.arguments import OneLineParser
from verl.evaluation.study.statistics import Mean, mean_of
from verl.reasoning.estimates import Estimate
from verl.reasoning.evaluation import EvalReport, chosen_less, compared
from verl.reasoning.pipeline_report import start_of

REPORT = "pipeline_report.json"


def main(arguments: Sequence[str]) -> int:
    """Prints the tables; the exit code."""
    parser = OneLineParser(prog="python -m verl.evaluation.pipelines", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="output folders of finished pipelines")
    try:
        runs = [_read(one) for one in parser.parse_args(list(arguments)).runs]
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(tables(runs))
    return 0


def _read(folder: Path) -> dict[str, Any]:
    file = folder / REPORT
    if not file.is_file():
        raise ConfigError(f"{file} is not there; name the output folder of a pipeline that has ended")
    said: dict[str, Any] = json.loads(file.read_text())
    return said


def tables(runs: Sequence[Mapping[str, Any]]) -> str:
    """What each model does, gained and cost, in Markdown.

    Args:
        runs: contents of `pipeline_report.json`.
    """
    reports = [{name: EvalReport.from_dict(one) for name, one in run["metrics"].items()} for run in runs]
    k = next(iter(reports[0].values())).settings.k
    lines = [
        f"Means over {len(runs)} runs with half the 95 % t interval over runs; in brackets, in how many runs the "
        "interval over problems excludes 0.",
        "",
        f"| model | pass@1 | gain | majority of {k} | weighted best of {k}, less majority | tokens | seconds |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name in reports[0]:
        have = [one for one in reports if name in one]
        start = start_of(name, have[0])
        gains = [compared(one[name], one[start]) for one in have] if start else []
        weighted = [chosen_less(one[name], "weighted", "majority") for one in have]
        cells = [
            name,
            _mean([_value(one[name].pass_at_1) for one in have]),
            f"{_gain(gains)} over {start}" if start else "-",
            _mean([_value(one[name].maj_at_k) for one in have]),
            _gain(weighted),
            _mean([one[name].avg_length for one in have], digits=0),
            _mean([run["timings"].get(name) for run in runs], digits=0),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    whole = _mean([_whole(run["timings"].values()) for run in runs], digits=1)
    lines += ["", f"A whole run, its evaluations included, took {whole} minutes."]
    return "\n".join(lines)


def _whole(seconds: Iterable[float | None]) -> float | None:
    """Minutes; None where those of a stage are not known."""
    known = list(seconds)
    return None if None in known else sum(one for one in known if one is not None) / 60


def _mean(values: Sequence[float | None], digits: int = 3) -> str:
    known = [value for value in values if value is not None]
    return _told(mean_of(known), digits) if known else "-"


def _told(mean: Mean, digits: int, sign: str = "") -> str:
    half = "" if mean.half is None else f" ± {mean.half:.{digits}f}"
    return f"{mean.value:{sign}.{digits}f}{half}"


def _gain(gains: Sequence[Estimate | None]) -> str:
    known = [one for one in gains if one is not None]
    if not known:
        return "-"
    apart = sum(one.excludes_zero for one in known)
    return f"{_told(mean_of(one.value for one in known), 3, sign='+')} [{apart} of {len(known)}]"


def _value(estimate: Estimate | None) -> float | None:
    return None if estimate is None else estimate.value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
