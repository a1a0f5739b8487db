"""One teaching as it is kept for the training of students: what was asked, written and made of it, for one student.

One decision: a row has flags and no filter. What failed, leaks or harms is kept with the rest and said to be so; what
is learnt from is chosen later (`verl.teaching.student_sets`). Only held-out questions are never kept.

    >>> rows = rows_of(record, run="3f9c", teacher="3f9c@41", seed=0, templates=templates, baselines=cache.stored)
    >>> CollectedTeaching.from_json(rows[0].to_json()) == rows[0]
    True
    >>> build_student_set(as_collected(rows), "self_guided", ...)
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl.classmate.outcome import Outcome
from verl.classmate.read_back import checked
from verl.classmate.record import RowRecord
from verl.classmate.row import Asked, Continuation, Task
from verl.classmate.seeds import POLICY_SEED, request_seed, row_key
from verl.teaching.baseline_cache import Baseline
from verl.teaching.row import SolveRate
from verl.teaching.student_sets import Collected, StudentResponse, question_hash
from verl.teaching.tags import TeachingState
from verl.teaching.taught import StudentResult, Taught

SCHEMA = 1
"""Version of a line, in its key `schema`."""

SOLUTION_KEYS = ("solution", "reference_solution", "bare_solution", "answer")
"""Where a data set may keep its reference solution, in `extra_info` or in `reward_model`; the first that is there."""

NO_ANSWER = "no_answer"
"""Outcome of a response in which no answer was found."""


INFRASTRUCTURE = frozenset({Outcome.timeout, Outcome.engine_error, Outcome.judge_error, Outcome.excluded})
"""Outcomes of rows that may come out another way when they are made again."""


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """One response of a student."""

    text: str | None
    """Its whole text; None where there is none."""
    outcome: str = "ok"
    """`ok`, `no_answer`, or what became of the request."""
    score: float | None = None
    """c, by the checker; None where it has none."""
    finish_reason: str | None = None
    """`stop`, `length`."""
    tokens: int = 0
    """In the student's tokenizer."""

    @property
    def counts(self) -> bool:
        """Whether it is part of b or w: it was had, and the checker could tell."""
        return self.outcome == NO_ANSWER or (self.outcome == "ok" and self.score is not None)

    @property
    def correct(self) -> bool:
        """Whether the checker found the true answer in it."""
        return self.outcome == "ok" and self.score == 1

    @property
    def complete(self) -> bool:
        """Whether it ended by itself."""
        return self.finish_reason != "length"


@dataclass(frozen=True, kw_only=True)
class CollectedTeaching:
    """A line of a shard."""

    schema: int
    """`SCHEMA`."""
    id: str
    """The same when the row is made again, and no other row's."""
    run: str
    """Of the run or the collection."""
    step: int
    """Global step; 0 where nothing is trained."""
    variation: int
    """Which of the teachings of this question at this step."""
    teacher: str
    """Which weights wrote: RUN@N are those of a run after N updates."""
    student: str
    """The student's name."""
    student_model: str
    """Path or hub name of its model."""
    uid: str
    """Of the group that was compared."""
    data_source: str
    """Of the question."""
    question: str
    """As the student was asked."""
    question_hash: str
    """`question_hash` of it."""
    ground_truth: str
    """The true answer."""
    solution: str | None
    """The reference solution, where the data has one."""
    probe: str
    """The student's outline."""
    teacher_text: str
    """All that the teacher wrote."""
    teaching: str
    """z, what the student was shown; empty where nothing was."""
    state: str
    """What was found where the teaching should stand."""
    outcome: str
    """ok, or why the row has no reward."""
    b: float | None
    """The student's solve rate alone; None where it is not known."""
    w: float | None
    """With the teaching."""
    D: float | None
    """w - b."""
    reward: float | None
    """r, by this student."""
    terms: Mapping[str, float | None]
    """Its parts; in RLT runs those of that reward too, their names beginning with `rlt_`."""
    leak: Mapping[str, bool]
    """In which ways the teaching gives the answer away."""
    length: int
    """L, in the student's tokenizer."""
    tokens: Mapping[str, float | None]
    """`teacher`: of all that it wrote; `probe`; `base` and `guided`: means over responses."""
    finish_reasons: Mapping[str, Sequence[str | None]]
    """`base` and `guided`: of each response."""
    baseline: tuple[Sampled, ...]
    """The student's responses alone; empty where they were not stored."""
    guided: tuple[Sampled, ...]
    """Those with the teaching; empty where nothing was shown."""
    seed: int
    """Of the teacher's request."""
    temperature: float | None
    """With which the teacher wrote."""
    template_hash: str
    """Of the prompts, which stand beside the shards."""

    @property
    def failed(self) -> bool:
        """Whether an engine or the checker failed at it, and nobody was at fault who can learn."""
        return self.outcome in INFRASTRUCTURE

    def to_json(self) -> str:
        """The line, without its end."""
        content = {name: getattr(self, name) for name in self.__dataclass_fields__}
        content |= {"baseline": [vars(one) for one in self.baseline], "guided": [vars(one) for one in self.guided]}
        return json.dumps(_without_nan(content), ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str | bytes) -> "CollectedTeaching":
        """The inverse of `to_json`.

        Raises:
            ValueError: the line is cut or no line of a shard; it says how.
        """
        content = json.loads(line)
        if not isinstance(content, dict) or "schema" not in content:
            raise ValueError("it is no row of a collection")
        if content["schema"] != SCHEMA:
            raise ValueError(f"it was written by another version (schema {content['schema']}, here {SCHEMA})")
        try:
            row: CollectedTeaching = checked(cls, content, "row")
        except KeyError as error:
            raise ValueError(f"it has no {error.args[0]}") from error
        return row


