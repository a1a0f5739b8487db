"""A step's metrics from the numbers of its rows, under the names of the specification (section 7).

One decision: a row in which a number is missing counts in no statistic of it. Upstream's own `critic/score` and
`critic/rewards` have 0 for a row whose verifier failed; ours are written over them.

    >>> metrics.update(row_metrics(infos))
    >>> metrics.update(main_model_lengths(metrics))
"""

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from verl.classmate import scoring

_LENGTHS = {
    "main_cot_length": "response_length/cot",
    "main_output_length": "response_length/output",
}
"""Row numbers that are token counts, and where they go."""

_OF_CLASSMATES = re.compile(r"(classmate(?:_\d+)?)_(response_length|clip_ratio)")
"""Row numbers of all classmates and of each, which go to `response_length/classmate` and `.../classmate_0`."""


def row_metrics(infos: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """`critic/<key>/*`, `critic/score/*`, `response_length/*` and `classmate/*` of the step's real rows.

    Args:
        infos: `reward_extra_info` of each row, with the same keys in all of them.
    """
    metrics: dict[str, float] = {}
    for key in infos[0] if infos else ():
        if key.startswith("outcome_"):
            continue
        found = _OF_CLASSMATES.fullmatch(key)
        prefix = f"response_length/{found[1]}" if found else _LENGTHS.get(key, f"critic/{key}")
        statistics = _statistics(prefix, [info[key] for info in infos])
        if found and found[2] == "clip_ratio":
            statistics = {f"{prefix}/clip_ratio": mean for name, mean in statistics.items() if name.endswith("/mean")}
        metrics |= statistics
    # What a row trained on: F, or r where the classmates said nothing.
    trained = [info["base_reward"] if math.isnan(info["final_reward"]) else info["final_reward"] for info in infos]
    for name in ("critic/score", "critic/rewards"):
        metrics |= _statistics(name, trained)
    return metrics | scoring.aggregate_metrics(infos)


def main_model_lengths(metrics: Mapping[str, float]) -> dict[str, float]:
    """Upstream's lengths of the policy's responses, under the names that stand beside `response_length/classmate`."""
    return {
        f"response_length/main_model{kind}/{statistic}": metrics[f"response_length{kind}/{statistic}"]
        for kind in ("", "_non_aborted")
        for statistic in ("mean", "max", "min", "clip_ratio")
        if f"response_length{kind}/{statistic}" in metrics
    }


def _statistics(prefix: str, values: Sequence[float]) -> dict[str, float]:
    finite = np.array([value for value in values if math.isfinite(value)], dtype=float)
    if not finite.size:
        return {}
    return {f"{prefix}/{name}": float(getattr(finite, name)()) for name in ("mean", "max", "min", "std")}
