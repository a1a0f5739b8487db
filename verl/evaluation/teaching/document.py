"""The file that stays of an evaluation: JSON with all numbers, and all answers that they are made of.

One decision: reports are made of this file alone, so that it holds whatever a reader may ask for: how the models were
called and which weights they had, what every student was told, and the score of every answer.

    schema              2 and so on when the keys change
    kind                "teaching_evaluation"
    date, commit        when, and of which code (`unknown` outside of a repository)
    versions            of python, torch, transformers, verl
    command             the command line
    run                 {folder, step} of the training; null without one
    teacher, untrained  {model, revision, engine}; untrained is null where it was not asked
    students            [{name, reader, role: "trained with" or "unseen", model, revision, engine}]
    data                {files, items, rows, without_truth, also_in_training, sha256} of what is asked
    settings            baseline_samples (M_e), guided_samples (N_e), settings [{decoding, seed}], sampling and budgets
                        of teacher and students, protocol (the node rcl.protocol), reveal, tutors
    templates           {hash, baseline_hash, values}: of all prompts, of that of stored baselines, and their texts
    results             of each decoding, tutor and student or group: {decoding, tutor, student, role, asked,
                        numbers (`EvaluationReport`: estimates are {value, interval}; null: no trial), advice
                        (`AdviceNumbers`; null for the null teacher), cost_tokens, noise (mean |D|), leaking and
                        not_leaking {trials, b, w}, excluded {reason: trials}, failed_requests, gain_over {control:
                        {value, interval}} of the teacher}
    fixed_advice        {for_all, own {student: candidate}, candidates [{text, origin, times, gains {student: gain}}],
                        distinct, items, samples, data}; null where it was not searched
    offtask             {before, after: {right, answered, unparsed, failed, share, interval}, lost, won, p, items,
                        files, answers}; null without --offtask
    items               {item: {question, ground_truth, data_source}}
    baselines           [{student, item, decoding, seed, responses [[score, parsed, stopped, tokens]], failed, outcome,
                        error}]
    outlines            [{student, item, seed, text, tokens, cut, outcome, error}]
    questions           [{tutor, student, item, decoding, seed, raw, question {text, state, tokens}, outcome, error,
                        reply (as outlines)}] of teachers that write the probe's question; then outlines is empty
    trials              [{tutor, student, item, decoding, seed, told (`Told`: raw text of the teacher, teaching with its
                        state and tokens, leak; null for the null teacher), guided (as baselines, with `first`, the text
                        of the first response; null: nothing was shown, and the baseline stands for it)}]
    notes               lines for a person

Tutors: `teacher`; `null` (the student is asked alone once more), `untrained`, `reveal` (says the ground truth),
`fixed_all` and `fixed_own` (the best fixed advice for all students, and for each). What is not defined is null.
"""

import dataclasses
import datetime
import json
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from verl.evaluation.teaching.exam import Exam
from verl.evaluation.teaching.fixed import Candidate, FixedAdvice
from verl.evaluation.teaching.items import Items
from verl.evaluation.teaching.offtask import Retention, Share
from verl.evaluation.teaching.summary import TRAINED_WITH, UNSEEN, Result
from verl.teaching.lesson import plain
from verl.teaching.templates import Templates
from verl.trainer.run.state import write_atomically
from verl.workers.classmates.placement import resolved_engine

SCHEMA = 1
"""Of the files that are written now."""
KIND = "teaching_evaluation"


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Writes the file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n")


def about(command: Sequence[str]) -> dict[str, Any]:
    """When it was made, and of what."""
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
        "command": list(command),
    }


_PACKAGES = ("torch", "transformers", "verl", "vllm")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str:
    root = Path(__file__).resolve().parents[3]
    try:
        said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said.stdout.strip()


def students_of(exam: Exam) -> list[dict[str, Any]]:
    """Who was taught."""
    return [
        {
            "name": one.name,
            "reader": one.reader,
            "role": TRAINED_WITH if one.reader < exam.people.trained_with else UNSEEN,
            "model": one.frozen.model,
            "revision": one.revision,
            "engine": resolved_engine(one.frozen),
        }
        for one in exam.students
    ]


