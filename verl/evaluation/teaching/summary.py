"""An evaluation's records as numbers: one set for each tutor, each student or group of students, and each decoding.

One decision: numbers are those of `verl.teaching.evaluation_metrics`; here it is only said which trials they are of.
Items of all students of a group count one by one, and those of one question are resampled together.

    >>> results = list(summarise(exam, tutors))
    >>> results[0].tutor, results[0].student, results[0].report.APG.value
    ('teacher', 'weak', 0.59)
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from verl.classmate.outcome import Outcome
from verl.evaluation.teaching.exam import NULL, Exam
from verl.evaluation.teaching.items import Item
from verl.evaluation.teaching.trials import Setting, Told
from verl.teaching.evaluation_metrics import Estimate, EvaluationReport, Trial, evaluate
from verl.teaching.tags import TeachingState

TRAINED_WITH, UNSEEN = "trained with", "unseen"
"""Roles of students."""
ALL_TRAINED_WITH, ALL_UNSEEN, ALL = "all trained with", "all unseen", "all"
GROUPS = (ALL_TRAINED_WITH, ALL_UNSEEN, ALL)
"""Groups of students."""


@dataclass(frozen=True, kw_only=True)
class AdviceNumbers:
    """What a tutor wrote, over all items and seeds in which it could be asked."""

    written: int
    """Texts."""
    empty: float
    """Share of deliberate abstentions."""
    broken: float
    """Share that breaks the tag contract, so that nothing is shown."""
    states: Mapping[str, int]
    """Number of texts by what was found in them."""
    tokens: float
    """Mean length of what is shown, in the student's tokens; 0 where nothing is."""
    tokens_shown: float | None
    """The same over those that show something."""
    tokens_p50: float
    """Median length."""
    leak_rate: float
    """Share that gives the answer away."""
    distinct: int
    """Different texts that are shown."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """b and w over a part of the trials."""

    trials: int
    """How many."""
    b: float | None
    """Without advice."""
    w: float | None
    """With it."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One tutor with one student, or with a group of them."""

    decoding: str
    """`sampled` or `greedy`."""
    tutor: str
    """`teacher`, or a control."""
    student: str
    """Its name, or that of the group."""
    role: str
    """`trained with` or `unseen`; of a group with both, empty."""
    report: EvaluationReport | None
    """None where no trial could be counted."""
    advice: AdviceNumbers | None
    """None for the null teacher, who writes nothing."""
    cost_tokens: float | None
    """Mean of the teacher's whole output and the outline that it read, in the student's tokens; None as `advice`."""
    noise: float | None
    """Mean |D|: of the null teacher, what chance does."""
    leaking: Part
    """Trials whose advice gives the answer away."""
    not_leaking: Part
    """The others."""
    asked: int
    """Trials that there should be."""
    excluded: Mapping[str, int]
    """Trials that are in no number, by what failed."""
    failed_requests: int
    """Requests to the student that came to nothing, in trials that count or not."""
    gain_over: Mapping[str, Estimate]
    """Of the teacher: its mean w less that of each control, on the trials that both have; paired bootstrap."""

    def as_json(self) -> dict[str, Any]:
        """All numbers by their names."""
        names = ("decoding", "tutor", "student", "role", "cost_tokens", "noise", "asked")
        content = {name: getattr(self, name) for name in names}
        return {
            **content,
            "numbers": None if self.report is None else self.report.as_json(),
            "advice": None if self.advice is None else asdict(self.advice),
            "leaking": asdict(self.leaking),
            "not_leaking": asdict(self.not_leaking),
            "excluded": dict(self.excluded),
            "failed_requests": self.failed_requests,
            "gain_over": {name: asdict(one) for name, one in self.gain_over.items()},
        }


@dataclass(frozen=True, kw_only=True)
class _Cell:
    """A tutor with one student about one item at one setting."""

    trial: Trial | None
    excluded: Outcome | None
    told: Told | None
    failed: int


def summarise(exam: Exam, tutors: Sequence[str]) -> Iterator[Result]:
    """All results: by decoding, then by student and group, then by tutor, the teacher first.

    Args:
        exam: that was taken.
        tutors: the teacher, and the controls behind it.
    """
    for decoding in dict.fromkeys(setting.decoding for setting in exam.settings):
        settings = [one for one in exam.settings if one.decoding == decoding]
        for name, role, readers in groups_of(exam):
            cells = {tutor: list(_cells(exam, tutor, readers, settings)) for tutor in tutors}
            for tutor in tutors:
                others = {other: cells[other] for other in tutors if other != tutor} if tutor == tutors[0] else {}
                yield _result(decoding, tutor, name, role, cells[tutor], others)


def groups_of(exam: Exam) -> list[tuple[str, str, tuple[int, ...]]]:
    """Name, role and numbers of each student, and of each group of several."""
    first = exam.people.trained_with
    readers = tuple(range(len(exam.students)))
    found = [(one.name, TRAINED_WITH if one.reader < first else UNSEEN, (one.reader,)) for one in exam.students]
    groups = (
        (ALL_TRAINED_WITH, TRAINED_WITH, readers[:first]),
        (ALL_UNSEEN, UNSEEN, readers[first:]),
        (ALL, "", readers),
    )
    sizes = Counter(len(numbers) for _, _, numbers in groups[:2])
    wanted = [group for group in groups if len(group[2]) > 1 and not (group[0] == ALL and sizes[0])]
    return found + wanted


