"""A teacher's rows as a person reads them: what their students were and planned, what it wrote, what came of it.

>>> show_taught(out, row, pipeline)                               # all of one row
>>> taught_cells(row.record)                                      # a line of a step's table, under `TAUGHT_COLUMNS`
"""

import math
from collections.abc import Mapping
from typing import Any, Protocol

from verl.classmate.record import RowRecord
from verl.classmate.row import ScoredRow
from verl.teaching.rcl import RclReward
from verl.teaching.rlt import RltReward
from verl.teaching.row import SolveRate
from verl.teaching.taught import StudentResult, Taught
from verl.workers.teaching_pipeline import TeachingPipeline, lesson_of


class Writes(Protocol):
    """Where the lines go."""

    def title(self, text: str) -> None:
        """A heading."""
        ...

    def line(self, text: str) -> None:
        """A line."""
        ...

    def block(self, name: str, text: str) -> None:
        """A text of several lines below its name."""
        ...


TAUGHT_COLUMNS: Mapping[str, bool] = {
    "student": False,
    "b": True,
    "w": True,
    "advice": False,
    "L": True,
    "leak": False,
    "terms of r": False,
}
"""What a step's table says of a teacher's row; whether it is a number."""

TAUGHT_LEGEND = "b, w: solved without and with the advice of L tokens; r: the terms' sum, clipped; --row K shows a row"
"""What the columns are."""


def taught_cells(record: RowRecord) -> tuple[str, ...]:
    """The cells of a row, under `TAUGHT_COLUMNS`; of several students (`joint`) the means that its reward is of."""
    assert record.teaching is not None, "a teacher's row"
    taught = Taught.from_record(record.teaching)
    effect = None if taught.rcl is None else taught.rcl.effect
    ways = [name for name, found in (("told", taught.leak.told), ("extracted", taught.leak.extracted)) if found]
    parts = [part for part in (taught.rcl, taught.rlt) if part is not None]
    terms = [
        f"{name} {value:+.3g}"
        for part in parts
        if part.terms is not None
        for name, value in vars(part.terms).items()
        if value
    ]
    asked = taught.question is not None and not taught.question.state.keeps_contract
    return (
        ", ".join(one.lesson.name for one in taught.students),
        "-" if effect is None else f"{effect.base:.3g}",
        "-" if effect is None else f"{effect.guided:.3g}",
        f"{taught.teaching.state}, no question" if asked else str(taught.teaching.state),
        str(taught.teaching.tokens),
        ", ".join(ways),
        " ".join(terms) if taught.outcome == "ok" else f"none: {taught.outcome}",
    )


def show_taught(out: Writes, scored: ScoredRow, pipeline: TeachingPipeline) -> None:
    """Everything of a row but its advantage."""
    assert scored.method is not None, "a teacher's row"
    taught = Taught.from_record(scored.method.record)
    answer = scored.read.answer
    for one in taught.students:
        _before(out, one)
    out.title("the teacher")
    lesson = lesson_of(answer)
    turns = pipeline.teacher_messages(str(answer.task.question), lesson, told=answer.task.extra_info)
    if pipeline.author is not None and lesson.question is not None:
        taught_ones = [pipeline.students.students[r] for r in lesson.readers]
        for turn in pipeline.author.asks(str(answer.task.question), taught_ones):
            out.block(f"asked for a question ({turn['role']})", turn["content"])
        first = answer.turns[0] if answer.turns else (0, 0)
        out.block("wrote first", pipeline.text_of(answer.response_ids[slice(*first)]))
        out.line(f"question      {lesson.question.state}, {lesson.question.tokens} tokens")
        turns = pipeline.author.goes_on(turns)
    for turn in turns:
        out.block(f"asked ({turn['role']})", turn["content"])
    out.block("wrote", scored.read.span.text)
    _teaching(out, taught)
    for one in taught.students:
        asked = (*scored.asked, *scored.unseen)[one.lesson.reader]
        _after(out, one, asked)
    out.title("how the reward came about")
    if taught.rcl is not None:
        _rcl(out, taught.rcl)
    if taught.rlt is not None:
        _rlt(out, taught.rlt)


def _before(out: Writes, one: StudentResult) -> None:
    lesson = one.lesson
    out.title(f"student {lesson.reader}: {lesson.name}, before")
    if not math.isnan(lesson.base.rate) or lesson.base.failed:
        stored = "" if math.isnan(lesson.cache_hit) else f", {'stored' if lesson.cache_hit else 'asked now'}"
        out.line(f"alone         {_rate(lesson.base)}{stored}")
    if lesson.probe.outcome != "ok":
        out.line(f"outline       none: {lesson.probe.outcome} {lesson.probe.error or ''}".rstrip())
    elif lesson.probe.text:
        out.block(f"outline, {lesson.probe.tokens} tokens{', cut' if lesson.probe.cut else ''}", lesson.probe.text)


def _teaching(out: Writes, taught: Taught) -> None:
    teaching = taught.teaching
    out.line(f"teaching      {teaching.state}, {teaching.tokens} tokens of {teaching.written_tokens} written")
    if teaching.text:
        out.block("", teaching.text)
        ways = [name for name, found in (("told", taught.leak.told), ("extracted", taught.leak.extracted)) if found]
        out.line(f"leak          {', '.join(ways) or 'none'}")


def _after(out: Writes, one: StudentResult, asked: Any) -> None:
    out.title(f"student {one.lesson.reader}: {one.lesson.name}, with the teaching")
    if not asked.continuations:
        out.line("not asked again: nothing was shown, so it solves what it solves alone")
        return
    if one.guided is not None:
        out.line(f"guided        {_rate(one.guided)}, the teaching has {one.length} of its tokens")
    out.block("asked", str(asked.prompts[0]))
    for item in asked.continuations:
        score = "none" if item.score is None else f"{item.score:g}"
        out.line(
            f"  {item.outcome}, score {score}, {item.token_length} tokens ({item.finish_reason}) {item.error or ''}"
        )
        out.block("", item.text or "")
        if item.log_probs is not None:
            out.line(f"  log p of {len(item.log_probs)} tokens, sum {math.fsum(item.log_probs):.4g}")


def _rcl(out: Writes, reward: RclReward) -> None:
    if reward.terms is None or reward.effect is None:
        out.line(f"RCL           none: {reward.outcome}")
        return
    effect = reward.effect
    out.line(f"b, w          {effect.base:.4g}, {effect.guided:.4g}   (D counts as {effect.change:+.4g})")
    out.line(f"e(L)          {effect.conciseness:.4g}")
    for name, value in vars(reward.terms).items():
        if value:
            out.line(f"  {name:<12}{value:+.4g}")
    out.line(f"r           = {reward.reward:.4g}   (their sum {reward.terms.total:.4g}, within r_min and r_max)")


def _rlt(out: Writes, reward: RltReward) -> None:
    if reward.terms is None:
        out.line(f"RLT           none: {reward.outcome}")
        return
    explained = f"explanation by the student {reward.student_log_prob:.4g}"
    out.line(f"log p         solution {reward.solution_log_prob:.4g}, {explained}")
    for name, value in vars(reward.terms).items():
        if value:
            out.line(f"  {name:<12}{value:+.4g}")
    out.line(f"r (RLT)     = {reward.reward:.4g}   (their sum {reward.terms.total:.4g}, within r_min and r_max)")


def _rate(rate: SolveRate) -> str:
    if rate.outcome != "ok":
        return f"no solve rate: {rate.outcome}"
    return f"solves {rate.rate:.4g}, answers found {rate.parsed:.0%}, {rate.tokens:.3g} tokens"
