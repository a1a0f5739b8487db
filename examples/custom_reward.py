"""A reward of your own for the main model and its classmates: near misses earn a part, and short answers a little more.

    bash examples/run_classmate_cot_training.sh \\
        reward.custom_reward_function.path=examples/custom_reward.py reward.custom_reward_function.name=graded

The function gets an answer without its CoT, the main model's or a classmate's, and the row it answers. It may be
`async`, and may return a number or a dictionary with the key `score`. If it raises, or returns None, the row counts as
not judged: it is left out of all statistics, counted in `classmate/failed_judge_ratio`, and the dump says why. The same
holds for a score below `reward_range`. A row without an answer gets the lower end of that range.
"""

import re
from typing import Any


def graded(data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> float | None:
    """1 for the right number, less the further the last number is from it, 0 without a number.

    Args:
        data_source: of the row.
        solution_str: the answer.
        ground_truth: the right number.
        extra_info: the rest of the row.
    """
    numbers = re.findall(r"-?[0-9]+", solution_str)
    if not numbers:
        return 0.0
    distance = abs(int(numbers[-1]) - int(ground_truth))
    brevity = 0.05 if len(solution_str) < 40 else 0.0
    return min(1.0, 0.95 / (1 + distance / 10) + brevity)


graded.reward_range = (0.0, 1.0)  # type: ignore[attr-defined]
