"""What verifiers of mathematical answers share: find the marked answer, compare it with the truth.

Decision: they differ only in what marks an answer, which is their one method.

    class MyVerifier(MarkedAnswerVerifier):
        reward_description = "1 if the boxed answer is right, else 0"

        def marked_answer(self, text):
            return last_boxed(text)
"""

from abc import abstractmethod

from verl.utils.reward_score.cot_monitor._math import same_answer
from verl.utils.reward_score.cot_monitor.BaseVerifier import BaseVerifier


class MarkedAnswerVerifier(BaseVerifier):
    """1 if the marked answer is mathematically the ground truth, else 0."""

    blocking = True

    @abstractmethod
    def marked_answer(self, text: str) -> str | None:
        """The marked answer of a text; None if there is none."""

    def compute_score(self, text: str, ground_truth: str | None) -> float | None:
        """1.0 or 0.0; a text without a marked answer is wrong.

        None if the text is empty, there is no truth, or math-verify could not compare the two.
        """
        if ground_truth is None or not ground_truth.strip() or not text.strip():
            return None
        marked = self.marked_answer(text)
        if marked is None:
            return 0.0
        same = same_answer(marked, ground_truth)
        return None if same is None else float(same)

    def reference_answer(self, output: str) -> str | None:
        """The marked answer of the output."""
        return self.marked_answer(output) or None
