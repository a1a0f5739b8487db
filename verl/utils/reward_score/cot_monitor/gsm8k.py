"""Verifier of GSM8K: the number after `####`, in `\\boxed{}` or after "answer is", compared exactly.

Decision: an answer must be marked as one; the last marked answer counts. Taking just the last number of a text would
reward a model that stops in the middle of its computation.

    verifier = get_verifier("openai/gsm8k")
    verifier.compute_score("So she pays \\boxed{$1,250}.", "1250")   # 1.0
"""

import re
from decimal import Decimal

from verl.utils.reward_score.cot_monitor._numbers import NUMBER, only_number, to_decimal
from verl.utils.reward_score.cot_monitor.BaseVerifier import BaseVerifier, register

_MARKED = re.compile(
    r"\\boxed\{(?P<boxed>(?:[^{}]|\{[^{}]*\})*)\}"
    r"|####[ \t]*(?P<hashes>[^\n#]*)"
    rf"|answer is[\s:*$\\(]*(?P<sentence>{NUMBER})",
    re.IGNORECASE,
)


def marked_answer(text: str) -> Decimal | None:
    """The last marked answer of a text; None if there is none or it is not one number."""
    marked = list(_MARKED.finditer(text.replace("\N{MINUS SIGN}", "-")))
    if not marked:
        return None
    last = marked[-1]
    if last["sentence"] is not None:
        return to_decimal(last["sentence"])
    return only_number(last["boxed"] if last["boxed"] is not None else last["hashes"])


@register("openai/gsm8k")
class GSM8KVerifier(BaseVerifier):
    """1 if the marked answer equals the ground truth as a number, else 0."""

    reward_description = "1 if the final answer of the grade-school problem is correct, else 0"

    def compute_score(self, text: str, ground_truth: str | None) -> float | None:
        """1.0 or 0.0; a text without a marked answer is wrong. None if the text is empty or there is no truth."""
        truth = None if ground_truth is None else only_number(ground_truth)
        if truth is None or not text.strip():
            return None
        return float(marked_answer(text) == truth)

    def reference_answer(self, output: str) -> str | None:
        """The marked answer of the output."""
        marked = marked_answer(output)
        return None if marked is None else format(marked, "f")
