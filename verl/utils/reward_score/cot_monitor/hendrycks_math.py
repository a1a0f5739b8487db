"""Verifier of MATH: the last `\\boxed{}` of the output against the reference's, by math-verify.

Decision: only a box is an answer, as the prompt asks for it; a formula elsewhere may be a step on the way.

    verifier = get_verifier("hendrycks_math")
    verifier.compute_score("so $x = \\boxed{\\tfrac12}$", "\\frac{1}{2}")   # 1.0
"""

from verl.utils.reward_score.cot_monitor._math import last_boxed, same_answer
from verl.utils.reward_score.cot_monitor.BaseVerifier import BaseVerifier, register


@register("hendrycks_math")
class HendrycksMathVerifier(BaseVerifier):
    """1 if the boxed answer is mathematically the ground truth, else 0."""

    reward_description = "1 if the boxed answer to the competition problem is correct, else 0"
    blocking = True

    def compute_score(self, text: str, ground_truth: str | None) -> float | None:
        """1.0 or 0.0; a text without a boxed answer is wrong.

        None if the text is empty, there is no truth, or math-verify could not compare the two.
        """
        if ground_truth is None or not ground_truth.strip() or not text.strip():
            return None
        boxed = last_boxed(text)
        if boxed is None:
            return 0.0
        same = same_answer(boxed, ground_truth)
        return None if same is None else float(same)

    def reference_answer(self, output: str) -> str | None:
        """The boxed answer of the output."""
        return last_boxed(output) or None
