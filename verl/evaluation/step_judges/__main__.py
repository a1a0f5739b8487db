"""Command that measures judges of steps, or makes the page of them.

python -m verl.evaluation.step_judges --seeds 11
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from verl.evaluation.step_judges.spec import SEEDS, JudgeStudy
from verl.evaluation.study.command import seeds_of
from verl.trainer.run.state import write_atomically

RESULTS_DIR = Path("docs/step_judges")
_SEED = "seed_{}.json"

_DESCRIPTION = """\
Trains judges of steps on solutions whose first errors are known (a head, a judge in words; the likelihood needs no
labels) and measures them on held-out ones, where a kind of error appears that training never showed. Each seed has one
small result file; what is there is not done again.

  python -m verl.evaluation.step_judges                     all seeds
  python -m verl.evaluation.step_judges --seeds 0 --short   models that were hardly taught: for a try
  python -m verl.evaluation.step_judges report              the tables of docs/step_judges.md, from the result files
  python -m verl.evaluation.step_judges report --check      whether they are what the files give
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; `arguments` replaces what the shell gave. Returns the exit code.

    Raises:
        ValueError: for a user's mistake, in one line.
    """
    options = _parser().parse_args(arguments)
    if options.what == "report":
        from verl.evaluation.step_judges.report import check_report, write_report

        if not options.check:
            print(write_report(options.results_dir))
            return 0
        wrong = check_report(options.results_dir)
        print("\n".join(wrong) or "the page is what the files give")
        return int(bool(wrong))
    if options.short and options.results_dir == RESULTS_DIR:
        raise ValueError("--short measures nothing; name another folder with --results_dir")
    if options.short:
        # What was hardly taught must not be taken for a real run's models.
        options.output_dir = options.output_dir / "short"
    for seed in options.seeds:
        _measure(seed, options)
    return 0


def _measure(seed: int, options: argparse.Namespace) -> None:
    file = options.results_dir / _SEED.format(seed)
    if file.exists():
        print(f"{file} is there")
        return
    from verl.evaluation.step_judges.seed import run_seed

    study = JudgeStudy(seed=seed)
    study = study.short() if options.short else study
    base = Path(str(options.base).format(seed=seed)) if options.base else None
    result = run_seed(study, options.output_dir / str(seed), base=base)
    settings = {name: value for name, value in asdict(replace(study, seed=0)).items() if name not in ("seed", "world")}
    options.results_dir.mkdir(parents=True, exist_ok=True)
    write_atomically(file, json.dumps({"settings": settings, **result}, indent=1) + "\n")
    print(f"{file}: first-error F1 {result['judges']['both']['f1']['all']}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m verl.evaluation.step_judges",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", nargs="?", choices=("run", "report"), default="run", help="default: %(default)s")
    parser.add_argument("--seeds", type=seeds_of, default=SEEDS, help="for instance 11,12 or 11-13 (the default)")
    parser.add_argument("--output_dir", type=Path, default=Path("outputs/step_judges"), help="models and rows")
    parser.add_argument("--results_dir", type=Path, default=RESULTS_DIR, help="results; default: %(default)s")
    parser.add_argument("--base", help="base policy of worlds that are there; {seed} in it stands for the seed")
    parser.add_argument("--short", action="store_true", help="models that were hardly taught: for a try")
    parser.add_argument("--check", action="store_true", help="report: only say whether the page is right")
    return parser


if __name__ == "__main__":
    from verl.data_preprocessing.common import run_command

    run_command(lambda: sys.exit(main()))
