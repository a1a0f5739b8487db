"""What is known of a question and its students before the teacher writes: baselines and outlines, one set for a group.

One decision: a lesson is a value that travels with the row as text, so that all rollouts of a group have the same one
wherever they are made, read or scored again.

    >>> lesson = Lesson(students=(StudentLesson(reader=0, name="qwen", base=base, probe=Probe(text="First ...")),))
    >>> Lesson.from_json(lesson.to_json()) == lesson
    True
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from verl.classmate.outcome import Outcome
from verl.teaching.row import SolveRate
from verl.teaching.tags import Teaching, TeachingState

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A student's outline of how it would approach the question."""

    outcome: Outcome = Outcome.ok
    """ok, or why there is none."""
    text: str = ""
    """What the teacher reads; empty where the student was not asked."""
    tokens: int = 0
    """In the student's tokenizer."""
    cut: bool = False
    """Whether it stopped at its budget, which is usual."""
    error: str | None = None
    """What the engine said, where it failed."""


@dataclass(frozen=True, kw_only=True)
class StudentLesson:
    """One student about one question."""

    reader: int
    """Its number among the run's readers (`frozen_readers`)."""
    name: str
    """How it is called in metrics, and to the teacher."""
    base: SolveRate
    """Without advice."""
    probe: Probe = dataclasses.field(default_factory=Probe)
    """Its outline."""
    cache_hit: float = math.nan
    """1 if the baseline came out of the cache, else 0."""
    seconds: float = math.nan
    """Of one call of the student, on average."""
    baseline_key: str | None = None
    """Under which its answers without advice are stored (`BaselineKey.digest`); None where they are not."""

    @property
    def outcome(self) -> Outcome:
        """ok, or the first thing that went wrong."""
        return self.base.outcome if self.base.outcome is not Outcome.ok else self.probe.outcome


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """The students of a row: one, or with `joint` all of them."""

    students: tuple[StudentLesson, ...]
    """In the order of their numbers."""
    log_probs: tuple[float, ...] = ()
    """(R,) of what the teacher then wrote, as its engine told them, where the reward looks at them."""
    question: Teaching | None = None
    """What the teacher asked its students for the probe; None where it asks nothing of its own."""

    @property
    def readers(self) -> tuple[int, ...]:
        """Their numbers."""
        return tuple(one.reader for one in self.students)

    def to_json(self) -> str:
        """As text."""
        return json.dumps(plain(self))

    @classmethod
    def from_json(cls, text: str) -> "Lesson":
        """The inverse of `to_json`."""
        content = json.loads(text)
        return cls(
            students=tuple(student_lesson(one) for one in content["students"]),
            log_probs=tuple(content["log_probs"]),
            question=teaching_of(content.get("question")),
        )


def teaching_of(content: Mapping[str, Any] | None) -> Teaching | None:
    """What was found in a teacher's text, from what `plain` made of it."""
    return None if content is None else Teaching(**{**content, "state": TeachingState(content["state"])})


def student_lesson(content: Mapping[str, Any]) -> StudentLesson:
    """A lesson's part of one student, from what `plain` made of it."""
    given = dict(content)
    return rebuilt(
        StudentLesson,
        given | {"base": rebuilt(SolveRate, given["base"]), "probe": rebuilt(Probe, given["probe"])},
    )


def plain(value: Any) -> Any:
    """A dataclass and those in it as JSON has them; NaN, which JSON has not, becomes None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Outcome | TeachingState) else value


def rebuilt(cls: type[_T], content: Mapping[str, Any]) -> _T:
    """A dataclass of numbers and texts from what `plain` made of it."""
    assert dataclasses.is_dataclass(cls)
    values = {one.name: content[one.name] for one in dataclasses.fields(cls) if one.name in content}
    for one in dataclasses.fields(cls):
        value = values.get(one.name)
        if one.name == "outcome" and isinstance(value, str):
            values[one.name] = Outcome(value)
        elif value is None and isinstance(one.default, float):
            values[one.name] = math.nan
    return cls(**values)  # type: ignore[return-value]
