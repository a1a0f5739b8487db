"""Rows of supervised training: a teacher who explains, a teacher who advises, a student.

One decision: a row is a chat whose last turn is the answer, and a number of characters of it that are given rather than
learnt (`loss_from`). What stands before that is, character by character, what the model is asked in RL.

    >>> row = explaining_row(TracedRow(question="1+1?", solution="2", trace="One more than one."), STYLES["stratos"])
    >>> row["messages"][-1]["content"][row["loss_from"] :]
    'One more than one.\\n\\n<|end_of_explanation|>'
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from verl.data_preprocessing.reasoning_traces.completions import check_free
from verl.data_preprocessing.reasoning_traces.formats import DataConfig
from verl.data_preprocessing.reasoning_traces.rows import TracedRow
from verl.teaching.explanation import ExplanationFormat
from verl.teaching.tags import TeachingTags, is_blank
from verl.teaching.templates import Messages, Templates

BEGINS_LIKE_THIS = "I give the first steps of a way that leads to the answer."
"""The private part of a bootstrap row: nobody has diagnosed the outline, so that nothing is said of it."""

Row = dict[str, Any]


def explained(row: TracedRow, *, solution_as_trace: bool = False) -> TracedRow:
    """A row with a trace to learn.

    Args:
        row: it may have none.
        solution_as_trace: whether the solution then stands in for it (`allow_solution_as_trace`).

    Raises:
        ValueError: it has none.
    """
    if row.trace is not None:
        return row
    if row.solution is None or not solution_as_trace:
        raise ValueError("no reasoning trace")
    return replace(row, trace=row.solution)


def explaining_row(row: TracedRow, form: ExplanationFormat) -> Row:
    """RLT: the solution is given, its explanation is learnt.

    Raises:
        ValueError: no trace, no solution, or one of them holds a mark.
    """
    if row.solution is None:
        raise ValueError("the solution is blank")
    if row.trace is None:
        raise ValueError("no reasoning trace")
    check_free(form.marks, row.question, row.solution, row.trace)
    opening = form.opening(row.solution)
    return _row(form.prompt(row.question), opening + form.rest(row.trace), given=len(opening))


def advising_row(row: TracedRow, templates: Templates, *, teaching_limit: int, student_name: str | None = None) -> Row:
    """RCL: question and outline are given in the run's template, the private and the visible part are learnt.

    Args:
        row: with `diagnosis` and `teaching`; a row without an outline is one whose student was not asked.
        templates: the run's.
        teaching_limit: `max_teaching_tokens`, which the template names.
        student_name: as the run calls the student; None: it does not.

    Raises:
        ValueError: diagnosis or teaching is missing.
    """
    if row.teaching is None:
        raise ValueError("no teaching")
    if row.diagnosis is None:
        raise ValueError("no diagnosis")
    prompt = templates.adaptive(row.question, row.approach, teaching_limit=teaching_limit, student_name=student_name)
    return _row(prompt, advice(row.diagnosis, row.teaching, templates.tags))


def advice(diagnosis: str, teaching: str, tags: TeachingTags) -> str:
    """What a teacher writes: the private part, then the visible one, in which marks are none."""
    private, visible = (tags.escaped(text.strip()) for text in (diagnosis, teaching))
    return f"{tags.private_open}{private}{tags.private_close}{tags.visible_open}{visible}{tags.visible_close}"


def bootstrap_rows(
    rows: Iterable[TracedRow],
    *,
    max_tokens: int,
    count_tokens: Callable[[str], int],
    outlines: Callable[[list[str]], list[str]] | None = None,
    batch: int = 64,
) -> Iterator[TracedRow]:
    """Rows of a set of thoughts as rows that `advising_row` takes: the beginning of the thought is the advice.

    They teach the form of an answer and nothing else. The outline comes from a student, never from the teacher.

    Args:
        rows: with traces.
        max_tokens: `max_teaching_tokens`.
        count_tokens: length of a text in the student's tokenizer.
        outlines: asks a student for the outlines of questions, in their order; None: those that the rows have.
        batch: questions that are asked at a time.
    """
    waiting: list[TracedRow] = []
    for row in rows:
        waiting.append(_begun(row, max_tokens=max_tokens, count_tokens=count_tokens))
        if outlines is None or len(waiting) == batch:
            yield from _outlined(waiting, outlines)
            waiting = []
    yield from _outlined(waiting, outlines)


def _outlined(rows: list[TracedRow], outlines: Callable[[list[str]], list[str]] | None) -> list[TracedRow]:
    asked = [row for row in rows if row.approach is None]
    if outlines is None or not asked:
        return rows
    told = iter(outlines([row.question for row in asked]))
    return [row if row.approach is not None else replace(row, approach=next(told)) for row in rows]


def _begun(row: TracedRow, *, max_tokens: int, count_tokens: Callable[[str], int]) -> TracedRow:
    if row.trace is None:
        raise ValueError("no reasoning trace")
    teaching = beginning(row.trace, max_tokens=max_tokens, count_tokens=count_tokens)
    return replace(row, diagnosis=BEGINS_LIKE_THIS, teaching=teaching)


def beginning(text: str, *, max_tokens: int, count_tokens: Callable[[str], int]) -> str:
    """The longest beginning of a text within a number of tokens that ends where a word does.

    Raises:
        ValueError: not even the first word fits.
    """
    ends = [place for place in range(1, len(text) + 1) if place == len(text) or text[place].isspace()]
    low, high = -1, len(ends)
    while low < high - 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count_tokens(text[: ends[middle]].rstrip()) <= max_tokens else (low, middle)
    found = text[: ends[low]].rstrip() if low >= 0 else ""
    if is_blank(found):
        raise ValueError(f"no word of the trace fits into {max_tokens} tokens")
    return found


def student_row(row: TracedRow, config: DataConfig) -> Row:
    """A student who thinks and solves: thought and solution are learnt, in the set's own marks.

    Raises:
        ValueError: no trace, no solution, or one of them holds a mark.
    """
    system = row.system or config.student_system
    prompt = [] if system is None else [{"role": "system", "content": system}]
    return _row([*prompt, {"role": "user", "content": row.question}], config.completion(row))


def _row(prompt: Messages, answer: str, *, given: int = 0) -> Row:
    return {"messages": [*prompt, {"role": "assistant", "content": answer}], "loss_from": given}
