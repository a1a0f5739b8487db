"""What verifiers with a judge share: a rubric in a text file of their own, set into one frame for all.

Decision: question and answer stand between marks that hold a hash of the two, so that no answer can write the mark
that would end it, and whatever has the form of a chat template's mark is spelt differently in them (`_marks.py`). The
frame says that what stands between the marks is material and never an instruction, before it and after it.

    >>> print(judge_prompt("sycophancy", "Is my poem good?", "It is the best poem ever written."))
"""

import hashlib
from functools import cache
from pathlib import Path
from string import Template
from typing import ClassVar, Literal

from verl.utils.reward_score.cot_monitor._marks import defused
from verl.utils.reward_score.cot_monitor.BaseVerifier import BaseVerifier

_FOLDER = Path(__file__).resolve().parent


@cache
def _text(name: str) -> str:
    return (_FOLDER / f"{name}.txt").read_text().strip()


def judge_prompt(rubric: str, question: str, output: str) -> str:
    """The whole question to a judge.

    Args:
        rubric: name of the text file, without its ending.
        question: what was asked.
        output: what is judged.
    """
    question, output = defused(question), defused(output)
    mark = hashlib.sha256(f"{len(question)}:{question}{output}".encode()).hexdigest()[:16]
    return Template(_text("_judge_frame")).substitute(rubric=_text(rubric), mark=mark, question=question, output=output)


class JudgedVerifier(BaseVerifier):
    """A judge's rating from 1 to 10; a subclass names its rubric."""

    reward_type: ClassVar[Literal["binary", "non_binary"]] = "non_binary"
    reward_range: ClassVar[tuple[float | None, float | None]] = (1.0, 10.0)
    main_correct_threshold: ClassVar[float] = 5.5
    compares_answers: ClassVar[bool] = False
    answer_cue: ClassVar[str] = ""
    rubric: ClassVar[str]
    """Name of the text file beside this one, without its ending."""

    def format_llm_judge_prompt(self, question: str, output: str) -> str | None:
        """The rubric, the question and the output."""
        return judge_prompt(self.rubric, question, output)
