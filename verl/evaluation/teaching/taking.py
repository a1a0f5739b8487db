"""The order in which everybody is asked.

One decision: each model is needed as few times as possible, so that a machine with room for one of them starts it
seldom: students alone, teachers, students taught, and students with the fixed advice that was found.

    >>> taking = Taking(source, options, data, people, serving, asking, added)
    >>> taking.take(controls)
    >>> taking.exam.records, taking.fixed, taking.offtask
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from verl.evaluation.teaching.asking import Asking
from verl.evaluation.teaching.exam import FIXED_ALL, FIXED_OWN, NULL, REVEALS, Exam, Numbers, People
from verl.evaluation.teaching.fixed import FixedAdvice, find_fixed
from verl.evaluation.teaching.items import Item, Items
from verl.evaluation.teaching.offtask import ask_offtask
from verl.evaluation.teaching.options import Options
from verl.evaluation.teaching.serving import TEACHER, UNTRAINED, Serving
from verl.evaluation.teaching.sources import Source
from verl.evaluation.teaching.trials import Answers, Setting
from verl.evaluation.teaching.tutors import Teacher


@dataclass(frozen=True, kw_only=True)
class Data:
    """All that is asked about."""

    test: Items
    """To evaluate on."""
    train: Items | None
    """To search fixed advice on."""
    offtask: Items | None
    """That the teacher answers itself."""
    also_in_training: int | None
    """Questions of `test` that are in the training data too; None where nobody knows those."""
    notes: tuple[str, ...]
    """What a person should know of them."""


class Taking:
    """The exams of one evaluation."""

    def __init__(
        self,
        source: Source,
        options: Options,
        data: Data,
        people: People,
        serving: Serving,
        asking: Asking,
        added: Sequence[str],
    ) -> None:
        """Asks nothing.

        Args:
            source: of the evaluation.
            options: how it is taken.
            data: what is asked.
            people: who takes part.
            serving: the models.
            asking: asks units.
            added: fixed advice of the user's.
        """
        self._source, self._options, self.data, self._people = source, options, data, people
        self._serving, self._asking, self._added = serving, asking, added
        self.exam = self._exam(data.test.chosen, options.settings, options.numbers, "test")
        self.search: Exam | None = None
        if data.train is not None:
            numbers = Numbers(baseline=source.teaching.protocol.baseline_samples, guided=options.search_samples)
            # With the training's own seed and number of samples its stored baselines are found.
            setting = Setting(decoding="sampled", seed=source.run.reward.seed)
            self.search = self._exam(data.train.chosen, [setting], numbers, "train")
        self.fixed: FixedAdvice | None = None
        self.offtask: dict[str, dict[str, Answers]] = {}

    def _exam(self, items: Sequence[Item], settings: Sequence[Setting], numbers: Numbers, name: str) -> Exam:
        client = self._serving.client
        return Exam(self._source, self._people, items, settings, numbers, self._asking, client=client, name=name)

    @property
    def _exams(self) -> list[Exam]:
        return [self.exam, *([self.search] if self.search is not None else [])]

    def _lots(self) -> list[tuple[list[str], list[int]]]:
        """Students that can be asked at the same time: names of the models, and their numbers."""
        numbers = {one.frozen.name: one.reader for one in self.exam.students}
        return [(names, [numbers[name] for name in names]) for names in self._serving.batches(list(numbers))]

    def take(self, controls: Sequence[str]) -> None:
        """Asks everybody."""
        everyone = range(len(self.exam.students))
        for names, readers in self._lots():
            for exam in self._exams:
                exam.ask_alone(names, readers)
        if self._source.teaching.protocol.teacher_asks:
            self._ask_questions(controls)
        for teacher in self._people.teachers:
            for exam in self._written_by(teacher, controls):
                exam.ask_teacher(teacher, everyone)
            if self.data.offtask is not None:
                items = self.data.offtask.chosen
                self.offtask[teacher.name] = ask_offtask(self._asking, self._source, teacher, items)
        if REVEALS in controls:
            asyncio.run(self._reveal())
        tutors = [TEACHER, *(one for one in (NULL, UNTRAINED, REVEALS) if one in controls)]
        for names, readers in self._lots():
            self.exam.ask_guided(names, readers, tutors)
        if self.search is not None:
            self._find_fixed(self.search)

    def _written_by(self, teacher: Teacher, controls: Sequence[str]) -> list[Exam]:
        """The exams that a teacher writes for."""
        asked = [self.exam] if teacher.name == TEACHER or UNTRAINED in controls else []
        return [*asked, *([self.search] if self.search is not None else [])]

    def _ask_questions(self, controls: Sequence[str]) -> None:
        """What teachers ask, and students reply."""
        everyone = range(len(self.exam.students))
        askers: dict[str, list[str]] = {}
        for teacher in self._people.teachers:
            for exam in self._written_by(teacher, controls):
                exam.ask_question(teacher, everyone)
                askers.setdefault(exam.name, []).append(teacher.name)
        for names, readers in self._lots():
            for exam in self._exams:
                exam.ask_replies(names, readers, askers.get(exam.name, ()))

    async def _reveal(self) -> None:
        words = self._options.reveal
        for one in self.exam.students:
            await self.exam.advise(
                REVEALS, one.reader, lambda item: words.replace("{ground_truth}", str(item.task.ground_truth))
            )

    def _find_fixed(self, search: Exam) -> None:
        """Searches, and lets what was found be told."""

        def ask(exam: Exam, tutors: Sequence[str]) -> None:
            for names, readers in self._lots():
                exam.ask_guided(names, readers, tutors)

        options = self._options
        found = self.fixed = find_fixed(
            search,
            most=options.fixed_candidates,
            added=self._added,
            samples=options.search_samples,
            ask=lambda tutors: ask(search, tutors),
        )

        async def advise() -> None:
            for one in self.exam.students:
                r = one.reader
                await self.exam.advise(FIXED_ALL, r, lambda _: found.for_all.text)
                await self.exam.advise(FIXED_OWN, r, lambda _, r=r: found.own[r].text)  # type: ignore[misc]

        asyncio.run(advise())
        ask(self.exam, [FIXED_ALL, FIXED_OWN])
