"""The files of a teaching world: rows for RL, for the warm-up and beside the task. Pure functions of the spec.

rl_row(problem(seed=0, split="train", index=3), split="train", index=3)["agent_name"]     # 'rcl_teacher'
write_files(spec, folder)
"""

import json
import random
from pathlib import Path
from typing import Any

from verl.data_preprocessing import common
from verl.data_preprocessing.arithmetic_problems import Problem, Split
from verl.data_preprocessing.teaching_world import prompts, teacher_lessons
from verl.data_preprocessing.teaching_world.problems import kind_of, problem
from verl.data_preprocessing.teaching_world.spec import TeachingWorldSpec

DATA_SOURCE = "teaching_arithmetic"
OFFTASK_SOURCE = "teaching_offtask"
AGENT = "rcl_teacher"

TRAIN, TEST, OFFTASK, WARMUP, PROMPTS = (
    "train.parquet",
    "test.parquet",
    "offtask.parquet",
    "warmup.jsonl",
    "templates.yaml",
)
FILES = (TRAIN, TEST, OFFTASK, WARMUP, PROMPTS)
"""What `write_files` writes."""


def rl_row(one: Problem, *, split: str, index: int) -> dict[str, Any]:
    """A problem for the teacher; the prompt is the bare question, which the agent loop puts into its templates."""
    row = common.make_row(
        data_source=DATA_SOURCE,
        question=one.question,
        ground_truth=str(one.answer),
        split=split,
        index=index,
        extra_info={"question": one.question, "kind": kind_of(one)},
    )
    return {**row, "agent_name": AGENT}


def offtask_row(number: int, *, index: int) -> dict[str, Any]:
    """A question that the base teacher answers itself; the prompt has the answer format, as it was taught with it."""
    question, answer = teacher_lessons.offtask(number)
    row = common.make_row(
        data_source=OFFTASK_SOURCE,
        question=question,
        instruction=prompts.templates().answer_format,
        separator="\n",
        ground_truth=str(answer),
        split="test",
        index=index,
        extra_info={"question": question},
    )
    assert row["prompt"] == prompts.templates().baseline(question)
    return row


def warmup_line(spec: TeachingWorldSpec, index: int) -> str:
    """A row of the warm-up as JSON."""
    row = teacher_lessons.warmup_row(spec.seed, spec.mix, index)
    columns = {
        "problem_text": row.problem.question,
        "student_approach": row.approach,
        "teacher_diagnosis": row.diagnosis,
        "teacher_teaching": row.teaching,
    }
    return json.dumps(columns, ensure_ascii=False)


def write_files(spec: TeachingWorldSpec, folder: Path) -> None:
    """Writes `FILES` into a folder."""
    splits: tuple[tuple[str, Split, str, int], ...] = (
        (TRAIN, "train", "train", spec.train_rows),
        (TEST, "val", "test", spec.test_rows),
    )
    for name, operands, split, count in splits:
        made = [problem(seed=spec.seed, split=operands, index=index) for index in range(count)]
        rows = [rl_row(one, split=split, index=index) for index, one in enumerate(made)]
        common.write_parquet(rows, folder / name)
    numbers = list(range(teacher_lessons.offtask_count()))
    random.Random(f"offtask/{spec.seed}").shuffle(numbers)
    asked = numbers[: spec.offtask_rows]
    common.write_parquet([offtask_row(number, index=i) for i, number in enumerate(asked)], folder / OFFTASK)
    lines = [warmup_line(spec, index) for index in range(spec.warmup_rows)]
    (folder / WARMUP).write_text("\n".join(lines) + "\n")
    prompts.write(folder / PROMPTS)
