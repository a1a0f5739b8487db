"""Command that runs a judge of steps on ProcessBench's or PRMBench's rows and prints its F1.

One decision: nothing is fitted on the rows that are measured unless `--tune` says so, and then the card says it too.

    python -m verl.reasoning.prm.processbench --data processbench_gsm8k.jsonl --scorer head --model models/prm
    python -m verl.reasoning.prm.processbench --data processbench_gsm8k.jsonl --scorer generative --model models/judge
    python -m verl.reasoning.prm.processbench --data rows.jsonl --scorer both --model models/prm --reader models/policy

Small models score low; the number is what it is. `rules` needs no model: it calculates every equation.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl.classmate.errors import ConfigError
from verl.reasoning.prm.both import SmallerOfBoth
from verl.reasoning.prm.evaluator import ProcessRewardEvaluator
from verl.reasoning.prm.generative import GenerativeStepScorer
from verl.reasoning.prm.judge import RuleJudge
from verl.reasoning.prm.likelihood import LikelihoodScorer
from verl.reasoning.records import lines_of
from verl.reasoning.step_scorer import StepScorer
from verl.stepwise.processbench import BenchRow, bench_row
from verl.workers.prm.head_scorer import HeadScorer

SCORERS = ("head", "likelihood", "both", "generative", "rules")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit code: 0, or 2 for a mistake, told in one line."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        rows = spread(read_rows(options.data), options.limit)
        scorer = make_scorer(options)
        evaluator = ProcessRewardEvaluator(scorer, threshold=options.threshold)
        if options.dev is not None:
            _calibrate(evaluator, scorer, read_rows(options.dev), options.calibration)
        began = time.monotonic()
        result = evaluator.evaluate_processbench(rows, tune=options.tune)
    except (ConfigError, ValueError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    result |= {
        "scorer": options.scorer,
        "data": options.data.name,
        "tuned_here": options.tune,
        "tokens": getattr(scorer, "tokens", 0) + getattr(scorer, "read", 0),
        "seconds": round(time.monotonic() - began, 1),
    }
    print(card(result))
    print(json.dumps(result))
    return 0


def read_rows(path: Path) -> list[BenchRow]:
    """Rows of a benchmark from a file of JSON lines or with one JSON list.

    Raises:
        ValueError: a row is none; names the file and the line.
    """
    text = path.read_text()
    whole = text.lstrip().startswith("[")
    found = []
    for number, given in enumerate(json.loads(text) if whole else lines_of(text), 1):
        if not whole and not given.strip():
            continue
        try:
            found.append(bench_row(given if whole else json.loads(given)))
        except (ValueError, AttributeError, TypeError) as error:
            raise ValueError(f"{path}, row {number}: {error}") from None
    if not found:
        raise ValueError(f"{path} has no rows")
    return found


def spread(rows: Sequence[BenchRow], limit: int | None) -> list[BenchRow]:
    """At most so many rows, evenly from all: benchmarks put the wrong solutions first and the right ones last.

    Raises:
        ValueError: a limit below 1.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"--limit {limit}: write 1 or more")
    if limit is None or limit >= len(rows):
        return list(rows)
    return [rows[place * len(rows) // limit] for place in range(limit)]


def make_scorer(options: argparse.Namespace) -> StepScorer:
    """What the options ask for.

    Raises:
        ConfigError: a model that is needed is not named.
    """
    if options.scorer == "rules":
        return RuleJudge()
    if options.model is None:
        raise ConfigError(f"--scorer {options.scorer} needs --model; name a folder or a hub name")
    if options.scorer == "head":
        return HeadScorer.load(options.model)
    if options.scorer == "generative":
        return GenerativeStepScorer(_backend(options.model), n=options.samples, words=not options.at_once)
    if options.scorer == "likelihood":
        return LikelihoodScorer(_backend(options.model), opening=options.opening)
    if options.reader is None:
        raise ConfigError("--scorer both needs --reader beside --model: the language model whose likelihood counts")
    reader = LikelihoodScorer(_backend(options.reader), opening=options.opening)
    both: list[StepScorer] = [HeadScorer.load(options.model), reader]
    if options.calibration is not None and options.calibration.exists():
        return SmallerOfBoth.load(both, options.calibration)
    return SmallerOfBoth(both)


def card(result: dict[str, Any]) -> str:
    """A few lines for a person."""

    def share(name: str) -> str:
        value = result.get(name)
        return "-" if value is None else f"{100 * value:.1f}"

    tuned = ", tuned on these rows" if result["tuned_here"] else ""
    lines = [
        f"{result['scorer']} on {result['data']}: {result['n_error']} with an error, {result['n_correct']} without, "
        f"{result['n_unscored']} not scored; threshold {result['threshold']:.3f}{tuned}",
        f"  error acc   {share('error_acc'):>5}",
        f"  correct acc {share('correct_acc'):>5}",
        f"  F1          {share('f1'):>5}",
        f"  right answer by a wrong way, F1 {share('right_answer_wrong_process')}; weakest step is the error "
        f"{share('weakest_step_acc')}; lowest score on the last step {share('min_at_last_share')}",
    ]
    if result["n_unscored"]:
        lines.append("  not scored: longer than the model reads (max_length of its prm.json), or no verdict came")
    if "prm_score" in result:
        lines.append(f"  PRMScore    {share('prm_score'):>5} (F1 {share('step_f1')}, negative {share('step_f1_neg')})")
        lines += [
            f"    {kind:<22} {'-' if value is None else f'{100 * value:.1f}'}"
            for kind, value in result["kinds"].items()
        ]
    return "\n".join(lines)


def _calibrate(
    evaluator: ProcessRewardEvaluator, scorer: StepScorer, rows: Sequence[BenchRow], path: Path | None
) -> None:
    problems, steps = [row.problem for row in rows], [row.steps for row in rows]
    truths = [row.first_error for row in rows]
    if isinstance(scorer, SmallerOfBoth):
        scorer.calibrate(problems, steps, truths)
        if path is not None:
            scorer.save(path)
    evaluator.calibrate(problems, steps, truths)


def _backend(model: str) -> Any:
    from verl.reasoning.backend_hf import HFBackend

    return HFBackend(model)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m verl.reasoning.prm.processbench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="rows of ProcessBench or PRMBench, JSON lines or a list"
    )
    parser.add_argument("--scorer", choices=SCORERS, required=True, help="what judges the steps")
    parser.add_argument("--model", help="a process reward model's folder (head, both), or a language model")
    parser.add_argument("--reader", help="both: the language model whose likelihood counts")
    parser.add_argument("--opening", default="", help="likelihood: what the reader's answers begin with")
    parser.add_argument("--samples", type=int, default=1, help="generative: verdicts a step (default: %(default)s)")
    parser.add_argument("--at_once", action="store_true", help="generative: compare the likelihood of yes and no")
    parser.add_argument("--threshold", type=float, help="a step below is wrong; default: the model's, or 0.5")
    parser.add_argument("--dev", type=Path, help="rows on which the threshold, and of both the scales, are fitted")
    parser.add_argument("--calibration", type=Path, help="both: file of the scales; written with --dev, read without")
    parser.add_argument("--tune", action="store_true", help="fit the threshold on the measured rows: an upper bound")
    parser.add_argument("--limit", type=int, help="so many rows, evenly from all")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
