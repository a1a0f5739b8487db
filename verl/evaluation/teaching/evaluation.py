"""The whole of an evaluation: files are read, models are loaded, everybody is asked, and what was found is written.

One decision: all that the answers follow from is one value, with which the journal begins. So an evaluation that was
ended goes on only as the same one.

    >>> done = evaluate_teacher(source, options)
    >>> print(done.view.text())
"""

import dataclasses
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, TextIO

from tqdm import tqdm

from verl.classmate.errors import ConfigError
from verl.classmate.frozen import FrozenModel
from verl.evaluation.teaching import document
from verl.evaluation.teaching.asking import Asking
from verl.evaluation.teaching.conclusion import Done, conclude
from verl.evaluation.teaching.exam import People
from verl.evaluation.teaching.fixed import read_candidates
from verl.evaluation.teaching.items import load_items
from verl.evaluation.teaching.journal import Journal
from verl.evaluation.teaching.options import FIXED, Options
from verl.evaluation.teaching.serving import TEACHER, UNTRAINED, Serving, frozen_students, frozen_teacher
from verl.evaluation.teaching.sources import Source
from verl.evaluation.teaching.taking import Data, Taking
from verl.evaluation.teaching.tutors import Sampling, Teacher, tokenizer_of
from verl.teaching.lesson import plain
from verl.workers.classmates.placement import resolved_engine
from verl.workers.model_revision import revision_of


def evaluate_teacher(source: Source, options: Options, *, terminal: TextIO | None = None) -> Done:
    """Takes the evaluation, and writes its document.

    Args:
        source: who is evaluated on what.
        options: how.
        terminal: where progress is shown, and a line when an engine fails; None: standard error.

    Raises:
        ConfigError: a file, a model or a combination of options that is not possible.
        ClassmateEngineError: an engine does not start.
    """
    added = read_candidates(options.candidates)
    controls, notes = _controls(source, options)
    data = _read(source, options, controls)
    notes = [*notes, *_asked_otherwise(source), *data.notes]
    if not source.teaching.baseline_cache:
        folder = source.folder or options.output.parent
        cached = dataclasses.replace(source.teaching, baseline_cache=str(folder / "baselines.sqlite"))
        source = dataclasses.replace(source, teaching=cached)
    students = frozen_students(source)
    teachers = _frozen_teachers(source, options, controls)
    people = _people(source, students, teachers)
    told = _told(source, options, data, students, teachers, added)
    tell = partial(tqdm.write, file=terminal or sys.stderr)
    unfinished = options.output.with_name(f"{options.output.stem}.partial.jsonl")
    with (
        Journal.open(unfinished, told) as journal,
        Serving.open(source, [*students, *teachers], on_event=tell) as serving,
    ):
        if journal.reused:
            notes.append(f"{journal.reused} units were answered before and not asked again")
        taking = Taking(source, options, data, people, serving, Asking(serving, journal, bars=terminal), added)
        taking.take(controls)
        done = conclude(taking, source, options, controls, notes, told, bars=terminal)
        document.write(options.output, done.content)
        journal.remove()
    return done


def _controls(source: Source, options: Options) -> tuple[tuple[str, ...], list[str]]:
    """Those that are possible, and why others are not.

    Raises:
        ConfigError: one that a user asked for is not.
    """
    missing = {}
    if source.untrained is None:
        missing[UNTRAINED] = "nobody says what the teacher was trained from; write --untrained PATH"
    if not source.train_data:
        missing[FIXED] = "fixed advice is searched on questions of the training; write --train_data FILE"
    notes = []
    for control, why in missing.items():
        if control in options.controls and options.controls_chosen:
            raise ConfigError(f"--controls {control}: {why}")
        if control in options.controls:
            notes.append(f"without the control {control}: {why}")
    return tuple(one for one in options.controls if one not in missing), notes


def _asked_otherwise(source: Source) -> list[str]:
    """What differs from how the teacher was trained."""
    if source.teaching.protocol.student_assignment != "joint" or len(source.run.reward.classmates) < 2:
        return []
    return [
        "the teacher was trained to read all students' outlines and to advise all of them at once "
        "(student_assignment=joint); here it reads one student's and advises that one"
    ]


