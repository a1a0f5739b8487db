"""A student beside its teacher and beside itself before, on problems that none was trained on.

One decision: all three write as many texts for each problem, with the same settings; every comparison is of the same
problems, and a text that could not be scored is left out and counted.

    >>> report = preservation_report(problems, {"teacher": ..., "before": ..., "student": ...}, min_score=0.7, seed=0)
    >>> report["retention"]["retention"], report["retention"]["retention_ci"]
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from verl.reasoning.distill import preservation
from verl.reasoning.distill.sampling import ERROR, accepted
from verl.reasoning.estimates import pass_at_k
from verl.reasoning.records import Problem, Solution

Behaviours = Callable[[Sequence[str]], Mapping[str, float]]
"""Counts of behaviours (verification, backtracking, ...) in texts."""

Samples = Sequence[Sequence[Solution]]


def preservation_report(
    problems: Sequence[Problem],
    samples: Mapping[str, Samples],
    *,
    min_score: float,
    seed: int,
    behaviours: Behaviours | None = None,
) -> dict[str, Any]:
    """Everything that follows from what `teacher`, `student` and, where it is there, `before` wrote.

    Args:
        problems: of the samples.
        samples: name -> texts of each problem.
        min_score: see `sampling.accepted`.
        seed: of the bootstrap.
        behaviours: counts what is done in texts; None: no divergence of behaviours.
    """
    # A problem of which somebody's texts could not be scored compares nobody.
    usable = [
        place
        for place in range(len(problems))
        if all(any(_scored(one) for one in samples[name][place]) for name in samples)
    ]
    if not usable:
        raise ValueError("no problem has texts that could be scored; look at meta['reward_note'] of the solutions")
    texts = {name: [samples[name][place] for place in usable] for name in samples}
    rates = {name: [_rate(one, min_score) for one in found] for name, found in texts.items()}
    mostly = {name: [rate >= 0.5 for rate in found] for name, found in rates.items()}
    report: dict[str, Any] = {
        "problems": len(usable),
        "left_out": len(problems) - len(usable),
        "models": {name: summary(found, min_score=min_score) for name, found in texts.items()},
        "retention": preservation.retention(rates["teacher"], rates["student"], seed=seed),
        "kappa": preservation.kappa(mostly["teacher"], mostly["student"]),
        "reasoning_score_correlation": preservation.correlation(_scores(texts["teacher"]), _scores(texts["student"])),
        "length_ratio": preservation.length_ratio(_lengths(texts["teacher"]), _lengths(texts["student"])),
    }
    if "before" in texts:
        report["gain"] = preservation.retention(rates["before"], rates["student"], seed=seed)
        report["forgetting"] = preservation.forgetting(mostly["before"], mostly["student"])
    if behaviours is not None:
        counts = {
            name: behaviours([one.text for some in texts[name] for one in some]) for name in ("teacher", "student")
        }
        report["behaviours"] = {name: dict(found) for name, found in counts.items()}
        report["behaviour_divergence"] = preservation.behaviour_divergence(counts["teacher"], counts["student"])
    return report


def summary(samples: Samples, *, min_score: float) -> dict[str, Any]:
    """Of one model: accuracy, pass@k, majority vote, calibration of the vote, lengths, what is missing."""
    scored = [[one for one in some if _scored(one)] for some in samples]
    scored = [some for some in scored if some]
    least = min(map(len, scored), default=0)
    counts = [(len(some), sum(accepted(one, min_score) for one in some)) for some in scored]
    ks = [k for k in (1, 2, 4, 8, 16, 32, 64) if k <= least]
    votes = [
        preservation.majority([one.final_answer for one in some], [accepted(one, min_score) for one in some])
        for some in scored
    ]
    voted = [vote for vote in votes if vote is not None]
    every = [one for some in samples for one in some]
    return {
        "accuracy": float(np.mean([right / n for n, right in counts])) if counts else None,
        "samples": least,
        "pass_at_k": {k: float(np.mean([pass_at_k(n=n, c=right, k=k) for n, right in counts])) for k in ks},
        "maj_at_k": float(np.mean([right for right, _ in voted])) if voted else None,
        "calibration_error": preservation.calibration_error(
            [share for _, share in voted], [right for right, _ in voted]
        ),
        "mean_tokens": float(np.mean(_lengths(samples))) if _lengths(samples) else None,
        "truncated": float(np.mean([one.finish_reason == "length" for one in every])) if every else None,
        "failed": sum(ERROR in one.meta for one in every),
        "unscored": sum(not _scored(one) and ERROR not in one.meta for one in every),
    }


def _scored(solution: Solution) -> bool:
    return solution.score is not None and ERROR not in solution.meta


def _rate(solutions: Sequence[Solution], min_score: float) -> float:
    return float(np.mean([accepted(one, min_score) for one in solutions if _scored(one)]))


def _scores(samples: Samples) -> list[float]:
    return [float(np.mean([one.score for one in some if one.score is not None])) for some in samples]


def _lengths(samples: Samples) -> list[int]:
    return [one.n_tokens for some in samples for one in some if ERROR not in one.meta]
