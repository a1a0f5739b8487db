"""Reads a model's text as a solution: where it thinks, where it answers, in which steps.

One decision: the marks are plain strings, looked for in the text; a thought that was never closed has no answer behind
it, so that what is cut off is not taken for one.

    >>> solution = read_solution("<think>3 + 4 = 7.</think><answer>7</answer>", problem_id="p1")
    >>> solution.thinking, solution.answer_text
    ('3 + 4 = 7.', '7')
"""

from dataclasses import dataclass
from typing import Any

from verl.reasoning.records import Solution
from verl.stepwise.steps import split_steps


@dataclass(frozen=True, kw_only=True)
class Tags:
    """The strings around the parts of a text."""

    thinking: str = "<think>"
    """Opens the thought."""
    thinking_end: str = "</think>"
    """Closes it."""
    answer: str = "<answer>"
    """Opens the answer; a text without it answers behind the thought."""
    answer_end: str = "</answer>"
    """Closes it."""
    step: str = "<step>"
    """Opens a step of the thought; a thought without it is split by what else marks its steps."""


def read_solution(
    text: str, *, problem_id: str = "", tags: Tags | None = None, opened: bool = False, **known: Any
) -> Solution:
    """A solution from all that a model wrote.

    Args:
        text: without special tokens.
        problem_id: of its problem.
        tags: the marks; None: the usual ones.
        opened: the prompt ended with the mark that opens a thought. A text with nothing but the closing mark is read
            so anyway.
        known: whatever else is known of it, as fields of `Solution`.
    """
    tags = tags or Tags()
    thinking, answer = _parts(text, tags, opened)
    _, opens, inside = answer.rpartition(tags.answer)
    if opens:
        answer = inside.partition(tags.answer_end)[0]
    steps = split_steps(thinking if thinking else text, step_tag=tags.step)
    fields = {"thinking": thinking, "answer_text": answer.strip(), "steps": steps, **known}
    return Solution(problem_id=problem_id, text=text, **fields)


def parted(text: str, *, tags: Tags | None = None) -> tuple[str, str, str]:
    """What stands before a thought, the thought, and what follows; joined they are the text.

    A text without a thought is all thought: its steps are those of the whole.
    """
    thinking = _parts(text, tags or Tags(), opened=False)[0]
    if not thinking.strip():
        return "", text, ""
    start = text.index(thinking)
    return text[:start], thinking, text[start + len(thinking) :]


def _parts(text: str, tags: Tags, opened: bool) -> tuple[str, str]:
    before, closes, after = text.partition(tags.thinking_end)
    if closes:
        return (before.partition(tags.thinking)[2] if tags.thinking in before else before), after
    _, opens, unfinished = text.partition(tags.thinking)
    if opens or opened:
        return (unfinished if opens else text), ""
    return "", text


def is_well_formed(text: str, *, tags: Tags | None = None, opened: bool = False) -> bool:
    """Whether a text is one closed thought, and then an answer that is not empty; every mark once, and in order."""
    tags = tags or Tags()
    starts = text.count(tags.thinking)
    if text.count(tags.thinking_end) != 1 or starts != (0 if opened else 1):
        return False
    before, _, after = text.partition(tags.thinking_end)
    if not opened and not before.lstrip().startswith(tags.thinking):
        return False
    if tags.answer in before or tags.answer_end in before or not before.replace(tags.thinking, "").strip():
        return False
    marks = after.count(tags.answer), after.count(tags.answer_end)
    if marks == (0, 0):
        return bool(after.strip())
    inside = after.partition(tags.answer)[2].partition(tags.answer_end)
    around = (after.partition(tags.answer)[0] + inside[2]).strip()
    return marks == (1, 1) and bool(inside[1]) and bool(inside[0].strip()) and not around
