"""Verifier of multiple-choice questions: is the letter of the closing sentence the right one?

verifier = get_verifier("multiple_choice")
verifier.compute_score("Copper conducts. The best answer is therefore (C).", "C")     # 1.0
"""

from verl.utils.reward_score.cot_monitor._choices import closing_letter
from verl.utils.reward_score.cot_monitor.BaseVerifier import BaseVerifier, register


@register("multiple_choice")
class MultipleChoiceVerifier(BaseVerifier):
    """1 if the closing sentence names the right letter, else 0."""

    reward_description = "1 if the letter given as the answer is the correct one, else 0"

    def compute_score(self, text: str, ground_truth: str | None) -> float | None:
        """1.0 or 0.0; a text without such a letter is wrong. None if the text is empty or there is no truth."""
        if not ground_truth or not text.strip():
            return None
        return float(closing_letter(text) == ground_truth.strip().strip("()").upper())

    def reference_answer(self, output: str) -> str | None:
        """The letter."""
        return closing_letter(output)
