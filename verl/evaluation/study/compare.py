"""Are the numbers of a run on Ray those of the same run in one process?

Both train with `trainer.deterministic=true`; the study's own runs do not, since it doubles their time.

code = told_differences(plan.runs)              # prints a line a pair of runs; 1 if any differs
"""

from collections.abc import Sequence

from verl.evaluation.study.results import RunResult, read_result
from verl.evaluation.study.runs import Run


def told_differences(runs: Sequence[Run]) -> int:
    """Prints for each run on Ray whether its numbers are those of the one in one process; the exit code.

    Args:
        runs: with both of each pair, both measured.
    """
    here = {(run.arm.name, run.seed): run for run in runs if run.kind == "in_process"}
    code = 0
    for run in runs:
        if run.kind != "on_ray":
            continue
        found = differing(read_result(here[run.arm.name, run.seed].result), read_result(run.result))
        print(f"{run.title}: " + (f"differs in {', '.join(found)}" if found else "all numbers are equal"))
        code = code or int(bool(found))
    return code


def differing(one: RunResult, other: RunResult) -> list[str]:
    """Names of the numbers and curves in which two results differ."""
    values = [
        {**result.numbers, **{f"curve of {name}": c for name, c in result.curves.items()}} for result in (one, other)
    ]
    names = dict.fromkeys([*values[0], *values[1]])
    return [name for name in names if values[0].get(name) != values[1].get(name)]
