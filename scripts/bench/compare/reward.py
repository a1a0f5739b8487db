"""The reward that all peers compute: the share of digits in a text, so that the rows of a group differ."""

from typing import Any


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any) -> float:
    """Between 0 and 1, for what the policy or a helper wrote; upstream's arguments."""
    return sum(letter.isdigit() for letter in solution_str) / max(1, len(solution_str))
