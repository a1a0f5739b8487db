"""A teacher that is trained already, or fixed advice, put to students: rows as a training run makes and keeps them.

One decision: it is the run's own pipeline (`TeachingPipeline`) with another hand that writes, so that a row collected
here means what a row of training means: same prompts, extraction, scores and reward. Only the order differs: all
students of some questions are asked, then the teacher, then the students again, so that a machine needs room for one
model at a time.

    >>> collector = Collector(pipeline, AdviceWriter(solution_of, pipeline), client, identity, cache=cache)
    >>> lessons = await collector.lessons(tasks, readers)
    >>> rows = await collector.rows(await collector.written(work, lessons))
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from verl.classmate.cot import CotKind, CotSpan
from verl.classmate.outcome import Outcome
from verl.classmate.record import RowRecord
from verl.classmate.reply import Reply
from verl.classmate.row import Answer, ReadRow, Task
from verl.classmate.seeds import POLICY_SEED, request_seed, row_key
from verl.teaching.baseline_cache import BaselineCache
from verl.teaching.collected import INFRASTRUCTURE, CollectedTeaching, row_id, rows_of
from verl.teaching.lesson import Lesson, StudentLesson
from verl.teaching.templates import Template, Templates
from verl.workers.rows.asking import Completes
from verl.workers.teaching_pipeline import TeachingPipeline

STEP = 0
"""Of rows that no training step has made."""


@dataclass(frozen=True, kw_only=True)
class Variation:
    """One of several teachings of a question."""

    number: int
    """From 0; the seed follows from it."""
    temperature: float
    """Of the teacher."""
    prompt: Template | None = None
    """In the place of the run's `teacher_adaptive_template`; None: the run's own."""

    def templates(self, of_run: Templates) -> Templates:
        """All prompts, this one among them."""
        return of_run if self.prompt is None else replace(of_run, teacher_adaptive_template=self.prompt)


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What rows of one collection have in common."""

    run: str
    """Its id."""
    teacher: str
    """Which weights write."""
    seed: int
    """Of all requests."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Work:
    """A row that is to be made."""

    task: Task
    """The question."""
    reader: int
    """Which student."""
    variation: Variation
    """Which teaching."""

    @property
    def key(self) -> str:
        """Names the question."""
        return row_key(self.task.data_source, self.task.extra_info["index"])


@dataclass(frozen=True, kw_only=True, eq=False)
class Written:
    """What stands for the teacher's answer."""

    work: Work
    """Which row it is for."""
    lesson: Lesson
    """What was known before."""
    outcome: Outcome = Outcome.ok
    """ok, or why there is nothing."""
    error: str | None = None
    """What the engine said, where it failed."""
    prompt_ids: Sequence[int] = ()
    """What the teacher was asked."""
    response_ids: Sequence[int] = ()
    """What it answered."""
    text: str | None = None
    """The answer as text, where no model wrote it."""


class Writes(Protocol):
    """Whoever writes teachings."""

    async def write(self, work: Work, lesson: Lesson, client: Completes) -> Written:
        """For one row."""
        ...


class ModelWriter:
    """A teacher that is an engine."""

    def __init__(
        self,
        name: str,
        tokenizer: Any,
        pipeline: TeachingPipeline,
        *,
        seed: int | None,
        sampling: Mapping[str, Any],
        limits: tuple[int, int],
        template_kwargs: Mapping[str, Any],
    ) -> None:
        """Keeps its parts.

        Args:
            name: of the frozen model.
            tokenizer: its own, as the run uses it.
            pipeline: says what a teacher is asked.
            seed: of the collection; None: its engine draws by itself.
            sampling: top_p, top_k.
            limits: most tokens of its prompt and of its answer.
            template_kwargs: chat-template arguments.
        """
        self._name = name
        self._tokenizer = tokenizer
        self._pipeline = pipeline
        self._seed = seed
        self._sampling = dict(sampling)
        self._prompt_length, self._response_length = limits
        self._template_kwargs = dict(template_kwargs)

    async def write(self, work: Work, lesson: Lesson, client: Completes) -> Written:
        """Asks it."""
        of_run, variation = self._pipeline.teaching, work.variation
        messages = messages_of(self._pipeline, work, lesson, variation.templates(of_run.templates))
        text = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, **self._template_kwargs
        )
        ids = list(self._tokenizer.encode(text, add_special_tokens=False))
        found = Written(work=work, lesson=lesson, prompt_ids=ids)
        if len(ids) > self._prompt_length:
            return replace(found, outcome=Outcome.too_long)
        params = {**self._sampling, "temperature": variation.temperature, "max_tokens": self._response_length}
        if self._seed is not None:
            params["seed"] = request_seed(self._seed, STEP, work.key, variation.number, POLICY_SEED, 0)
        reply: Reply = await client.complete(self._name, ids, params)
        return replace(found, outcome=reply.outcome, error=reply.error, response_ids=reply.token_ids)


def messages_of(pipeline: TeachingPipeline, work: Work, lesson: Lesson, templates: Templates) -> Any:
    """T, with the prompts of one variation."""
    protocol, (one,) = pipeline.teaching.protocol, lesson.students
    return templates.adaptive(
        str(work.task.question),
        approach=one.probe.text or None,
        student_name=one.name if protocol.name_student else None,
        teaching_limit=protocol.max_teaching_tokens,
    )


