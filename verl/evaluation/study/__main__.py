"""Command that runs a study, or makes its page.

python -m verl.evaluation.study cot_transfer
"""

import argparse
import contextlib
import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from verl.evaluation.study.command import StudyParser, alone, carry_out, check_writable, no_such, seeds_of
from verl.evaluation.study.presets import STUDIES
from verl.evaluation.study.spec import MODULES, Study

OUTPUT_DIR, RESULTS_DIR = Path("outputs/study"), Path("docs/claim")

_DESCRIPTION = """\
Trains every arm of a study with every seed, measures what came out, and writes a small result file for each run. What
is there is not done again, and an interrupted study goes on with the same command.

  python -m verl.evaluation.study cot_transfer                    all arms and seeds
  python -m verl.evaluation.study cot_transfer --short            two arms, two seeds, a small world: for a try
  python -m verl.evaluation.study cot_transfer --seeds 11 --arms baseline,two
  python -m verl.evaluation.study cot_transfer --through_ray two --seeds 11
  python -m verl.evaluation.study report                          docs/claim.md and its figures, from the result files
  python -m verl.evaluation.study --list                          studies and arms, with their Hydra overrides
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
        for name in ("seeds", "arms", "steps", "short", "through_ray"):
            if getattr(options, name) not in (None, False):
                raise ValueError(f"--{name}: the report is of all result files; leave it out, or name --results_dir")
        return _report(options.results_dir or RESULTS_DIR, check=options.check)
    if options.name is None:
        raise ValueError(f"no study is named; write one of {', '.join(STUDIES)}, or report, or --list")
    if options.check:
        raise ValueError("--check: belongs to report; leave it out")
    study = chosen_study(options)
    is_preset = study.name in STUDIES
    output_dir = options.output_dir.expanduser().resolve()
    # What is tried out is not for the page.
    results_dir = options.results_dir or (RESULTS_DIR if is_preset else output_dir / "results")
    with alone(output_dir / study.name):
        if options.through_ray is None:
            check_writable(results_dir.expanduser().resolve() / study.name)
        return _work(study, output_dir, results_dir.expanduser().resolve(), options)


def _parser() -> argparse.ArgumentParser:
    parser = StudyParser(
        prog="python -m verl.evaluation.study",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", help=f"{', '.join(STUDIES)}, or report")
    parser.add_argument("--list", action="store_true", help="show studies and arms, and do nothing")
    parser.add_argument("--seeds", help="only these: 11,12 or 11-14; default: the study's")
    parser.add_argument("--arms", help="only these, separated by commas; default: all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time, each on one thread")
    parser.add_argument("--steps", type=int, help="other training steps than the study's; the results are kept apart")
    parser.add_argument("--short", action="store_true", help="two arms and two seeds of a small world, a few minutes")
    parser.add_argument("--output_dir", type=Path, default=OUTPUT_DIR, help=f"worlds and runs; default: {OUTPUT_DIR}")
    parser.add_argument(
        "--results_dir",
        type=Path,
        help=f"result files; default: {RESULTS_DIR}, but `results` in --output_dir with --short or --steps",
    )
    parser.add_argument(
        "--through_ray",
        metavar="ARM",
        help="train this arm in one process and on Ray, deterministically, and say which numbers differ",
    )
    parser.add_argument("--check", action="store_true", help="with report: change nothing, say what is not up to date")
    return parser


def chosen_study(options: argparse.Namespace) -> Study:
    """The study that the options ask for.

    Raises:
        ValueError: a name, a seed or a number that is not possible.
    """
    study = STUDIES.get(options.name)
    if study is None:
        raise ValueError(no_such("study", options.name, [*STUDIES, "report"]))
    if options.short:
        study = study.short()
    if options.steps is not None:
        if options.steps < 1:
            raise ValueError(f"--steps {options.steps}: write 1 or more")
        study = study.with_steps(options.steps)
    if options.jobs < 1:
        raise ValueError(f"--jobs {options.jobs}: write 1 or more")
    if options.seeds is not None:
        study = dataclasses.replace(study, seeds=seeds_of(options.seeds))
    if options.through_ray is not None and options.arms is not None:
        raise ValueError("--arms: --through_ray names the arm; leave --arms out")
    arms = options.arms if options.through_ray is None else options.through_ray
    if arms is not None:
        names = tuple(name for name in arms.replace(" ", ",").split(",") if name)
        known = [arm.name for arm in study.arms]
        if not names:
            raise ValueError(
                f"--{'arms' if options.through_ray is None else 'through_ray'} names no arm; use {known[0]}"
            )
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
        lines += [f"{study.name}: world {study.world.name}, seeds {seeds}, {study.steps} steps"]
        lines += ["  in all arms", *(f"    {override}" for override in study.settings)]
        for arm in study.arms:
            lines.append(f"  {arm.name}: {arm.title}; {' '.join(MODULES[arm.entry])}")
            if arm.classmates:
                lines.append(f"    classmates {', '.join(arm.classmates)}")
            lines += [f"    {override}" for override in arm.overrides]
        lines.append("")
    return "\n".join(lines).rstrip()


def _work(study: Study, output_dir: Path, results_dir: Path, options: argparse.Namespace) -> int:
    from verl.evaluation.study.compare import told_differences
    from verl.evaluation.study.runs import PAIR, Places, plan_of

    places = Places(study=study, output_dir=output_dir, results_dir=results_dir)
    through_ray = options.through_ray is not None
    plan = plan_of(places, jobs=options.jobs, kinds=PAIR if through_ray else ("study",))
    code = carry_out(plan, title=study.name, folder=places.folder, jobs=options.jobs)
    if code:
        return code
    if through_ray:
        return told_differences(plan.runs)
    print(f"results in {results_dir / study.name}")
    return 0


def _report(results_dir: Path, *, check: bool) -> int:
    from verl.evaluation.study.report import check_report, write_report

    if not check:
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
