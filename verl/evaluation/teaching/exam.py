"""An evaluation as it is taken: who is asked what.

One decision: students are asked the same for all tutors, with the same seeds, so that tutors differ in nothing but
what they say.

    >>> exam = Exam(source, people, items, settings, Numbers(), asking, client=client)
    >>> exam.ask_alone(models, readers)
    >>> exam.ask_teacher(teacher, readers)
    >>> exam.ask_guided(models, readers, ["teacher", "null"])
    >>> exam.records.guided["teacher", 0, "gsm8k/3", "sampled|0"].responses
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from verl.classmate.generation_config import ValGenerationConfig
from verl.evaluation.teaching.asking import ANSWERS, ASKED, PROBES, TOLD, Asking, Unit
from verl.evaluation.teaching.items import Item
from verl.evaluation.teaching.serving import Patiently
from verl.evaluation.teaching.sources import Source
from verl.evaluation.teaching.trials import Answers, Asked, Setting, Told
from verl.evaluation.teaching.tutors import Teacher, advised
from verl.teaching.lesson import Probe
from verl.workers.student import Student
from verl.workers.students import Students

NULL, REVEALS, FIXED_ALL, FIXED_OWN = "null", "reveal", "fixed_all", "fixed_own"
"""Controls that are no models."""

Key = tuple[str, int, str, str]
"""Tutor, number of the student, item, setting."""


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """How often is asked."""

    baseline: int = 16
    """Sampled answers without advice of each item and seed, M_e."""
    guided: int = 4
    """Sampled answers with advice, N_e."""


@dataclass(kw_only=True)
class Records:
    """All that was said and answered."""

    probes: dict[tuple[int, str, int], Probe] = field(default_factory=dict)
    """By student, item and seed: greedy and sampled teachers read the same outline."""
    questions: dict[Key, Asked] = field(default_factory=dict)
    """What teachers asked, where they write the probe's question (`probe.author: teacher`)."""
    replies: dict[Key, Probe] = field(default_factory=dict)
    """What students replied to it."""
    alone: dict[tuple[int, str, str], Answers] = field(default_factory=dict)
    """Without advice, by student, item and setting."""
    told: dict[Key, Told] = field(default_factory=dict)
    """What tutors told."""
    guided: dict[Key, Answers] = field(default_factory=dict)
    """What students made of it; nothing where nothing was shown."""

    def probe(self, tutor: str, reader: int, item: Item, setting: Setting) -> Probe:
        """What a teacher reads of a student."""
        own = self.replies.get((tutor, reader, item.name, setting.key))
        return self.probes[reader, item.name, setting.seed] if own is None else own


def students_with(
    source: Source, tokenizers: Sequence[Any], client: Any, setting: Setting, numbers: Numbers
) -> Students:
    """The students as one setting asks them: greedily once, else so many times at the run's temperature.

    Args:
        source: with config, templates and cache.
        tokenizers: one per student.
        client: asks them.
        setting: greedy or sampled, and the seed.
        numbers: how often.
    """
    sampled = setting.decoding == "sampled"
    generation = dataclasses.replace(
        source.run.reward.classmate_generation_configs,
        do_sample=sampled,
        val_kwargs=ValGenerationConfig(do_sample=sampled),
    )
    reward = dataclasses.replace(source.run.reward, seed=setting.seed, classmate_generation_configs=generation)
    protocol = dataclasses.replace(
        source.teaching.protocol,
        val_baseline_samples=numbers.baseline if sampled else 1,
        val_guided_samples=numbers.guided if sampled else 1,
    )
    run = dataclasses.replace(source.run, reward=reward)
    return Students.of_run(run, dataclasses.replace(source.teaching, protocol=protocol), tokenizers, client)


@dataclass(frozen=True, kw_only=True)
class People:
    """Who takes part."""

    tokenizers: tuple[Any, ...]
    """Of the students."""
    teachers: tuple[Teacher, ...]
    """The trained one first; behind it the untrained one, if it is asked."""
    trained_with: int
    """Students that the teacher was trained with; those behind are unseen."""