def rows_of(
    record: RowRecord,
    *,
    run: str,
    teacher: str,
    seed: int,
    template_hash: str,
    temperature: float | None = None,
    baselines: Callable[[str], Baseline | None] | None = None,
) -> list[CollectedTeaching]:
    """The rows of a teacher's record, one for each of its students.

    Args:
        record: of a row that was scored.
        run: its id.
        teacher: which weights wrote.
        seed: of the run.
        template_hash: of its prompts.
        temperature: of the teacher.
        baselines: what is stored under a key; None: nothing.
    """
    if record.teaching is None:
        return []
    answer, task = record.answer, record.answer.task
    taught, readers = Taught.from_record(record.teaching), (*record.asked, *record.unseen)
    key = row_key(task.data_source, task.extra_info["index"])
    of_row = {
        "schema": SCHEMA,
        "run": run,
        "step": answer.step,
        "variation": answer.rollout,
        "teacher": teacher,
        "teacher_text": record.response,
        "seed": request_seed(seed, answer.step, key, answer.rollout, POLICY_SEED, 0),
        "temperature": temperature,
        "template_hash": template_hash,
    }
    return [
        _row(of_row, task, key, taught, one, readers[one.lesson.reader], answer.written, baselines)
        for one in taught.students
    ]


def _row(
    of_row: Mapping[str, Any],
    task: Task,
    key: str,
    taught: Taught,
    one: StudentResult,
    asked: Asked,
    teacher_tokens: int,
    baselines: Callable[[str], Baseline | None] | None,
) -> CollectedTeaching:
    lesson = one.lesson
    reward, base = one.reward, lesson.base
    # What shows nothing changes nothing; an explanation that is scored by log-probabilities has no solve rate.
    after = base if taught.teaching.state is not TeachingState.ok else one.guided or SolveRate(outcome=Outcome.excluded)
    guided = tuple(map(_sampled, asked.continuations)) if one.guided is not None else ()
    stored = None if baselines is None or lesson.baseline_key is None else baselines(lesson.baseline_key)
    baseline = () if stored is None else _of_baseline(stored)
    rlt = {} if taught.rlt is None else {"rlt": taught.rlt.reward, **_terms(taught.rlt.terms, "rlt_")}
    # Without RCL the explanation is worth what RLT says.
    value = reward.reward if taught.rcl is not None or taught.rlt is None else taught.rlt.reward
    outcome = reward.outcome if taught.rcl is not None else taught.outcome
    known = [number for number in (base.rate, after.rate) if math.isfinite(number)]
    question = str(task.question)
    return CollectedTeaching(
        **of_row,
        id=row_id(run=of_row["run"], step=of_row["step"], key=key, variation=of_row["variation"], student=lesson.name),
        student=lesson.name,
        student_model=asked.model,
        uid=taught.group,
        data_source=task.data_source,
        question=question,
        question_hash=question_hash(question),
        ground_truth=str(task.ground_truth),
        solution=solution_of(task),
        probe=lesson.probe.text,
        teaching=taught.teaching.text,
        state=taught.teaching.state.value,
        outcome=outcome.value,
        b=_number(base.rate),
        w=_number(after.rate),
        D=after.rate - base.rate if len(known) == 2 else None,
        reward=None if value is None else _number(value),
        terms={**_terms(reward.terms), **rlt},
        leak={"told": taught.leak.told, "extracted": taught.leak.extracted},
        length=one.length,
        tokens={
            "teacher": teacher_tokens,
            "probe": lesson.probe.tokens,
            "base": _number(base.tokens),
            "guided": _number(after.tokens),
        },
        finish_reasons={
            "base": [item.finish_reason for item in baseline],
            "guided": [item.finish_reason for item in guided],
        },
        baseline=baseline,
        guided=guided,
    )


