r"""Whether a teacher's advice gives the answer away.

One decision: an answer is looked for by its value, as a whole number or whole words (`AnswerForms`), never by its
letters inside of others. What the question holds already says nothing, unless the advice calls it the answer.

    >>> find_leak("Then you have 1,000 of them.", question="What is 10 cubed?", truth="1000")
    Leak(told=True, extracted=False)

RCL; the solve rate against the leak rate is PedagogicalRL's (arXiv 2505.15607).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from verl.classmate.answer_forms import AnswerForms
from verl.teaching.tags import is_blank

_PLAIN = re.compile(r"\s*\$?\s*([-+]?[0-9]{1,15}(?:\.[0-9]{1,15}|\s?/\s?[1-9][0-9]{0,8})?)\s*(\\?%)?\s*\$?\s*")
"""A number or a fraction of whole numbers, perhaps in percent."""
_PERCENT = re.compile(r"(?:\s|\\,)?(?:\\?%|percent\b|per cent\b)")


@dataclass(frozen=True, kw_only=True)
class Leak:
    """In which ways advice gives the answer away."""

    told: bool
    """The answer stands in it, and not in the question."""
    extracted: bool
    """Whoever looks for a student's answer finds the right one in it."""

    @property
    def any(self) -> bool:
        """Whether it does in any way."""
        return self.told or self.extracted


def find_leak(advice: str, *, question: str, truth: str, is_right: Callable[[str, str], bool] | None = None) -> Leak:
    """Whether advice gives the answer away. Blank advice never does, and a blank answer cannot be.

    Args:
        advice: z, as the student sees it.
        question: q.
        truth: g, a number with or without a unit, LaTeX, the letter of a choice, or words.
        is_right: what checks a student's response (text, truth); it extracts the answer and compares it. None: only the
            answer itself is looked for.
    """
    if is_blank(advice) or is_blank(truth):
        return Leak(told=False, extracted=False)
    return Leak(
        told=_holds(advice, truth) and not _holds(question, truth),
        extracted=is_right is not None and is_right(advice, truth),
    )


def _holds(text: str, truth: str) -> bool:
    """Whether an answer stands in a text, in percent or not."""
    if AnswerForms(truth).places(text):
        return True
    number = _PLAIN.fullmatch(truth)
    if number is None:
        return False
    value = Fraction(number[1].replace(" ", ""))
    if number[2]:
        return bool(AnswerForms(_written(value / 100)).places(text))
    return any(_PERCENT.match(text, end) for _, end in AnswerForms(_written(value * 100)).places(text))


def _written(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"