class Exam:
    """Asks students and teachers about a list of items, for all settings."""

    def __init__(
        self,
        source: Source,
        people: People,
        items: Sequence[Item],
        settings: Sequence[Setting],
        numbers: Numbers,
        asking: Asking,
        *,
        client: Patiently,
        name: str = "test",
    ) -> None:
        """Asks nothing.

        Args:
            source: of the evaluation.
            people: who takes part.
            items: the questions.
            settings: greedy and sampled, with their seeds.
            numbers: how often.
            asking: asks units.
            client: of the models.
            name: of the list of items, in keys and bars.
        """
        self.records = Records()
        self._source = source
        self.people = people
        self.items = tuple(items)
        self.settings = tuple(settings)
        self._asking = asking
        self.name = name
        self._by_setting = {one: students_with(source, people.tokenizers, client, one, numbers) for one in settings}

    @property
    def students(self) -> tuple[Student, ...]:
        """All of them."""
        return self._by_setting[self.settings[0]].students

    def _units(self, readers: Sequence[int]) -> Iterable[tuple[int, Item, Setting]]:
        return ((reader, item, setting) for setting in self.settings for item in self.items for reader in readers)

    def _key(self, what: str, reader: int, item: Item, setting: str) -> str:
        return f"{self.name}|{what}|{reader}|{item.name}|{setting}"

    def ask_alone(self, models: Sequence[str], readers: Sequence[int]) -> None:
        """Baselines and outlines of these students."""
        units: list[Unit[Any]] = []
        outlines: set[str] = set()
        for r, item, setting in self._units(readers):
            alone = partial(self._alone, self._by_setting[setting], item, r)
            unit = Unit(self._key("alone", r, item, setting.key), alone, ANSWERS)
            units.append(unit.goes_to(self.records.alone, (r, item.name, setting.key)))
            # Greedy and sampled teachers read the same outline.
            key = self._key("outline", r, item, str(setting.seed))
            if key not in outlines and not self._source.teaching.protocol.teacher_asks:
                outlines.add(key)
                outline = Unit(key, partial(self._outline, self._by_setting[setting], item, r), PROBES)
                units.append(outline.goes_to(self.records.probes, (r, item.name, setting.seed)))
        self._asking.ask(f"{self.name}: students alone", models, units)

    def ask_question(self, teacher: Teacher, readers: Sequence[int]) -> None:
        """What a teacher asks the students, where it writes the probe's question."""
        units = []
        for r, item, setting in self._units(readers):
            ask = partial(teacher.ask, item=item, student=self.students[r], setting=setting)
            unit = Unit(self._key(f"{teacher.name} asks", r, item, setting.key), ask, ASKED)
            units.append(unit.goes_to(self.records.questions, (teacher.name, r, item.name, setting.key)))
        self._asking.ask(f"{self.name}: {teacher.name} asks", [teacher.name], units)

    def ask_replies(self, models: Sequence[str], readers: Sequence[int], teachers: Sequence[str]) -> None:
        """What students reply to teachers; the same question gets the same reply, and none where there is none."""
        units: dict[str, Unit[Probe]] = {}
        for teacher in teachers:
            for r, item, setting in self._units(readers):
                place: Key = (teacher, r, item.name, setting.key)
                text = self.records.questions[place].question.text
                if not text:
                    self.records.replies[place] = Probe()
                    continue
                key = f"{self._key('reply', r, item, str(setting.seed))}|{text}"
                reply = partial(self._outline, self._by_setting[setting], item, r, asked=text)
                unit = units.setdefault(key, Unit(key, reply, PROBES))
                unit.goes_to(self.records.replies, place)
        self._asking.ask(f"{self.name}: students reply", models, list(units.values()))

    def ask_teacher(self, teacher: Teacher, readers: Sequence[int]) -> None:
        """What a teacher tells the students."""
        units = []
        for r, item, setting in self._units(readers):
            write = partial(
                teacher.write,
                item=item,
                student=self.students[r],
                probe=self.records.probe(teacher.name, r, item, setting),
                setting=setting,
                asked=self.records.questions.get((teacher.name, r, item.name, setting.key)),
            )
            unit = Unit(self._key(teacher.name, r, item, setting.key), write, TOLD)
            units.append(unit.goes_to(self.records.told, (teacher.name, r, item.name, setting.key)))
        self._asking.ask(f"{self.name}: {teacher.name} writes", [teacher.name], units)

    async def advise(self, tutor: str, reader: int, text: Callable[[Item], str]) -> None:
        """Lets a tutor that is no model tell a student something about each item."""
        student, teaching = self.students[reader], self._source.teaching
        for item in self.items:
            told = await advised(text(item), teaching, item.task, student)
            for setting in self.settings:
                self.records.told[tutor, reader, item.name, setting.key] = told

    def ask_guided(self, models: Sequence[str], readers: Sequence[int], tutors: Sequence[str]) -> None:
        """What students make of what tutors told them; `NULL` asks them without advice once more.

        Who tells a student the same about the same question shares its answers: the difference between them is none.
        """
        units: dict[str, Unit[Answers]] = {}
        for tutor in tutors:
            for r, item, setting in self._units(readers):
                place: Key = (tutor, r, item.name, setting.key)
                text = "" if tutor == NULL else self.records.told[place].teaching.text
                if tutor != NULL and not text:
                    continue
                key = f"{self._key('guided', r, item, setting.key)}|{text}"
                if key not in units:
                    guided = partial(self._guided, self._by_setting[setting], item, r, text)
                    units[key] = Unit(key, guided, ANSWERS)
                units[key].goes_to(self.records.guided, place)
        self._asking.ask(f"{self.name}: students taught", models, list(units.values()))

    @staticmethod
    async def _alone(students: Students, item: Item, r: int, _: Patiently) -> Answers:
        return Answers.of_students(await students.alone(item.task, r, step=0, validate=True))

    @staticmethod
    async def _outline(students: Students, item: Item, r: int, _: Patiently, *, asked: str | None = None) -> Probe:
        return await students.outline(item.task, r, draw=0, asked=asked)

    @staticmethod
    async def _guided(students: Students, item: Item, r: int, text: str, _: Patiently) -> Answers:
        if not text:
            return Answers.of(await students.alone_again(item.task, r, step=0, validate=True))
        # The same seeds for all tutors: what differs between them is what they said.
        return Answers.of(await students.guided(item.task, r, text, step=0, rollout=0, validate=True))
