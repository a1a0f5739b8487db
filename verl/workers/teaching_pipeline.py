"""A teacher's row from its text to its reward: find the teaching, show it to the students, score what they make of it.

One decision: the steps are `RowPipeline`'s, with students in the place of classmates: streamed or batched, dumped and
replayed, a row goes the same way. What the students were and said before the teacher wrote (the lesson) comes with the
row.

    >>> lesson = await pipeline.lesson(columns)                       # baseline and outline, once for the group
    >>> messages = pipeline.teacher_messages(question, lesson)        # what the teacher is asked
    >>> scored = await pipeline.run(answer)                           # answer.lesson is the lesson
"""

import asyncio
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from omegaconf import DictConfig

from verl.classmate import cot
from verl.classmate.config import this_run
from verl.classmate.cot import CotKind, CotMarkers, CotSpan
from verl.classmate.outcome import Outcome
from verl.classmate.row import Answer, Asked, Continuation, MethodPart, ReadRow, RowScores, ScoredRow, Task, Verdict
from verl.classmate.seeds import row_key
from verl.teaching.answers import extract_answer, same_as_truth
from verl.teaching.config import TeachingConfig
from verl.teaching.leak import Leak, find_leak
from verl.teaching.lesson import Lesson, StudentLesson
from verl.teaching.row import SolveRate, solve_rate
from verl.teaching.tags import Teaching, extract_teaching
from verl.teaching.taught import Taught
from verl.teaching.templates import Messages
from verl.workers.classmates.shared_draws import drawn_once
from verl.workers.row_pipeline import RowPipeline
from verl.workers.rows.asking import Asks
from verl.workers.students import Students, student_answer


