"""Verifier of GSM8K: the answer after `####`, in `\\boxed{}` or after "answer is", held against the reference.

Decision: an answer must be marked as one; the last marked answer counts. Taking just the last number of a text would
reward a model that stops in the middle of its computation.

    verifier = get_verifier("openai/gsm8k")
    verifier.compute_score("So she pays \\boxed{$1,250}.", "1250")   # 1.0
"""

import re

from verl.utils.reward_score.cot_monitor._marked import MarkedAnswerVerifier
from verl.utils.reward_score.cot_monitor._math import last_boxed
from verl.utils.reward_score.cot_monitor.BaseVerifier import register

_MARK = re.compile(
    r"####(?P<hashes>[^\n#]*)"
    r"|answer(?:\s+is|:)[\s:*$(\\]*?(?P<sentence>(?:\\?[$(])?[^\s:*$(](?:(?!####|answer(?:\s+is|:)).)*?)"
    r"(?:[.!](?=[\s*\"')$]|$)|[,;](?=\s)|\n|\s(?:because|since|so|as|which|where)\s|$|(?=####|answer(?:\s+is|:)))",
    re.IGNORECASE,
)


def marked_answer(text: str) -> str | None:
    """The last marked answer of a text; None if there is none."""
    marks = [mark for mark in _MARK.finditer(text) if mark["hashes"] is not None or re.search(r"\d", mark["sentence"])]
    box = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    boxed = last_boxed(text)
    if boxed is not None and (not marks or box > marks[-1].start()):
        return boxed
    if not marks:
        return None
    return (marks[-1]["hashes"] if marks[-1]["hashes"] is not None else marks[-1]["sentence"]).strip()


@register("openai/gsm8k")
class GSM8KVerifier(MarkedAnswerVerifier):
    """1 if the marked answer equals the ground truth as a number, else 0."""

    reward_description = "1 if the final answer of the grade-school problem is correct, else 0"

    def marked_answer(self, text: str) -> str | None:
        """What the last mark of any kind marks."""
        return marked_answer(text)