def row_id(*, run: str, step: int, key: str, variation: int, student: str) -> str:
    """What names a row, and can be told before it is made; `key` is the question's `row_key`."""
    return hashlib.sha256(json.dumps([run, step, key, variation, student]).encode()).hexdigest()[:24]


def solution_of(task: Task) -> str | None:
    """The reference solution that the data brings with a question; None where it has none."""
    for place in (task.extra_info, task.reward_model):
        for name in SOLUTION_KEYS:
            if isinstance(place.get(name), str) and place[name].strip():
                return str(place[name])
    return None


def as_collected(rows: Iterable[CollectedTeaching]) -> list[Collected]:
    """The rows as sets are built from: of each question and student those of the last step come first."""
    found = list(rows)
    places: dict[tuple[str, str], list[CollectedTeaching]] = {}
    for row in found:
        places.setdefault((row.question_hash, row.student), []).append(row)
    number = {
        row.id: place
        for group in places.values()
        for place, row in enumerate(sorted(group, key=lambda one: (-one.step, one.variation)))
    }
    return [
        Collected(
            question=row.question,
            student=row.student,
            variation=number[row.id],
            reward=row.reward,
            gain=row.D,
            solve_rate=row.w,
            teaching=row.teaching,
            baseline=_responses(row.baseline),
            guided=_responses(row.guided),
            explanation=row.teaching,
            solution=row.solution or "",
        )
        for row in found
    ]


def _responses(samples: Sequence[Sampled]) -> tuple[StudentResponse, ...]:
    # What is no answer of the student's, or could not be checked, is neither right nor wrong.
    return tuple(
        StudentResponse(text=one.text, correct=one.correct, complete=one.complete)
        for one in samples
        if one.text is not None and one.counts
    )


def _sampled(one: Continuation) -> Sampled:
    return Sampled(
        text=one.text,
        outcome=one.outcome.value,
        score=None if one.score is None else _number(one.score),
        finish_reason=one.finish_reason,
        tokens=one.token_length,
    )


def _of_baseline(stored: Baseline) -> tuple[Sampled, ...]:
    texts = stored.texts or (None,) * len(stored.scores)
    rows = zip(texts, stored.scores, stored.response_lengths, stored.finish_reasons, strict=True)
    return tuple(
        Sampled(
            text=text,
            outcome=NO_ANSWER if reason.startswith(NO_ANSWER) else Outcome.ok.value,
            score=score,
            finish_reason=reason.rpartition(":")[2],
            tokens=tokens,
        )
        for text, score, tokens, reason in rows
    )


def _terms(terms: Any, prefix: str = "") -> dict[str, float | None]:
    return {} if terms is None else {f"{prefix}{name}": _number(value) for name, value in vars(terms).items()}


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _without_nan(value: Any) -> Any:
    """JSON has no NaN."""
    if isinstance(value, Mapping):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