def _cells(exam: Exam, tutor: str, readers: Iterable[int], settings: Sequence[Setting]) -> Iterable[_Cell]:
    for reader in readers:
        for item in exam.items:
            for setting in settings:
                yield _cell(exam, tutor, reader, item, setting)


def _cell(exam: Exam, tutor: str, reader: int, item: Item, setting: Setting) -> _Cell:
    records, student = exam.records, exam.students[reader]
    place = (tutor, reader, item.name, setting.key)
    alone = records.alone[place[1:]]
    told, guided = records.told.get(place), records.guided.get(place)
    failed = alone.failed + (0 if guided is None else guided.failed)
    excluded: Outcome | None = None
    if told is not None and told.outcome is not Outcome.ok:
        excluded = told.outcome
    elif not alone.responses:
        excluded = alone.outcome
    elif guided is not None and not guided.responses:
        excluded = guided.outcome
    if excluded is not None:
        return _Cell(trial=None, excluded=excluded, told=told, failed=failed)
    reads_outline = told is not None and bool(told.raw)
    trial = Trial(
        item=f"{student.name}|{item.name}",
        seed=setting.seed,
        baseline=alone.responses,
        guided=None if guided is None else guided.responses,
        teaching_tokens=0 if told is None or guided is None else told.teaching.tokens,
        teacher_tokens=0 if told is None else told.raw_tokens,
        probe_tokens=records.probe(tutor, reader, item, setting).tokens if reads_outline else 0,
        leaked=None if tutor == NULL or told is None else told.leak,
        question=item.name,
    )
    return _Cell(trial=trial, excluded=None, told=told, failed=failed)


def _result(
    decoding: str, tutor: str, student: str, role: str, cells: Sequence[_Cell], others: Mapping[str, Sequence[_Cell]]
) -> Result:
    trials = [one.trial for one in cells if one.trial is not None]
    excluded = Counter(one.excluded.value for one in cells if one.excluded is not None)
    changes = [abs(_mean(one.after) - _mean(one.baseline)) for one in trials]
    return Result(
        decoding=decoding,
        tutor=tutor,
        student=student,
        role=role,
        report=evaluate(trials) if trials else None,
        advice=_advice([one.told for one in cells if one.told is not None and one.told.outcome is Outcome.ok]),
        cost_tokens=None
        if tutor == NULL or not trials
        else sum(one.teacher_tokens + one.probe_tokens for one in trials) / len(trials),
        noise=math.fsum(changes) / len(changes) if changes else None,
        leaking=_part([one for one in trials if one.leaked]),
        not_leaking=_part([one for one in trials if not one.leaked]),
        asked=len(cells),
        excluded=dict(sorted(excluded.items())),
        failed_requests=sum(one.failed for one in cells),
        gain_over={name: _gain_over(cells, other) for name, other in others.items()},
    )


def _gain_over(cells: Sequence[_Cell], others: Sequence[_Cell]) -> Estimate:
    """The gain of one tutor over another: the same bootstrap, with the other's answers for a baseline."""
    pairs = [
        Trial(
            item=one.trial.item,
            seed=one.trial.seed,
            baseline=other.trial.after,
            guided=one.trial.after,
            teaching_tokens=0,
            teacher_tokens=0,
            probe_tokens=0,
            question=one.trial.question,
        )
        for one, other in zip(cells, others, strict=True)
        if one.trial is not None and other.trial is not None
    ]
    return evaluate(pairs).APG if pairs else Estimate(value=None)


def _advice(told: Sequence[Told]) -> AdviceNumbers | None:
    if not told:
        return None
    states = Counter(one.teaching.state for one in told)
    lengths = [one.teaching.tokens for one in told]
    shown = [one.teaching.tokens for one in told if one.teaching.text]
    return AdviceNumbers(
        written=len(told),
        empty=states[TeachingState.empty] / len(told),
        broken=sum(number for state, number in states.items() if not state.keeps_contract) / len(told),
        states={state.value: number for state, number in sorted(states.items())},
        tokens=sum(lengths) / len(told),
        tokens_shown=sum(shown) / len(shown) if shown else None,
        tokens_p50=float(median(lengths)),
        leak_rate=sum(one.leak for one in told) / len(told),
        distinct=len({one.teaching.text for one in told if one.teaching.text}),
    )


def _part(trials: Sequence[Trial]) -> Part:
    if not trials:
        return Part(trials=0, b=None, w=None)
    b, w = (
        [_mean(side) for side in sides] for sides in zip(*((one.baseline, one.after) for one in trials), strict=True)
    )
    return Part(trials=len(trials), b=math.fsum(b) / len(b), w=math.fsum(w) / len(w))


def _mean(responses: Sequence[Any]) -> float:
    return math.fsum(one.score for one in responses) / len(responses)
