"""A run's frozen students, asked: for their baseline, for an outline, and for an answer with a teaching.

One decision: students are the run's frozen readers and answer through its `ClassmateClient`, so that a failure is an
outcome of the request. Each is asked in its own chat template and tokens, for every condition with the same sampling.

    >>> students = Students.of_run(run, teaching, tokenizers, client)
    >>> lesson = await students.student_lesson(task, 0, step=1, draw=1, validate=False)
    >>> answers = await students.guided(task, 0, "Remember the carry.", step=1, rollout=3, validate=False)
    >>> solve_rate([student_answer(one) for one in answers]).rate
    1.0
"""

import asyncio
import functools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

from verl.classmate.config import ClassmateRewardModelConfig, RunConfig
from verl.classmate.outcome import Outcome
from verl.classmate.prompts import special_tokens
from verl.classmate.reply import Reply
from verl.classmate.row import Continuation, Task
from verl.classmate.seeds import request_seed, row_key, seed_number
from verl.teaching.answers import AnswerRules, extract_answer, same_as_truth
from verl.teaching.baseline_cache import BaselineCache, BaselineKey
from verl.teaching.config import TeachingConfig
from verl.teaching.lesson import Probe, StudentLesson
from verl.teaching.row import SolveRate, StudentAnswer, solve_rate
from verl.teaching.tags import outline_of
from verl.teaching.templates import Messages
from verl.workers.classmates.shared_draws import drawn_once
from verl.workers.rows.asking import Completes
from verl.workers.student import Student, students_of
from verl.workers.student_answers import baseline_of, stored_answers, student_answer

_BASELINE, _PROBE, _GUIDED, _AGAIN = 1_000_000, 2_000_000, 0, 3_000_000
"""What a student's seeds begin with for each condition, so that no two requests share one."""

_ALL_ROLLOUTS = -1
"""Stands for the rollouts of a group, which have baseline and outline in common."""


@dataclass(frozen=True, kw_only=True)
class _Chat:
    """A prompt in a student's tokens."""

    text: str
    ids: list[int]
    thought_opened: bool
    """Whether its template has begun a chain of thought, which the answer goes on with."""


