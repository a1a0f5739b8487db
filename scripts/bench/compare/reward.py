"""The reward that all peers compute: the share of a to m among a text's letters, which differs within a group."""

from typing import Any


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any) -> float:
    """Between 0 and 1, for what the policy or a helper wrote; upstream's arguments."""
    letters = [letter for letter in solution_str.lower() if "a" <= letter <= "z"]
    return sum(letter <= "m" for letter in letters) / max(1, len(letters))
