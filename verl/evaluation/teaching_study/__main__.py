"""Command that runs a study of teachers, or makes its page.

python -m verl.evaluation.teaching_study adaptive_teaching
"""

import argparse
import contextlib
import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from verl.evaluation.study.command import StudyParser, alone, carry_out, check_writable, no_such, seeds_of
from verl.evaluation.teaching_study.presets import STUDIES
from verl.evaluation.teaching_study.spec import TeachingStudy

OUTPUT_DIR, RESULTS_DIR = Path("outputs/study"), Path("docs/teaching_study")

_DESCRIPTION = """\
Trains a teacher in every arm of a study with every seed, evaluates it, and writes a small result file for each. What is
there is not done again, and an interrupted study goes on with the same command.

  python -m verl.evaluation.teaching_study adaptive_teaching          all arms and seeds
  python -m verl.evaluation.teaching_study leaks --seeds 11           one seed
  python -m verl.evaluation.teaching_study leaks --short              two arms, two seeds, a small world: for a try
  python -m verl.evaluation.teaching_study report                     docs/teaching_study.md, from the result files
  python -m verl.evaluation.teaching_study --list                     studies and arms, with their Hydra overrides
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; `arguments` replaces what the shell gave. Returns the exit code.

    Raises:
        ValueError: for a user's mistake, in one line.
    """
    options = _parser().parse_args(arguments)
    if options.list:
        # Who read the first lines may have seen enough.
        with contextlib.suppress(BrokenPipeError):
            print(listing(), flush=True)
        return 0
    if options.name == "report":
        return _report(options)
    if options.name is None:
        raise ValueError(f"no study is named; write one of {', '.join(STUDIES)}, or report, or --list")
    if options.check:
        raise ValueError("--check: belongs to report; leave it out")
    study = chosen_study(options)
    output_dir = options.output_dir.expanduser().resolve()
    # What is tried out is not for the page.
    results_dir = options.results_dir or (RESULTS_DIR if study.name in STUDIES else output_dir / "results")
    results_dir = results_dir.expanduser().resolve()
    with alone(output_dir / study.name):
        check_writable(results_dir / study.name)
        return _work(study, output_dir, results_dir, options.jobs)


def _parser() -> argparse.ArgumentParser:
    parser = StudyParser(
        prog="python -m verl.evaluation.teaching_study",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", help=f"{', '.join(STUDIES)}, or report")
    parser.add_argument("--list", action="store_true", help="show studies and arms, and do nothing")
    parser.add_argument("--seeds", help="only these: 11,12 or 11-14; default: the study's")
    parser.add_argument("--arms", help="only these, separated by commas; default: all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time, each on one thread")
    parser.add_argument("--short", action="store_true", help="two arms and two seeds of a small world, a few minutes")
    parser.add_argument("--output_dir", type=Path, default=OUTPUT_DIR, help=f"worlds and runs; default: {OUTPUT_DIR}")
    parser.add_argument(
        "--results_dir",
        type=Path,
        help=f"result files; default: {RESULTS_DIR}, but `results` in --output_dir with --short",
    )
    parser.add_argument("--check", action="store_true", help="with report: change nothing, say what is not up to date")
    return parser


def chosen_study(options: argparse.Namespace) -> TeachingStudy:
    """The study that the options ask for.

    Raises:
        ValueError: a name, a seed or a number that is not possible.
    """
    study = STUDIES.get(options.name)
    if study is None:
        raise ValueError(no_such("study", options.name, [*STUDIES, "report"]))
    if options.short:
        study = study.short()
    if options.jobs < 1:
        raise ValueError(f"--jobs {options.jobs}: write 1 or more")
    if options.seeds is not None:
        study = dataclasses.replace(study, seeds=seeds_of(options.seeds))
    if options.arms is not None:
        names = tuple(name for name in options.arms.replace(" ", ",").split(",") if name)
        known = [arm.name for arm in study.arms]
        if not names:
            raise ValueError(f"--arms names no arm; use {known[0]}")
        for name in names:
            if name not in known:
                raise ValueError(no_such("arm", name, known))
        study = study.of_arms(names)
    return study


def listing() -> str:
    """All studies with their arms, and what is typed for each, but for paths and seeds."""
    lines = []
    for study in STUDIES.values():
        seeds = ",".join(map(str, study.seeds))
        lines += [f"{study.name}: seeds {seeds}, {study.steps} steps, {study.items} questions", "  in all arms"]
        lines += [f"    {override}" for override in study.settings]
        for arm in study.arms:
            lines.append(f"  {arm.name}: {arm.title}; compared with {', '.join(arm.controls)}")
            lines += [f"    {override}" for override in arm.overrides]
        lines.append("")
    return "\n".join(lines).rstrip()


def _work(study: TeachingStudy, output_dir: Path, results_dir: Path, jobs: int) -> int:
    from verl.evaluation.teaching_study.runs import Places, plan_of

    places = Places(study=study, output_dir=output_dir, results_dir=results_dir)
    code = carry_out(plan_of(places, jobs=jobs), title=study.name, folder=places.folder, jobs=jobs)
    if code == 0:
        print(f"results in {results_dir / study.name}")
    return code


def _report(options: argparse.Namespace) -> int:
    from verl.evaluation.teaching_study.report import check_report, write_report

    for name in ("seeds", "arms", "short"):
        if getattr(options, name) not in (None, False):
            raise ValueError(f"--{name}: the report is of all result files; leave it out, or name --results_dir")
    results_dir = options.results_dir or RESULTS_DIR
    if not options.check:
        for path in write_report(results_dir):
            print(path)
        return 0
    wrong = check_report(results_dir)
    for line in wrong:
        print(line, file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    from verl.data_preprocessing.common import run_command

    run_command(lambda: sys.exit(main()))
