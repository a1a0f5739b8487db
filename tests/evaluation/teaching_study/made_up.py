"""Made-up evaluations and results of studies of teachers, for tests of what is made from them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from verl.evaluation.study.results import RunResult, write_result
from verl.evaluation.teaching_study.presets import STUDIES

SEEDS = (11, 12, 13)
ADAPTIVE = replace(STUDIES["adaptive_teaching"], name="adaptive", seeds=SEEDS)
LEAKS = replace(STUDIES["leaks"], name="told", seeds=SEEDS).of_arms(("reported", "zero_gain"))
MADE_UP = {study.name: study for study in (ADAPTIVE, LEAKS)}
GAINS = {"teacher": 0.5, "untrained": 0.1, "null": 0.0, "fixed_all": 0.05, "fixed_own": 0.2, "reveal": 0.6}


def result(study: str = "adaptive", arm: str = "penalty_2", seed: int = 11) -> RunResult:
    """A run in which every student gains the same, a little more at each seed."""
    wobble = (seed - 12) / 100
    numbers: dict[str, float] = {}
    tutors = GAINS if study == "adaptive" else ("teacher", "untrained", "null")
    for tutor in tutors:
        gain = GAINS[tutor]
        for student in ("weak", "strong", "all"):
            values = {"APG": gain + wobble, "b": 0.3, "w": 0.3 + gain + wobble, "harm": 0.1, "clean": gain / 2}
            values |= {"leak": 0.02 if arm == "zero_gain" else 0.4 - wobble, "empty": 0.25, "length": 7.0}
            numbers |= {f"{tutor}.{student}.{name}": value for name, value in values.items()}
    return RunResult(
        study=study,
        arm=arm,
        seed=seed,
        steps=60,
        key="k",
        commit="c0ffee",
        seconds={"training": 60.0},
        readers={},
        numbers=numbers,
        curves={},
        day="2026-01-02",
        examples=[{"question": "weak: 7|8", "before": "", "after": "Remember `the` carry."}],
    )


def write_all(folder: Path) -> None:
    """Results of both studies, all arms and seeds."""
    for study in MADE_UP.values():
        for arm in study.arms:
            for seed in SEEDS:
                write_result(result(study.name, arm.name, seed), folder)


def evaluation() -> dict[str, Any]:
    """An evaluation's file with two questions to one student, one of them told and leaking."""

    def one(tutor: str, student: str, **changed: Any) -> dict[str, Any]:
        estimates = {name: {"value": 0.25, "interval": None} for name in ("APG", "NDR", "NDR_c", "TES")}
        advice = {"empty": 0.5, "broken": 0.0, "tokens": 4.0, "leak_rate": 0.5}
        return {
            "decoding": "sampled",
            "tutor": tutor,
            "student": student,
            "numbers": {**estimates, "b": 0.5, "w": 0.75, "trials": 4},
            "advice": advice,
            "not_leaking": {"trials": 1, "b": 0.5, "w": 0.7},
            **changed,
        }

    def told(item: str, text: str, outcome: str = "ok", tutor: str = "teacher") -> dict[str, Any]:
        found = {"outcome": outcome, "teaching": {"text": text}}
        return {"tutor": tutor, "student": "weak", "item": item, "decoding": "sampled", "seed": 0, "told": found}

    undefined = {name: {"value": None, "interval": None} for name in ("NDR_c", "TES")}
    teacher = one("teacher", "weak")
    blank = one("untrained", "weak", not_leaking={"trials": 0, "b": None, "w": None})
    blank["numbers"] |= undefined
    return {
        "results": [
            teacher,
            blank,
            one("null", "weak", advice=None),
            one("teacher", "all trained with"),
            one("teacher", "weak", decoding="greedy", numbers={}),
            one("fixed_all", "weak", numbers=None),
        ],
        "trials": [
            told("a", "Carry the one."),
            told("b", ""),
            told("c", "lost", outcome="engine_error"),
            told("a", "", tutor="untrained"),
            {"tutor": "null", "student": "weak", "item": "a", "decoding": "sampled", "seed": 0, "told": None},
        ],
        "items": {"a": {"question": "7+8?"}, "b": {"question": "1+1?"}, "c": {"question": "2+2?"}},
        "offtask": {"before": {"share": 1.0}, "after": {"share": 0.75}},
    }
