"""What is made of an evaluation when everybody was asked: numbers, a table, a document.

>>> done = conclude(taking, source, options, controls, notes, told)
>>> print(done.view.text())
>>> done.content["results"][0]["numbers"]["APG"]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl.evaluation.teaching import document
from verl.evaluation.teaching.exam import FIXED_ALL, FIXED_OWN, Exam
from verl.evaluation.teaching.offtask import Retention, retention_of
from verl.evaluation.teaching.options import FIXED, Options
from verl.evaluation.teaching.serving import TEACHER, UNTRAINED
from verl.evaluation.teaching.sources import Source
from verl.evaluation.teaching.summary import Result, summarise
from verl.evaluation.teaching.taking import Data, Taking
from verl.evaluation.teaching.view import View


@dataclass(frozen=True, kw_only=True)
class Done:
    """An evaluation that was taken."""

    view: View
    """For a person."""
    content: dict[str, Any]
    """The document."""
    exam: Exam
    """With all records."""
    results: tuple[Result, ...]
    """All numbers."""


def conclude(
    taking: Taking,
    source: Source,
    options: Options,
    controls: Sequence[str],
    notes: Sequence[str],
    told: dict[str, Any],
) -> Done:
    """Numbers, table and document.

    Args:
        taking: after everybody was asked.
        source: of the evaluation.
        options: how it was taken.
        controls: what the teacher is compared with.
        notes: for a person.
        told: all that the answers follow from.
    """
    tutors = [TEACHER, *(one for one in controls if one != FIXED)]
    tutors += [FIXED_ALL, FIXED_OWN] if taking.fixed is not None else []
    results = tuple(summarise(taking.exam, tutors))
    retention = None
    if taking.data.offtask is not None:
        retention = retention_of(taking.offtask.get(UNTRAINED), taking.offtask[TEACHER])
    notes = [*notes, *_failures(results)]
    view = View(
        title=_title(source),
        lines=_lines(source, taking.data),
        results=results,
        settings={one: _asked(one, told, options) for one in options.decodings},
        fixed=taking.fixed,
        students=[one.name for one in taking.exam.students],
        retention=retention,
        notes=notes,
    )
    content = _content(taking, source, results, retention, notes, told)
    return Done(view=view, content=content, exam=taking.exam, results=results)


def _content(
    taking: Taking,
    source: Source,
    results: Sequence[Result],
    retention: Retention | None,
    notes: Sequence[str],
    told: dict[str, Any],
) -> dict[str, Any]:
    data, exam, found = taking.data, taking.exam, taking.fixed
    models = {one["name"]: {key: one[key] for key in ("model", "revision", "engine")} for one in told["models"]}
    fixed = offtask = None
    if found is not None and data.train is not None:
        fixed = document.fixed_of(found, exam, data.train)
    if retention is not None and data.offtask is not None:
        offtask = document.offtask_of(retention, data.offtask, taking.offtask)
    return {
        **document.about(document.command_line()),
        "run": None if source.folder is None else {"folder": str(source.folder), "step": source.step},
        "teacher": models[TEACHER],
        "untrained": models.get(UNTRAINED),
        "students": document.students_of(exam),
        "data": document.data_of(data.test, also_in_training=data.also_in_training),
        "settings": {**told["settings"], "tutors": list(dict.fromkeys(one.tutor for one in results))},
        "templates": told["templates"],
        "results": document.results_of(results),
        "fixed_advice": fixed,
        "offtask": offtask,
        **document.records_of(exam),
        "notes": list(notes),
    }


def _title(source: Source) -> str:
    if source.folder is None:
        return f"teacher {source.teacher}"
    which = "" if source.step is None else f", step {source.step}"
    return f"teacher of {source.folder}{which}"


def _lines(source: Source, data: Data) -> list[str]:
    test = data.test
    lines = [f"{len(test.chosen)} of {test.rows} rows of {', '.join(Path(name).name for name in test.files)}"]
    if source.untrained is not None:
        lines.append(f"untrained: {source.untrained}")
    lines.append(f"advice of at most {source.teaching.protocol.max_teaching_tokens} of the student's tokens, for all")
    return lines


def _asked(decoding: str, told: dict[str, Any], options: Options) -> str:
    """How a decoding asks, in a line."""
    if decoding == "greedy":
        return "one answer of each side"
    seeds = len(options.seeds)
    return (
        f"{options.numbers.baseline} answers without advice and {options.numbers.guided} with it, "
        f"{seeds} seed{'s' if seeds > 1 else ''}, students at {told['settings']['student']['temperature']:g}, "
        f"teachers at {told['settings']['teacher']['sampled']['temperature']:g}"
    )


def _failures(results: Sequence[Result]) -> list[str]:
    """What is in no number."""
    lines = []
    for one in results:
        if one.excluded and not one.student.startswith("all"):
            reasons = ", ".join(f"{reason} {number}" for reason, number in one.excluded.items())
            lines.append(
                f"{one.decoding}, {one.student}, {one.tutor}: {sum(one.excluded.values())} of {one.asked} trials are "
                f"in no number ({reasons})"
            )
    return lines