class TeachingPipeline(RowPipeline):
    """What happens to every row of a teacher; made once per process."""

    teaching: TeachingConfig
    """The typed node `rcl`."""
    students: Students
    """Who is taught."""

    @classmethod
    def of_teacher(
        cls, config: DictConfig, tokenizer: Any, client: Asks, teaching: TeachingConfig
    ) -> "TeachingPipeline":
        """As `RowPipeline.build`, for a run whose config has the node `rcl`.

        Raises:
            ConfigError: a student that cannot be asked.
        """
        pipeline = cls.build(config, tokenizer, client)
        assert isinstance(pipeline, TeachingPipeline)
        pipeline.teaching = teaching
        pipeline.students = Students.of_run(this_run(config), teaching, pipeline.asker.tokenizers, client)
        return pipeline

    # Before the teacher writes.

    def assigned(self, task: Task, *, epoch: int, validate: bool) -> tuple[int, ...]:
        """The readers that a row is for: the one that the row names, or by turns, or with `joint` all.

        Args:
            task: of the row; `extra_info.student` names a reader.
            epoch: of training, from 0.
            validate: validation rows are for the unseen students as well.
        """
        named = task.extra_info.get("student")
        if named is not None:
            return (int(named),)
        readers = self.readers if validate else self.classmates
        if self.teaching.protocol.student_assignment == "joint":
            return tuple(range(readers))
        place = int(row_key(task.data_source, task.extra_info["index"]), 16)
        return ((place + epoch) % readers,)

    async def lesson(self, columns: Mapping[str, Any]) -> Lesson:
        """Baselines and outlines of the students that a row is for; the group asks once.

        Args:
            columns: upstream's of the row, and those that our manager adds.
        """
        task, readers = self.group_of(columns)
        key = ("lesson", task.data_source, str(task.extra_info["index"]), readers, int(columns["global_steps"]))

        async def ask() -> Lesson:
            return Lesson(
                students=tuple(await asyncio.gather(*(self.student_lesson(task, r, columns) for r in readers)))
            )

        return await drawn_once(key, ask)

    def group_of(self, columns: Mapping[str, Any]) -> tuple[Task, tuple[int, ...]]:
        """The question of a row, and the readers that it is for."""
        task = Task(
            question=columns["raw_prompt"][-1]["content"],
            data_source=str(columns["data_source"]),
            reward_model=columns["reward_model"],
            extra_info=columns["extra_info"],
        )
        return task, self.assigned(task, epoch=int(columns["epoch"]), validate=bool(columns["is_validate"]))

    async def student_lesson(self, task: Task, reader: int, columns: Mapping[str, Any]) -> StudentLesson:
        """Baseline and outline of one reader for a row."""
        validate, step = bool(columns["is_validate"]), int(columns["global_steps"])
        draw = {"step": step, "epoch": int(columns["epoch"]), "never": 0}[self.teaching.protocol.probe.resample]
        return await self.students.student_lesson(
            task,
            reader,
            step=step,
            # Validation asks for the same outlines at every step, so that its curve has no noise of its own.
            draw=0 if validate else draw,
            validate=validate,
            excluded=frozenset(columns["excluded_classmates"]),
        )

    def teacher_messages(self, question: str, lesson: Lesson) -> Messages:
        """T: what the teacher is asked."""
        protocol = self.teaching.protocol
        outlines = [one.probe.text for one in lesson.students]
        if len(outlines) > 1:
            outlines = [f"{one.name}: {one.probe.text}" for one in lesson.students if one.probe.text]
        names = " and ".join(one.name for one in lesson.students)
        return self.teaching.templates.adaptive(
            question,
            approach="\n".join(outlines) or None,
            student_name=names if protocol.name_student else None,
            teaching_limit=protocol.max_teaching_tokens,
        )

    # When it has written.

    def read(self, answer: Answer) -> ReadRow:
        """Finds the teaching in what the teacher wrote."""
        turn = answer.last_turn
        turn_ids = answer.response_ids[turn]
        tags = self.teaching.templates.tags
        visible = CotMarkers(start=tags.visible_open, end=tags.visible_close)
        span = cot.locate(turn_ids, self._tokenizer, visible)
        raw = self._tokenizer.decode(list(turn_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        span = replace(span, text=str(raw))
        teaching = self.teaching_in(span.text, answer)
        mask = np.zeros(len(answer.response_ids), dtype=np.int64)
        if teaching.text:
            first, end = (span.start, span.end) if span.kind is CotKind.closed else (0, turn.stop - turn.start)
            mask[turn][first:end] = 1
        return ReadRow(
            answer=answer,
            span=replace(span, cot=teaching.text, output=span.text),
            thoughts=(teaching.text,),
            mask=mask,
            segments=np.zeros_like(mask),
            kept_text=teaching.text,
            samples=self._samples(answer),
            actor_mask=self._actor_mask(answer, span),
            transcript=self._transcript(answer),
        )

    def teaching_in(self, raw: str, answer: Answer) -> Teaching:
        """What a teacher's text says to the students of its row."""
        protocol, tags = self.teaching.protocol, self.teaching.templates.tags
        counts = [self.students.students[r].count for r in lesson_of(answer).readers]
        opened = cot.opens_thought(
            answer.prompt_ids, self._tokenizer, CotMarkers(start=tags.thought_open, end=tags.thought_close)
        )
        return extract_teaching(
            raw,
            tags,
            count_tokens=lambda text: max(count(text) for count in counts),
            max_tokens=protocol.max_teaching_tokens,
            overflow=protocol.teaching_overflow,
            thought_opened=opened,
        )

    def _samples(self, answer: Answer) -> int:
        """N."""
        return self.teaching.protocol.guided(validate=answer.validate)

    def asks(self, row: ReadRow) -> Collection[int]:  # type: ignore[override]
        """The students of the row, where it shows them anything."""
        return lesson_of(row.answer).readers if row.kept_text else ()

    async def weigh(self, row: ReadRow) -> tuple[Verdict | None, bool]:
        """A student's answer always counts."""
        return None, True

    async def ask(self, row: ReadRow, m: int, *, excluded: frozenset[int] = frozenset(), needed: bool = True) -> Asked:
        """Shows the teaching to student m, N times."""
        answer = row.answer
        continuations = await self.students.guided(
            answer.task,
            m,
            row.kept_text,
            step=answer.step,
            rollout=answer.rollout,
            validate=answer.validate,
            excluded=excluded,
        )
        return self.asker.said(m, self.shown(row, m), continuations)

    def shown(self, row: ReadRow, m: int) -> tuple[str | None, ...]:
        """W, as text."""
        return (self.students.guided_prompt(row.answer.task, m, row.kept_text),)

    async def score(self, row: ReadRow, asked: Sequence[Asked], *, main: Verdict | None = None) -> ScoredRow:
        """The reward of what the students made of the teaching.

        Args:
            row: what was read.
            asked: of each student that was asked, in the order of their numbers.
            main: not looked at.
        """
        answer, lesson = row.answer, lesson_of(row.answer)
        teaching = self.teaching_in(row.span.text, answer)
        leak = await asyncio.to_thread(self._leak, teaching.text, answer.task)
        replies = dict(zip(self.asks(row), asked, strict=True))
        for m, one in replies.items():
            again = (self._with_score(answer.task, m, row.kept_text, item) for item in one.continuations)
            replies[m] = replace(one, continuations=tuple(await asyncio.gather(*again)))
        results: list[tuple[Any, int, SolveRate | None]] = []
        for one in lesson.students:
            said = replies.get(one.reader)
            guided = None if said is None else solve_rate([student_answer(item) for item in said.continuations])
            length = self.students.students[one.reader].count(teaching.text) if teaching.text else 0
            results.append((one, length, guided))
        taught = Taught.scored(
            group=f"{answer.uid or answer.task.extra_info['index']}",
            teaching=teaching,
            leak=leak,
            results=results,
            config=self.teaching,
        )
        places = [replies.get(m) or self.asker.said(m, (None,), ()) for m in range(self.readers)]
        return ScoredRow(
            read=row,
            main=_verdict(taught),
            asked=tuple(places[: self.classmates]),
            unseen=tuple(places[self.classmates :]) if answer.validate else (),
            scores=_scores(taught, places[: self.classmates], row.samples),
            method=MethodPart(record=taught.record(), numbers=taught.numbers(), fields=taught.gate()),
        )

    async def _with_score(self, task: Task, m: int, teaching: str, item: Continuation) -> Continuation:
        """An answer with the score that it has, or with a new one where a replay wants it."""
        return item if item.score is not None else await self.students.rescored(task, m, teaching, item)

    def _leak(self, text: str, task: Task) -> Leak:
        rules = self.students.rules(task.data_source)

        def is_right(advice: str, truth: str) -> bool:
            return same_as_truth(extract_answer(advice, rules).text, truth) is True

        return find_leak(text, question=str(task.question), truth=str(task.ground_truth), is_right=is_right)


def lesson_of(answer: Answer) -> Lesson:
    """The lesson that came with a row."""
    assert answer.lesson is not None, "a teacher's row comes with its lesson"
    return Lesson.from_json(answer.lesson)


def _verdict(taught: Taught) -> Verdict:
    """What stands for the verifier's in the dump: the solve rate with the teaching."""
    reward = taught.rcl
    if taught.outcome is not Outcome.ok or reward is None or reward.effect is None:
        return Verdict(outcome=taught.outcome, error=_error(taught))
    return Verdict(score=reward.effect.guided)


def _error(taught: Taught) -> str | None:
    return next((one.lesson.probe.error for one in taught.students if one.lesson.probe.error), None)


def _scores(taught: Taught, asked: Sequence[Asked], samples: int) -> RowScores:
    """The rewards: RCL's is the main part; RLT's the classmates' part where there are both."""
    raw_VMS, lengths_VMS, cut_VMS = (np.full((1, len(asked), samples), math.nan) for _ in range(3))
    outcomes = []
    for m, one in enumerate(asked):
        for item in one.continuations:
            outcomes.append(item.outcome)
            raw_VMS[0, m, item.sample] = math.nan if item.score is None else item.score
            if item.outcome in (Outcome.ok, Outcome.no_answer, Outcome.judge_error):
                lengths_VMS[0, m, item.sample] = item.token_length
                cut_VMS[0, m, item.sample] = float(item.finish_reason == "length")
    rcl = None if taught.rcl is None else taught.rcl.reward
    rlt = None if taught.rlt is None else taught.rlt.reward
    main = rlt if taught.rcl is None else rcl
    both = taught.rcl is not None and taught.rlt is not None
    valid = main is not None
    reward = main if main is not None else 0.0
    known = [one.guided.rate for one in taught.students if one.guided is not None]
    return RowScores(
        base_reward=reward,
        reward_before_cost=reward,
        length_cost=None,
        main_valid=valid,
        classmate_score=float(np.mean(known)) if known else math.nan,
        gamma=1.0 if both else 0.0,
        classmate_reward=rlt if both and rlt is not None else 0.0,
        classmate_valid=both and rlt is not None,
        final_reward=reward,
        consistency_reward=0.0,
        consistency_valid=False,
        segment_rewards_K=np.zeros(0),
        main_correct=False,
        raw_scores_VMS=raw_VMS,
        scores_VMS=raw_VMS,
        outcomes=tuple(outcomes),
        lengths_VMS=lengths_VMS,
        cut_VMS=cut_VMS,
        best_classmate_score=max(known, default=math.nan),
        avg_classmate_score=float(np.mean(known)) if known else math.nan,
        with_cot_score=None,
        alone_score=None,
        classmate_reward_weight=1.0,
        consistency_asked=False,
    )
