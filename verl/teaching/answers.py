"""The student's final answer in what it wrote, and whether that is the true one.

One decision: there is one extraction, for baseline, guided and evaluated responses alike. A second one would make a
difference between them that nobody taught. A text without a marked answer has none; nothing is guessed.

    >>> rules = AnswerRules.of("openai/gsm8k", tags)
    >>> extract_answer("So 58 + 27 = 85. <solution>85</solution>", rules)
    Answer(text='85', method=<AnswerMethod.solution_tag: 'solution_tag'>, truncated=False)
    >>> same_as_truth("1,000", "1000"), same_as_truth("0.001", "0.004"), same_as_truth(None, "7")
    (True, False, False)

Times are linear in the text's length.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum

from verl.classmate.errors import ConfigError
from verl.teaching.tags import TeachingTags, is_blank
from verl.utils.reward_score.cot_monitor._boxed import last_boxed
from verl.utils.reward_score.cot_monitor._math import same_answer
from verl.utils.reward_score.cot_monitor._math_markup import tidy
from verl.utils.reward_score.cot_monitor._math_reading import read
from verl.utils.reward_score.cot_monitor._numbers import NUMBER

MARKERS = {"openai/gsm8k": "####"}
"""Data source -> what its reference solutions mark the answer with, up to the line's end."""

_BOX_BEGINS = re.compile(r"\\f?boxed\s*\{|\\fbox\s*\{")
_LAST_NUMBER = re.compile(rf"(?:{NUMBER})(?:\s?/\s?[0-9]+)?(?:\s?\\?%)?")
_LONGEST_PERCENTAGE = 100
"""Characters."""
_NO_MEANING = re.compile(r"\s+|\\cdot(?![A-Za-z])|\\times(?![A-Za-z])")


class AnswerMethod(StrEnum):
    """What an answer was found by."""

    solution_tag = "solution_tag"
    boxed = "boxed"
    marker = "marker"
    last_number = "last_number"
    """Only with `extract.allow_last_number`."""
    none = "none"


@dataclass(frozen=True, kw_only=True)
class AnswerRules:
    """What marks an answer."""

    tags: TeachingTags = field(default_factory=TeachingTags)
    """Whose solution tag the student's prompt names."""
    marker: str | None = None
    """The data set's own; None: it has none."""
    allow_last_number: bool = False
    """Whether an unmarked answer is its last number (`extract.allow_last_number`)."""

    @classmethod
    def of(cls, data_source: str, tags: TeachingTags, *, allow_last_number: bool = False) -> "AnswerRules":
        """The rules of a data source, which is looked up by its exact name."""
        return cls(tags=tags, marker=MARKERS.get(data_source), allow_last_number=allow_last_number)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was found in one response."""

    text: str | None
    """The answer, never blank; None if there is none, which counts as incorrect and is logged."""
    method: AnswerMethod
    """What it was found by."""
    truncated: bool
    """Whether the response was cut off: it stopped at its budget, or within a solution tag or a box."""


def extract_answer(response: str, rules: AnswerRules, *, stopped_at_budget: bool = False) -> Answer:
    """The answer of a student's response.

    The last complete solution tag is looked for first, then the last box with balanced braces, then the data set's own
    marker. Within a solution tag a box or a marker says where the answer is. A blank mark marks nothing.

    Args:
        response: the student's whole text; never the teacher's.
        rules: the same for baseline and guided responses.
        stopped_at_budget: whether the engine's finish reason was the token budget.
    """
    solution, solution_open = _last_solution(response, rules.tags)
    box = last_boxed(response)
    truncated = stopped_at_budget or solution_open or _box_is_open(response)
    found: list[tuple[str | None, AnswerMethod]] = []
    if solution is not None:
        inner = last_boxed(solution) or _behind_marker(solution, rules.marker) or solution
        found.append((inner, AnswerMethod.solution_tag))
    found += [(box, AnswerMethod.boxed), (_behind_marker(response, rules.marker), AnswerMethod.marker)]
    if rules.allow_last_number:
        found.append((_last_number(response), AnswerMethod.last_number))
    for text, method in found:
        if text is not None and not is_blank(text):
            return Answer(text=text.strip(), method=method, truncated=truncated)
    return Answer(text=None, method=AnswerMethod.none, truncated=truncated)


def same_as_truth(answer: str | None, truth: str) -> bool | None:
    """Whether an answer is the true one, by value: thousands, fractions and percent are read, nothing is rounded.

    None if the checker could not tell, which is a failure of the checker and no wrong answer: the row has no score. It
    waits for a process of math-verify, so that an event loop calls it in a thread.

    Args:
        answer: `Answer.text`; None or blank is wrong.
        truth: the row's ground truth.

    Raises:
        ConfigError: the truth is blank; such rows are taken out when they are loaded.
        RuntimeError: math-verify cannot be started.
    """
    if not truth.strip():
        raise ConfigError("a ground truth is blank; take the rows without one out of the data")
    if answer is None or is_blank(answer):
        return False
    same = same_answer(answer, truth)
    if same is False and (part := _part_of_one(answer)) is not None and _part_of_one(truth) is None:
        # `same_answer` takes 50% for 50, which a question for a percentage asks for; it is 0.5 as well.
        same = same_answer(part, truth)
    if same is None and _letters(answer) == _letters(truth):
        return True
    return same


def _part_of_one(answer: str) -> str | None:
    """A percentage as the decimal that it is; None of anything else."""
    if len(answer) > _LONGEST_PERCENTAGE:
        return None
    said = read(answer)
    return format(said.decimal.scaleb(-2), "f") if said.scale == -2 and said.decimal is not None else None


def _letters(answer: str) -> str:
    """An answer without what means nothing in it."""
    return _NO_MEANING.sub("", tidy(answer))


def _last_solution(text: str, tags: TeachingTags) -> tuple[str | None, bool]:
    """The content of the last complete solution tag, and whether one is open at the end.

    Where one begins within another the inner one counts, so that a mention of the tag costs nothing.
    """
    content: str | None = None
    opened: int | None = None
    for mark in re.finditer(f"{re.escape(tags.solution_open)}|{re.escape(tags.solution_close)}", text):
        if mark[0] == tags.solution_open:
            opened = mark.end()
        elif opened is not None:
            content, opened = text[opened : mark.start()], None
    return content, opened is not None


def _box_is_open(text: str) -> bool:
    """Whether the last box that begins does not end."""
    begins = [box.end() for box in _BOX_BEGINS.finditer(text)]
    if not begins:
        return False
    depth = 1
    for mark in re.finditer(r"\\[\\{}]|[{}]", text[begins[-1] :]):
        depth += {"{": 1, "}": -1}.get(mark[0], 0)
        if depth == 0:
            return False
    return True


def _behind_marker(text: str, marker: str | None) -> str | None:
    """What stands behind the last marker that has something behind it in its line."""
    if marker is None:
        return None
    end = len(text)
    while (at := text.rfind(marker, 0, end)) >= 0:
        begin = at + len(marker)
        line_end = text.find("\n", begin, end)
        line = text[begin : end if line_end < 0 else line_end].strip()
        if line:
            return line
        end = at
    return None


def _last_number(text: str) -> str | None:
    """The last number, with the fraction or the percent sign that it belongs to."""
    found = [number[0] for number in _LAST_NUMBER.finditer(text)]
    return found[-1] if found else None
