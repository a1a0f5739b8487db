"""Which of a teacher's texts are learnt from.

One decision: a trace is kept only if it is whole and the reward accepts it; why the others were dropped is counted,
reason by reason, and a problem that the teacher never solves is named.

    >>> traces, told = verified(problems, samples, verify=True, min_score=0.7, max_per_problem=4)
    >>> told["wrong"], told["truncated"], told["unsolved_problems"]
"""

from collections.abc import Sequence
from typing import Any

from verl.reasoning.distill.sampling import ERROR, accepted
from verl.reasoning.records import Problem, Solution


def verified(
    problems: Sequence[Problem],
    samples: Sequence[Sequence[Solution]],
    *,
    verify: bool,
    min_score: float,
    max_per_problem: int,
) -> tuple[list[Solution], dict[str, Any]]:
    """The traces in the order of their problems, and counts.

    Args:
        problems: of the samples.
        samples: the teacher's texts of each problem.
        verify: whether the reward must accept them; else every whole text is kept.
        min_score: see `accepted`.
        max_per_problem: best scores first, then shorter ones.

    Returns:
        Traces, and how many were `sampled`, `failed`, `truncated`, `unscored`, `wrong`, `repeated`, `beyond_limit` and
        `kept`; `unsolved_problems` has the ids of problems without a trace.
    """
    counts = dict.fromkeys(("sampled", "failed", "truncated", "unscored", "wrong", "repeated", "beyond_limit"), 0)
    kept: list[Solution] = []
    unsolved: list[str] = []
    for problem, solutions in zip(problems, samples, strict=True):
        good: dict[str, Solution] = {}
        for one in solutions:
            counts["sampled"] += 1
            reason = _refused(one, verify=verify, min_score=min_score)
            if reason is None and one.text.strip() in good:
                reason = "repeated"
            if reason is not None:
                counts[reason] += 1
                continue
            good[one.text.strip()] = one
        best = sorted(good.values(), key=lambda one: (-(one.score or 0.0), one.n_tokens))[:max_per_problem]
        counts["beyond_limit"] += len(good) - len(best)
        kept += best
        if not best:
            unsolved.append(problem.id)
    return kept, {**counts, "kept": len(kept), "unsolved_problems": unsolved}


def _refused(solution: Solution, *, verify: bool, min_score: float) -> str | None:
    if ERROR in solution.meta or not solution.text.strip():
        return "failed"
    if solution.finish_reason == "length":
        return "truncated"
    if not verify:
        return None
    if solution.score is None:
        return "unscored"
    return None if accepted(solution, min_score) else "wrong"