def data_of(items: Items, *, also_in_training: int | None) -> dict[str, Any]:
    """What was asked."""
    return {
        "files": list(items.files),
        "items": len(items.chosen),
        "rows": items.rows,
        "without_truth": items.without_truth,
        "also_in_training": also_in_training,
        "sha256": items.digest(),
    }


def templates_of(templates: Templates) -> dict[str, Any]:
    """The prompts."""
    return {
        "hash": templates.hash,
        "baseline_hash": templates.baseline_hash,
        "values": dataclasses.asdict(templates),
    }


def records_of(exam: Exam) -> dict[str, Any]:
    """All that was said and answered, in an order that does not depend on who was answered first."""
    names = [one.name for one in exam.students]
    records = exam.records

    def setting(key: str) -> dict[str, Any]:
        decoding, _, seed = key.partition("|")
        return {"decoding": decoding, "seed": int(seed)}

    baselines = []
    for (r, item, key), answers in sorted(records.alone.items(), key=lambda one: one[0]):
        content = answers.plain()
        content.pop("first")
        baselines.append({"student": names[r], "item": item, **setting(key), **content})
    trials = []
    for tutor, r, item, key in sorted({*records.told, *records.guided}):
        told, guided = records.told.get((tutor, r, item, key)), records.guided.get((tutor, r, item, key))
        trials.append(
            {
                "tutor": tutor,
                "student": names[r],
                "item": item,
                **setting(key),
                "told": None if told is None else told.plain(),
                "guided": None if guided is None else guided.plain(),
            }
        )
    return {
        "items": {
            one.name: {
                "question": one.question,
                "ground_truth": str(one.task.ground_truth),
                "data_source": one.task.data_source,
            }
            for one in exam.items
        },
        "baselines": baselines,
        "outlines": [
            {"student": names[r], "item": item, "seed": seed, **plain(probe)}
            for (r, item, seed), probe in sorted(records.probes.items(), key=lambda one: one[0])
        ],
        **({"questions": _questions(exam)} if records.questions else {}),
        "trials": trials,
    }


def _questions(exam: Exam) -> list[dict[str, Any]]:
    """What teachers asked, and students replied."""
    found = []
    for place, asked in sorted(exam.records.questions.items(), key=lambda one: one[0]):
        tutor, r, item, key = place
        decoding, _, seed = key.partition("|")
        found.append(
            {
                "tutor": tutor,
                "student": exam.students[r].name,
                "item": item,
                "decoding": decoding,
                "seed": int(seed),
                **{name: value for name, value in asked.plain().items() if not name.endswith("_ids")},
                "reply": plain(exam.records.replies[place]),
            }
        )
    return found


def results_of(results: Sequence[Result]) -> list[dict[str, Any]]:
    """All numbers."""
    return [one.as_json() for one in results]


def fixed_of(found: FixedAdvice, exam: Exam, items: Items) -> dict[str, Any]:
    """The search of fixed advice."""
    names = [one.name for one in exam.students]

    def candidate(one: Candidate) -> dict[str, Any]:
        return {
            "text": one.text,
            "origin": one.origin,
            "times": one.times,
            "gains": dict(zip(names, one.gains, strict=True)),
        }

    return {
        "for_all": candidate(found.for_all),
        "own": {name: candidate(one) for name, one in zip(names, found.own, strict=True)},
        "candidates": [candidate(one) for one in found.candidates],
        "distinct": found.distinct,
        "items": found.items,
        "samples": found.samples,
        "data": data_of(items, also_in_training=None),
    }


def offtask_of(retention: Retention, items: Items, answers: Mapping[str, Any]) -> dict[str, Any]:
    """Questions that the teacher answers itself."""

    def share(one: Share | None) -> dict[str, Any] | None:
        return None if one is None else {**vars(one), "share": one.share, "interval": one.interval}

    return {
        "before": share(retention.before),
        "after": share(retention.after),
        "lost": retention.lost,
        "won": retention.won,
        "p": retention.p,
        "items": len(items.chosen),
        "files": list(items.files),
        "answers": {
            who: {name: one.plain() for name, one in found.items()}
            for who, found in answers.items()
            if found is not None
        },
    }


def command_line() -> list[str]:
    """How this process was started."""
    return ["python", "-m", "verl.evaluation.teaching", *sys.argv[1:]]
