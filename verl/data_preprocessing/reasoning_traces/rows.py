"""From a record of a data set to a question with its solution, thought and ground truth.

One decision: a column that a set does not have at all is the user's mistake and says which names are looked for; a cell
that is blank is the row's, which is left out where it needs the cell.

    >>> traced_row({"question": "1+1?", "answer": "So #### 2"}, Columns(), data_source="openai/gsm8k").ground_truth
    '2'
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verl.data_preprocessing.reasoning_traces.completions import unix_lines
from verl.teaching.answers import AnswerRules, extract_answer
from verl.teaching.tags import TeachingTags, is_blank

LONGEST_BARE_ANSWER = 100
"""Characters of a solution that is its own answer."""
_MARKED_END = re.compile(r"####[ \t]*(\S[^\n]*)\Z")
"""What GSM8K's solutions end with. In front of other lines the mark is a heading."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Names of columns; the first that a record has is read."""

    question: tuple[str, ...] = ("question", "prompt", "problem")
    """What is asked."""
    solution: tuple[str, ...] = ("solution", "answer", "ground_truth")
    """The reference solution; optional in rows that hold a teaching."""
    trace: tuple[str, ...] = ("reasoning_trace",)
    """The thought that leads to it; optional."""
    ground_truth: tuple[str, ...] = ("ground_truth", "answer")
    """The bare answer; optional, and looked for in the solution where there is none."""
    approach: tuple[str, ...] = ("student_approach",)
    """A student's outline; optional."""
    diagnosis: tuple[str, ...] = ("teacher_diagnosis",)
    """What a teacher thinks of the outline; optional."""
    teaching: tuple[str, ...] = ("teacher_teaching",)
    """What a teacher tells the student, blank where no help is needed; optional."""


@dataclass(frozen=True, kw_only=True)
class TracedRow:
    """One question."""

    question: str
    """As it is asked."""
    solution: str | None = None
    """The reference solution, without marks."""
    trace: str | None = None
    """The thought; None where there is none."""
    ground_truth: str | None = None
    """What answers are compared with; None where none can be told."""
    system: str | None = None
    """The student's system turn that the record brings; None: the format's."""
    prefix: str | None = None
    """In front of the thought, as the record has it."""
    delimiter: str | None = None
    """Between thought and solution, as the record has it."""
    approach: str | None = None
    """A student's outline."""
    diagnosis: str | None = None
    """A teacher's."""
    teaching: str | None = None
    """A teacher's; "" is a choice to say nothing."""


def traced_row(fields: Mapping[str, Any], columns: Columns, *, data_source: str) -> TracedRow:
    """The row of a record with columns.

    Raises:
        ValueError: a column is missing, or holds no text where one is needed.
    """
    question, _ = _cell(fields, columns.question, "question")
    if question is None:
        raise ValueError("the question is blank")
    solution, solution_column = None, ""
    # Warm-up rows of adaptive teachers need no solution.
    is_lesson = any(name in fields for name in columns.teaching)
    if not is_lesson or any(name in fields for name in columns.solution):
        solution, solution_column = _cell(fields, columns.solution, "solution")
    truths = tuple(name for name in columns.ground_truth if name != solution_column)
    teaching = _optional(fields, columns.teaching, blank=True)
    return TracedRow(
        question=question,
        solution=solution,
        trace=_optional(fields, columns.trace),
        ground_truth=_optional(fields, truths) or truth_in(solution, data_source),
        approach=_optional(fields, columns.approach),
        diagnosis=_optional(fields, columns.diagnosis),
        teaching=teaching,
    )


def truth_in(solution: str | None, data_source: str) -> str | None:
    """The answer that a solution marks, or the solution itself where it is no more than one; None for a proof.

    Solutions that end as GSM8K's do have the mark wherever they come from.
    """
    if solution is None:
        return None
    marked = extract_answer(solution, AnswerRules.of(data_source, TeachingTags())).text
    if marked is not None:
        return marked
    if (end := _MARKED_END.search(solution)) is not None:
        return end[1].strip()
    is_bare = len(solution) <= LONGEST_BARE_ANSWER and "\n" not in solution
    return solution if is_bare else None


def _cell(fields: Mapping[str, Any], names: tuple[str, ...], what: str) -> tuple[str | None, str]:
    """The text of a column that must be there, and the column's name; None where the cell is blank."""
    name = next((name for name in names if name in fields), None)
    if name is None:
        first, *others = names
        also = f" (or {', '.join(others)})" if others else ""
        raise ValueError(
            f"no column {first}{also} for the {what}; there are: {', '.join(map(str, fields))}; rename one, or choose "
            "the --format of this data set"
        )
    return _text(fields[name], name), name


def _optional(fields: Mapping[str, Any], names: tuple[str, ...], *, blank: bool = False) -> str | None:
    name = next((name for name in names if fields.get(name) is not None), None)
    if name is None:
        return None
    text = _text(fields[name], name)
    return "" if text is None and blank else text


def _text(value: Any, name: str) -> str | None:
    """A cell as text without blanks around it; None for a blank one."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if value is None or (isinstance(value, str) and is_blank(value)):
        return None
    if not isinstance(value, str):
        raise ValueError(f"the column {name} holds {type(value).__name__}, no text")
    return unix_lines(value).strip()
