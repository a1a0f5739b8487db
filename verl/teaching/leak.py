r"""Whether a teacher's advice gives the answer away.

One decision: an answer is looked for by its value, as a whole number or whole words (`AnswerForms`), never by its
letters inside of others. What the question holds already says nothing, unless the advice calls it the answer.

    >>> find_leak("Then you have 1,000 of them.", question="What is 10 cubed?", truth="1000")
    Leak(told=True, extracted=False)

RCL, and the solve rate against the leak rate of PedagogicalRL (arXiv 2505.15607).
"""

from collections.abc import Callable
from dataclasses import dataclass

from verl.classmate.answer_forms import AnswerForms


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
    """Whether advice gives the answer away. Blank advice, and a blank answer, never do.

    Args:
        advice: z, as the student sees it.
        question: q.
        truth: g, a number with or without a unit, LaTeX, the letter of a choice, or words.
        is_right: what checks a student's response (text, truth); it extracts the answer and compares it. None: only the
            answer itself is looked for.

    Raises:
        Exception: whatever `is_right` raises.
    """
    if not advice.strip() or not truth.strip():
        return Leak(told=False, extracted=False)
    forms = AnswerForms(truth)
    return Leak(
        told=bool(forms.places(advice)) and not forms.places(question),
        extracted=is_right is not None and is_right(advice, truth),
    )