class AdviceWriter:
    """No model: advice that is known, such as the reference solution."""

    def __init__(self, advice: Callable[[Task], str | None], pipeline: TeachingPipeline) -> None:
        """`advice` of a question; None or blank where there is none."""
        self._advice = advice
        self._tags = pipeline.teaching.templates.tags

    async def write(self, work: Work, lesson: Lesson, client: Completes) -> Written:
        """What a teacher would have written to say just that."""
        # Escaped as every value of a template is, so that advice cannot end its own section.
        told = self._tags.escaped(self._advice(work.task) or "")
        text = f"{self._tags.visible_open}{told}{self._tags.visible_close}"
        return Written(work=work, lesson=lesson, text=text)


class Collector:
    """Makes rows."""

    def __init__(
        self,
        pipeline: TeachingPipeline,
        writer: Writes,
        client: Completes,
        identity: Identity,
        *,
        cache: BaselineCache | None,
    ) -> None:
        """Keeps its parts.

        Args:
            pipeline: of the teacher's run.
            writer: who teaches.
            client: asks the models.
            identity: of the collection.
            cache: of the students' answers alone.
        """
        self._pipeline = pipeline
        self._writer = writer
        self._client = client
        self._identity = identity
        self._cache = cache
        self.left_out: Counter[str] = Counter()
        """Rows that could not be made, by the reason."""
        self.last_error: str | None = None
        """What an engine said last."""
        self._failures = 0

    def take_failures(self) -> int:
        """Rows that the teacher's engine has failed at since the last call."""
        failures, self._failures = self._failures, 0
        return failures

    def id_of(self, work: Work) -> str:
        """Of the row that will be made."""
        name = self._pipeline.students.students[work.reader].name
        number = work.variation.number
        return row_id(run=self._identity.run, step=STEP, key=work.key, variation=number, student=name)

    async def lessons(self, tasks: Sequence[Task], readers: Sequence[int]) -> dict[tuple[str, int], StudentLesson]:
        """Baseline and outline of some students, by question and student."""
        pairs = [(task, r) for task in tasks for r in readers]
        asked = (
            self._pipeline.students.student_lesson(task, r, step=STEP, draw=0, validate=False) for task, r in pairs
        )
        found = await asyncio.gather(*asked)
        return {(str(task.extra_info["index"]), reader): one for (task, reader), one in zip(pairs, found, strict=True)}

    async def written(self, work: Sequence[Work], lessons: Mapping[tuple[str, int], StudentLesson]) -> list[Written]:
        """What the teacher writes; rows for which it could not are counted."""

        async def one(item: Work) -> Written:
            lesson = Lesson(students=(lessons[(str(item.task.extra_info["index"]), item.reader)],))
            return await self._writer.write(item, lesson, self._client)

        found = await asyncio.gather(*map(one, work))
        for item in found:
            if item.outcome is not Outcome.ok:
                self.left_out[f"teacher_{item.outcome.value}"] += 1
                self._failures += item.outcome in INFRASTRUCTURE
                self.last_error = item.error or self.last_error
        return [item for item in found if item.outcome is Outcome.ok]

    async def rows(self, written: Sequence[Written]) -> list[CollectedTeaching]:
        """What the students make of it."""
        made = await asyncio.gather(*map(self._row, written))
        return [row for rows in made for row in rows]

    async def _row(self, written: Written) -> list[CollectedTeaching]:
        pipeline, work = self._pipeline, written.work
        answer = Answer(
            messages=({"role": "user", "content": str(work.task.question)},),
            prompt_ids=written.prompt_ids,
            response_ids=list(written.response_ids),
            task=work.task,
            uid=str(work.task.extra_info["index"]),
            step=STEP,
            rollout=work.variation.number,
            validate=False,
            lesson=written.lesson.to_json(),
        )
        if written.text is None:
            scored = await pipeline.run(answer)
        else:
            read = given_text(pipeline, answer, written.text)
            asked = await asyncio.gather(*(pipeline.ask(read, m) for m in pipeline.asks(read)))
            scored = await pipeline.score(read, asked)
        return rows_of(
            RowRecord.of(scored),
            run=self._identity.run,
            teacher=self._identity.teacher,
            seed=self._identity.seed,
            template_hash=work.variation.templates(pipeline.teaching.templates).hash,
            temperature=work.variation.temperature if written.text is None else None,
            baselines=None if self._cache is None else self._cache.stored,
        )


def given_text(pipeline: TeachingPipeline, answer: Answer, text: str) -> ReadRow:
    """A row whose teacher's text did not come from a model, as `TeachingPipeline.read` would have it."""
    teaching = pipeline.teaching_in(text, answer)
    span = CotSpan(
        kind=CotKind.no_marker,
        text=text,
        cot=teaching.text,
        cot_char=0,
        start=0,
        end=0,
        output=text,
        output_start=0,
        output_end=0,
        skip_special=True,
    )
    nothing_R = np.zeros(0, dtype=np.int64)
    return ReadRow(
        answer=answer,
        span=span,
        thoughts=(teaching.text,),
        mask=nothing_R,
        segments=nothing_R,
        kept_text=teaching.text,
        samples=pipeline.teaching.protocol.guided(validate=False),
    )