def _read(source: Source, options: Options, controls: Sequence[str]) -> Data:
    prompt_key = source.config.data.prompt_key
    test = load_items(source.data, option="--data", most=options.items, prompt_key=prompt_key)
    notes, train, also = [], None, None
    if test.without_truth:
        notes.append(f"{test.without_truth} of {test.rows} rows have no ground truth and are left out")
    if source.train_data:
        asked = frozenset(one.question for one in test.chosen)
        every = load_items(source.train_data, option="--train_data", prompt_key=prompt_key)
        also = len(asked & {one.question for one in every.chosen})
        if also:
            notes.append(f"{also} of {len(asked)} questions are in the training data too: its gain there is no proof")
        if FIXED in controls and also == len({one.question for one in every.chosen}) and not options.controls_chosen:
            notes.append(f"without the control {FIXED}: all training questions are evaluated on")
        elif FIXED in controls:
            train = load_items(
                source.train_data,
                option="--train_data",
                most=options.search_items,
                prompt_key=prompt_key,
                without=asked,
            )
    offtask = None
    if options.offtask is not None:
        offtask = load_items([options.offtask], option="--offtask", most=options.offtask_items, prompt_key=prompt_key)
    return Data(test=test, train=train, offtask=offtask, also_in_training=also, notes=tuple(notes))


def _frozen_teachers(source: Source, options: Options, controls: Sequence[str]) -> tuple[FrozenModel, ...]:
    found = [frozen_teacher(source, TEACHER, source.teacher, engine=options.engine)]
    wanted = UNTRAINED in controls or FIXED in controls or options.offtask is not None
    if wanted and source.untrained is not None:
        found.append(frozen_teacher(source, UNTRAINED, source.untrained, engine=options.engine))
    return tuple(found)


def _people(source: Source, students: Sequence[FrozenModel], teachers: Sequence[FrozenModel]) -> People:
    return People(
        tokenizers=tuple(tokenizer_of(source, one.model, who="student") for one in students),
        teachers=tuple(
            Teacher(
                one.name,
                source,
                tokenizer_of(source, one.model, who=one.label),
                engine=resolved_engine(one),
                model_type=_model_type(source, one),
            )
            for one in teachers
        ),
        trained_with=len(source.run.reward.classmates),
    )


def _model_type(source: Source, teacher: FrozenModel) -> str | None:
    """Of a teacher that writes two turns, which are joined as its kind of model does; None where nobody asks."""
    if not source.teaching.protocol.teacher_asks:
        return None
    from transformers import AutoConfig

    try:
        return str(AutoConfig.from_pretrained(teacher.model).model_type)
    except (OSError, ValueError):
        # One on a server may be known here by its tokenizer alone.
        return None


def _told(
    source: Source,
    options: Options,
    data: Data,
    students: Sequence[FrozenModel],
    teachers: Sequence[FrozenModel],
    added: Sequence[str],
) -> dict[str, Any]:
    """All that the answers follow from; a journal of anything else is of another evaluation."""
    generation = source.run.reward.classmate_generation_configs
    return {
        "settings": {
            "baseline_samples": options.numbers.baseline,
            "guided_samples": options.numbers.guided,
            "settings": [dataclasses.asdict(one) for one in options.settings],
            "student": {**vars(generation.sampling(validate=False)), "context": source.run.context_length},
            "teacher": {
                **{one: dataclasses.asdict(Sampling.of(source, one)) for one in options.decodings},
                "max_new_tokens": source.run.max_response_length,
                "max_prompt_length": source.run.max_prompt_length,
            },
            "protocol": plain(source.teaching.protocol),
            "extract": plain(source.teaching.extract),
            "template_kwargs": dict(source.run.template_kwargs),
            "reveal": options.reveal,
            "search_items": options.search_items,
            "search_samples": options.search_samples,
            "search_seed": source.run.reward.seed,
            "candidates": list(added),
        },
        "models": [
            {"name": one.name, "model": one.model, "revision": revision_of(one), "engine": resolved_engine(one)}
            for one in (*students, *teachers)
        ],
        "templates": document.templates_of(source.teaching.templates),
        "data": {
            name: None if one is None else one.digest()
            for name, one in (("test", data.test), ("train", data.train), ("offtask", data.offtask))
        },
    }
