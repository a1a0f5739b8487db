"""Verifier of MATH: the last `\\boxed{}` of the output against the reference's, by math-verify.

Decision: only a box is an answer, as the prompt asks for it; a formula elsewhere may be a step on the way.

    verifier = get_verifier("hendrycks_math")
    verifier.compute_score("so $x = \\boxed{\\tfrac12}$", "\\frac{1}{2}")   # 1.0
"""

from verl.utils.reward_score.cot_monitor._boxed import last_boxed
from verl.utils.reward_score.cot_monitor._marked import MarkedAnswerVerifier
from verl.utils.reward_score.cot_monitor.BaseVerifier import register


@register("hendrycks_math")
class HendrycksMathVerifier(MarkedAnswerVerifier):
    """1 if the boxed answer is mathematically the ground truth, else 0."""

    reward_description = "1 if the boxed answer to the competition problem is correct, else 0"
    answer_cue = "\n\nThe answer is \\boxed{"

    def marked_answer(self, text: str) -> str | None:
        """What is in the last box."""
        return last_boxed(text)
