"""A reward for runs that learn from a teacher alone: it is the same for every text, so that no text is preferred.

reward.custom_reward_function.path=FILE of this module
"""

from typing import Any


def compute_score(data_source: str, solution_str: str, ground_truth: Any = None, extra_info: Any = None) -> float:
    """0 for everything."""
    return 0.0


compute_score.reward_range = (0.0, 1.0)  # type: ignore[attr-defined]
