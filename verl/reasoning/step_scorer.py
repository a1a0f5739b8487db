"""Who judges a solution step by step: the face that a process reward model shows to search and to filters.

One decision: a scorer is handed steps, not a text; who cuts a text into steps is the one who has it.

    >>> scorer.score_steps(["What is 3 + 4?"], [["3 + 4 = 7.", "The answer is 7."]])
    [[0.98, 0.97]]
"""

from collections.abc import Sequence
from typing import Protocol


class StepScorer(Protocol):
    """Gives each step a probability that it is right. The discriminative and the generative one are such."""

    def score_steps(self, problems: Sequence[str], steps: Sequence[Sequence[str]]) -> list[list[float | None]]:
        """For each problem with the steps of a solution, a number for each step; None: it could not be scored."""