class Students:
    """All of a run's students."""

    def __init__(
        self,
        students: Sequence[Student],
        *,
        reward: ClassmateRewardModelConfig,
        teaching: TeachingConfig,
        client: Completes,
        cache: Path | None,
        max_model_len: int,
        template_kwargs: Mapping[str, Any],
    ) -> None:
        """Keeps its parts.

        Args:
            students: in the order of their numbers.
            reward: the typed `reward_model` node, for sampling and seed.
            teaching: the typed `rcl` node.
            client: asks the engines.
            cache: file of stored baselines, made when one is first asked for; None: they are asked for each time.
            max_model_len: context of the students' engines, in their own tokens.
            template_kwargs: chat-template arguments.
        """
        self.students = tuple(students)
        self._reward = reward
        self._teaching = teaching
        self._client = client
        self._cache_file = cache
        self._max_model_len = max_model_len
        self._template_kwargs = dict(template_kwargs)

    @classmethod
    def of_run(
        cls, run: RunConfig, teaching: TeachingConfig, tokenizers: Sequence[Any], client: Completes
    ) -> "Students":
        """Those of a run, whose baselines are stored where its config says.

        Args:
            run: its typed config.
            teaching: its typed node `rcl`.
            tokenizers: one per reader.
            client: asks the engines.
        """
        return cls(
            students_of(run.reward, tokenizers, deterministic=run.deterministic, policy_engine=run.policy_engine),
            reward=run.reward,
            teaching=teaching,
            client=client,
            cache=teaching.cache_file(run.folder),
            max_model_len=run.context_length,
            template_kwargs=run.template_kwargs,
        )

    @property
    def stored(self) -> BaselineCache | None:
        """The students' stored answers without advice; None where they are not stored."""
        return self._cache

    @functools.cached_property
    def _cache(self) -> BaselineCache | None:
        return None if self._cache_file is None else BaselineCache(self._cache_file)

    # Before the teacher writes.

    async def student_lesson(
        self,
        task: Task,
        reader: int,
        *,
        step: int,
        draw: int,
        validate: bool,
        excluded: frozenset[int] = frozenset(),
    ) -> StudentLesson:
        """Baseline and outline of one student, asked at the same time.

        Args:
            task: the question, with its ground truth.
            reader: the student's number.
            step: global step.
            draw: which outline this is; the same number gives the same outline.
            validate: validation has its own numbers of samples.
            excluded: students that are out of the run.
        """
        student = self.students[reader]
        if reader in excluded:
            return StudentLesson(reader=reader, name=student.name, base=SolveRate(outcome=Outcome.excluded))
        (base, hit, seconds), probe = await asyncio.gather(
            self._baseline(student, task, step, validate), self.outline(task, reader, draw=draw)
        )
        samples = self._teaching.protocol.baseline(validate=validate)
        key = None if self._cache is None else self._baseline_key(student, task, samples, validate)
        return StudentLesson(
            reader=reader,
            name=student.name,
            base=base,
            probe=probe,
            cache_hit=float(hit),
            seconds=seconds,
            baseline_key=None if key is None else key.digest,
        )

    async def _baseline(self, student: Student, task: Task, step: int, validate: bool) -> tuple[SolveRate, bool, float]:
        """b, whether it was stored, and the seconds of one call; NaN where there was none."""
        answers, hit, seconds = await self._answers_alone(student, task, step, validate)
        return solve_rate(answers), hit, seconds

    async def _answers_alone(
        self, student: Student, task: Task, step: int, validate: bool
    ) -> tuple[tuple[StudentAnswer, ...], bool, float]:
        """The M answers that b is the mean of; the rest as in `_baseline`."""
        samples = self._teaching.protocol.baseline(validate=validate)
        key = self._baseline_key(student, task, samples, validate)
        stored = None if key is None or self._cache is None else self._cache.get(key)
        if stored is not None:
            return stored_answers(stored), True, math.nan
        # Without a revision the weights change, and so does the baseline with the step.
        seeds = self._seeds(student, task, 0 if key is not None else step, _ALL_ROLLOUTS, _BASELINE, samples)
        began = time.perf_counter()
        chat = self._chat(student, self._teaching.templates.baseline(str(task.question)))
        answers = await drawn_once(
            ("baseline", student.reader, tuple(seeds), chat.text),
            lambda: self._answers(student, task, chat, seeds, validate),
        )
        seconds = time.perf_counter() - began
        counted = tuple(student_answer(one) for one in answers)
        rate = solve_rate(counted)
        if key is not None and self._cache is not None and rate.outcome is Outcome.ok and not rate.failed:
            return stored_answers(self._cache.put(key, baseline_of(answers))), False, seconds
        return counted, False, seconds

    def _baseline_key(self, student: Student, task: Task, samples: int, validate: bool) -> BaselineKey | None:
        """None where the student's weights change."""
        if student.revision is None:
            return None
        settings = self._reward.classmate_generation_configs.sampling(validate=validate)
        return BaselineKey(
            student_revision=student.revision,
            template_hash=self._teaching.templates.baseline_hash,
            question=str(task.question),
            sampling={
                "n": samples,
                "temperature": settings.temperature,
                "top_p": settings.top_p,
                "top_k": settings.top_k,
                "max_tokens": settings.max_new_tokens,
                "context": self._max_model_len,
                "seed": self._reward.seed,
                "template_kwargs": self._template_kwargs,
                "allow_last_number": self._teaching.extract.allow_last_number,
                "data_source": task.data_source,
            },
            truth=str(task.ground_truth),
        )

    async def outline(self, task: Task, reader: int, *, draw: int, asked: str | None = None) -> Probe:
        """A student's outline, or its reply to a teacher's question; the same `draw` gives the same one.

        Args:
            task: the question.
            reader: the student's number.
            draw: which one this is.
            asked: by the teacher. Where it asks, nobody is asked before it has.
        """
        student, protocol, templates = self.students[reader], self._teaching.protocol, self._teaching.templates
        limit, question = protocol.max_probe_tokens, str(task.question)
        if not limit or (protocol.teacher_asks and asked is None):
            return Probe()
        values = {"probe_limit": limit}
        messages = templates.probing(question, asked, **values) if asked else templates.diagnostic(question, **values)
        # An outline has no room for a chain of thought.
        chat = self._chat(student, messages, enable_thinking=False)
        room = self._room(chat, limit)
        if room < 1:
            return Probe(outcome=Outcome.too_long)
        (seed,) = self._seeds(student, task, draw, _ALL_ROLLOUTS, _PROBE, 1)
        # With its seed the outline is the same whenever it is asked for, on every engine.
        params = {
            "temperature": protocol.probe.temperature,
            "top_p": 1.0,
            "top_k": -1,
            "max_tokens": room,
            "seed": seed,
        }
        reply = await drawn_once(
            ("probe", student.reader, seed, chat.text),
            lambda: self._client.complete(student.frozen.name, chat.ids, params),
        )
        if reply.outcome is not Outcome.ok:
            return Probe(outcome=reply.outcome, error=reply.error)
        raw = _decoded(student, reply)
        return Probe(
            text=outline_of(raw, self._teaching.templates.tags, thought_opened=chat.thought_opened),
            tokens=len(reply.token_ids),
            cut=reply.finish_reason == "length",
        )

    # What an evaluation asks for by itself.

    async def alone(self, task: Task, reader: int, *, step: int, validate: bool) -> tuple[StudentAnswer, ...]:
        """A student's M answers to the question alone, which are asked for unless they are stored."""
        return (await self._answers_alone(self.students[reader], task, step, validate))[0]

    async def alone_again(self, task: Task, reader: int, *, step: int, validate: bool) -> tuple[Continuation, ...]:
        """N answers to the question alone, drawn anew: what chance makes of a student that is told nothing."""
        student, count = self.students[reader], self._teaching.protocol.guided(validate=validate)
        chat = self._chat(student, self._teaching.templates.baseline(str(task.question)))
        seeds = self._seeds(student, task, step, _ALL_ROLLOUTS, _AGAIN, count)
        return await self._answers(student, task, chat, seeds, validate)

    # When it has written.

    def guided_prompt(self, task: Task, reader: int, teaching: str) -> str:
        """What a student is asked with a teaching, as text."""
        return self._guided_chat(task, reader, teaching).text

    async def guided(
        self,
        task: Task,
        reader: int,
        teaching: str,
        *,
        step: int,
        rollout: int,
        validate: bool,
        samples: int | None = None,
        excluded: frozenset[int] = frozenset(),
    ) -> tuple[Continuation, ...]:
        """A student's answers with a teaching, scored: N of them unless `samples` says otherwise.

        Args:
            task: the question, with its ground truth.
            reader: the student's number.
            teaching: what it is shown; not blank.
            step: global step.
            rollout: which of the group's rollouts has the teaching.
            validate: validation has its own N and sampling.
            samples: another number of answers.
            excluded: students that are out of the run.
        """
        student, count = self.students[reader], samples or self._teaching.protocol.guided(validate=validate)
        if reader in excluded:
            return tuple(Continuation(sample=s, outcome=Outcome.excluded) for s in range(count))
        chat = self._guided_chat(task, reader, teaching)
        seeds = self._seeds(student, task, step, rollout, _GUIDED, count)
        return await self._answers(student, task, chat, seeds, validate)

    def _guided_chat(self, task: Task, reader: int, teaching: str) -> _Chat:
        messages = self._teaching.templates.with_teaching(str(task.question), teaching)
        return self._chat(self.students[reader], messages)

    # For both.

    def rules(self, data_source: str) -> AnswerRules:
        """How answers to questions of a data source are found."""
        return AnswerRules.of(
            data_source,
            self._teaching.templates.tags,
            allow_last_number=self._teaching.extract.allow_last_number,
        )

    async def _answers(
        self, student: Student, task: Task, chat: _Chat, seeds: Sequence[int], validate: bool
    ) -> tuple[Continuation, ...]:
        """One answer per seed, scored."""
        settings = self._reward.classmate_generation_configs.sampling(validate=validate)
        room = self._room(chat, settings.max_new_tokens)
        if room < 1:
            return tuple(Continuation(sample=s, outcome=Outcome.too_long) for s in range(len(seeds)))
        given = {"temperature": settings.temperature, "top_p": settings.top_p, "top_k": settings.top_k}

        async def answer(s: int, seed: int) -> Continuation:
            params = {**given, "max_tokens": room, **({"seed": seed} if student.seeded else {})}
            reply = await self._client.complete(student.frozen.name, chat.ids, params)
            return await self._scored(student, task, chat, s, reply)

        return tuple(await asyncio.gather(*(answer(s, seed) for s, seed in enumerate(seeds))))

    async def _scored(self, student: Student, task: Task, chat: _Chat, s: int, reply: Reply) -> Continuation:
        if reply.outcome is not Outcome.ok:
            return Continuation(sample=s, outcome=reply.outcome, error=reply.error)
        one = Continuation(
            sample=s,
            outcome=Outcome.ok,
            text=_decoded(student, reply),
            token_length=len(reply.token_ids),
            finish_reason=reply.finish_reason,
        )
        return await self._with_score(task, one, chat.thought_opened)

    async def rescored(self, task: Task, reader: int, teaching: str, one: Continuation) -> Continuation:
        """An answer with a teaching that lost its score, scored again; one that was never written stays as it is."""
        if one.text is None or one.outcome is not Outcome.ok:
            return one
        return await self._with_score(task, one, self._guided_chat(task, reader, teaching).thought_opened)

    async def _with_score(self, task: Task, one: Continuation, thought_opened: bool) -> Continuation:
        # What a thinking student says within its thoughts is no answer yet.
        said = outline_of(str(one.text), self._teaching.templates.tags, thought_opened=thought_opened)
        cut = one.finish_reason == "length"
        found = extract_answer(said, self.rules(task.data_source), stopped_at_budget=cut)
        if found.text is None:
            return replace(one, outcome=Outcome.no_answer)
        try:
            same = await asyncio.to_thread(same_as_truth, found.text, str(task.ground_truth))
        except RuntimeError as error:
            return replace(one, outcome=Outcome.judge_error, error=str(error))
        if same is None:
            return replace(one, outcome=Outcome.judge_error, error=f"math-verify could not compare {found.text[:80]!r}")
        return replace(one, score=float(same))

    def _chat(self, student: Student, messages: Messages, **template_kwargs: Any) -> _Chat:
        told = [{**turn, "content": self._without_specials(student, turn["content"])} for turn in messages]
        text = student.tokenizer.apply_chat_template(
            told, tokenize=False, add_generation_prompt=True, **{**self._template_kwargs, **template_kwargs}
        )
        opened = text.rstrip().endswith(self._teaching.templates.tags.thought_open)
        ids = student.tokenizer.encode(text, add_special_tokens=False)
        return _Chat(text=text, ids=list(ids), thought_opened=opened)

    def _without_specials(self, student: Student, text: str) -> str:
        """A turn in which no special token is spelled out: a teaching could end its turn with one, and go on in the
        student's name. A blank stands behind the first character of each; the protocol's own tags stay."""
        own = set(astuple(self._teaching.templates.tags))
        for token in special_tokens(student.tokenizer):
            if token not in own:
                text = text.replace(token, f"{token[0]} {token[1:]}")
        return text

    def _room(self, chat: _Chat, wanted: int) -> int:
        """Tokens that there are for an answer, none where the prompt fills the context."""
        return min(wanted, self._max_model_len - len(chat.ids))

    def _seeds(self, student: Student, task: Task, step: int, rollout: int, first: int, count: int) -> list[int]:
        key = row_key(task.data_source, task.extra_info["index"])
        number = seed_number(student.reader, classmates=student.classmates)
        return [request_seed(self._reward.seed, step, key, rollout, number, first + s) for s in range(count)]


def _decoded(student: Student, reply: Reply) -> str:
    text = student.tokenizer.decode(list(reply.token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return str(text)
