"""The files of a reasoning world: rows for RL, problems, and solutions whose every step is labelled.

One decision: the labelled solutions to learn from show no error of the kind `HELD_OUT_KIND`, neither a planted one nor
the base policy's own; the held-out ones show all kinds. So it can be measured what a judge of steps makes of a kind
that it never saw.

    rl_row(problem, split="train", index=3)["data_source"]      # 'reasoning_steps'
    labelled_line(problem, text, origin="planted")["meta"]["first_error"]
"""

import json
import random
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from verl.data_preprocessing import common, embedded_models
from verl.data_preprocessing.reasoning_world.checking import (
    FORM,
    KINDS,
    check_solution,
    steps_of,
    thought_and_answer,
)
from verl.data_preprocessing.reasoning_world.measure import sample
from verl.data_preprocessing.reasoning_world.planting import CannotPlantError, plant, solve
from verl.data_preprocessing.reasoning_world.problems import ChainProblem, Split, make_problem, right_lines
from verl.data_preprocessing.reasoning_world.spec import ReasoningWorldSpec

DATA_SOURCE = "reasoning_steps"
HELD_OUT_KIND = "copy"
"""Kind of error that `LABELLED` never shows."""

TRAIN, VAL = "train.parquet", "val.parquet"
PROBLEMS, PROBLEMS_VAL = "problems.jsonl", "problems_val.jsonl"
LABELLED, LABELLED_VAL = "labelled.jsonl", "labelled_val.jsonl"
ROW_FILES = (TRAIN, VAL, PROBLEMS, PROBLEMS_VAL)
"""What `write_rows` writes."""
LABELLED_FILES = (LABELLED, LABELLED_VAL)
"""What `write_labelled` writes."""

_RIGHT_SHARE = 0.3
"""Of the planted solutions."""


def problem_id(problem: ChainProblem) -> str:
    """16 hexadecimal digits, those of `verl.reasoning.records.problem_id`."""
    return blake2b(problem.question.encode(), digest_size=8).hexdigest()


def problem_line(problem: ChainProblem, *, split: Split, index: int) -> dict[str, Any]:
    """A `verl.reasoning.records.Problem` as JSON; its level is the number of steps."""
    return {
        "id": problem_id(problem),
        "problem": problem.question,
        "answer": str(problem.answer),
        "source": DATA_SOURCE,
        "level": len(problem.plan),
        "meta": {"split": split, "index": index},
    }


def rl_row(problem: ChainProblem, *, split: Split, index: int) -> dict[str, Any]:
    """A row of a parquet file, with the worked solution beside the problem."""
    return common.make_row(
        data_source=DATA_SOURCE,
        question=problem.question,
        ground_truth=str(problem.answer),
        split=split,
        index=index,
        extra_info={
            "id": problem_id(problem),
            "problem": problem.question,
            "level": len(problem.plan),
            "worked_cot": "\n".join(right_lines(problem)),
        },
    )


def labelled_line(problem: ChainProblem, text: str, *, origin: str) -> dict[str, Any]:
    """A `verl.reasoning.records.Solution` as JSON; `meta` has what is known of its steps.

    Args:
        origin: `planted`, or `base`: sampled from the base policy.
    """
    report = check_solution(problem, text)
    thought, said = thought_and_answer(text)
    thinking = "\n".join(steps_of(thought))
    return {
        "problem_id": problem_id(problem),
        "text": text,
        "thinking": thinking,
        "answer_text": said.strip(),
        "final_answer": None if report.answer is None else str(report.answer),
        "steps": list(_steps(report.steps)),
        "correct": report.answer_right,
        "model": origin,
        "meta": {
            "problem": problem.question,
            "labels": list(report.labels),
            "kinds": list(report.kinds),
            "first_error": report.first_error,
            "first_kind": report.first_kind,
            "sound": report.sound,
        },
    }


def _steps(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """`verl.stepwise.step.Step` as JSON, of lines that are joined by line breaks."""
    lines, start = list(lines), 0
    for index, line in enumerate(lines):
        text = line + "\n" * (index < len(lines) - 1)
        yield {
            "index": index,
            "text": text,
            "char_start": start,
            "char_end": start + len(text),
            "kind": "compute",
        }
        start += len(text)


def planted_solution(problem: ChainProblem, rng: random.Random, kinds: tuple[str, ...]) -> str:
    """A right solution, or one with an error of one of the kinds."""
    if rng.random() >= _RIGHT_SHARE:
        try:
            return plant(problem, rng, rng.choice(kinds))[0]
        except CannotPlantError:
            pass
    return solve(problem).text


def write_rows(spec: ReasoningWorldSpec, folder: Path) -> None:
    """Writes `ROW_FILES` into a folder."""
    splits: tuple[tuple[Split, int, str, str], ...] = (
        ("train", spec.train_rows, TRAIN, PROBLEMS),
        ("val", spec.val_rows, VAL, PROBLEMS_VAL),
    )
    for split, count, rows, records in splits:
        made = [make_problem(seed=spec.seed, split=split, index=index) for index in range(count)]
        common.write_parquet([rl_row(one, split=split, index=i) for i, one in enumerate(made)], folder / rows)
        _write_lines(folder / records, (problem_line(one, split=split, index=i) for i, one in enumerate(made)))


def write_labelled(spec: ReasoningWorldSpec, base: Path, folder: Path) -> None:
    """Writes `LABELLED_FILES` into a folder: half of the solutions planted, half sampled from the base policy."""
    model, tokenizer = embedded_models.load_model(base)
    seen = tuple(kind for kind in KINDS if kind != HELD_OUT_KIND)
    splits: tuple[tuple[Split, str, int, int, tuple[str, ...]], ...] = (
        ("train", LABELLED, spec.labelled, spec.train_rows, seen),
        ("val", LABELLED_VAL, spec.labelled // 2, spec.val_rows, KINDS),
    )
    for split, name, count, rows, kinds in splits:
        problems = [make_problem(seed=spec.seed, split=split, index=index % rows) for index in range(count)]
        half = count // 2
        lines = []
        for index, problem in enumerate(problems[:half]):
            text = planted_solution(problem, random.Random(f"{spec.seed}/{split}/labelled/{index}"), kinds)
            lines.append(labelled_line(problem, text, origin="planted"))
        texts = sample(model, tokenizer, problems[half:], n=1, seed=spec.seed + 1)
        for problem, (text,) in zip(problems[half:], texts, strict=True):
            lines.append(labelled_line(problem, text, origin="base"))
        _write_lines(folder / name, (line for line in lines if _shown(line, kinds)))


def _shown(line: dict[str, Any], kinds: tuple[str, ...]) -> bool:
    """Whether all errors are of these kinds, and there are steps to label."""
    found = {kind for kind in line["meta"]["kinds"] if kind}
    return bool(line["steps"]) and FORM not in found and found <= set(kinds)


def _write_lines(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
