"""GSM8K as parquet: from the hub, or from local files with the fields `question` and `answer`.

Decision: the splits are upstream's and keep its order; nothing is drawn. A training question that is in the test file
too is left out of training.

    python -m verl.data_preprocessing.gsm8k --output_dir data/gsm8k
    python -m verl.data_preprocessing.gsm8k --output_dir data/gsm8k --local_file train.jsonl --val_file test.jsonl
"""

import argparse
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar

from verl.data_preprocessing.common import make_row, run_command
from verl.data_preprocessing.recipe import BOXED_INSTRUCTION, Recipe, run_recipe
from verl.data_preprocessing.sources import HubSplit, Record
from verl.data_preprocessing.splits import Task

DATA_SOURCE = "openai/gsm8k"


def ground_truth_of(answer: str) -> str:
    """The number after the last `####` of a GSM8K answer, without commas.

    Raises:
        ValueError: there is no `####`, or no number follows it.
    """
    _, marker, number = answer.rpartition("####")
    number = number.strip().replace(",", "").removeprefix("$")
    try:
        valid = bool(marker) and Decimal(number).is_finite()
    except InvalidOperation:
        valid = False
    if not valid:
        raise ValueError("no number after ####")
    return number


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of rows: write 1 or more")
    return int(text)


class Gsm8k(Recipe):
    """One row for each problem."""

    name = "gsm8k"
    summary = "GSM8K as parquet."
    seeded = False
    test_part = True
    options: ClassVar = {
        f"--{split}_rows": {"type": _positive, "help": f"keep only the first rows of the {split} split"}
        for split in ("train", "test")
    }

    def sources(self, options: argparse.Namespace) -> Mapping[str, tuple[HubSplit, ...]]:
        return {split: (HubSplit(repo=DATA_SOURCE, config="main", split=split),) for split in ("train", "test")}

    def task(self, record: Record, options: argparse.Namespace) -> Task:
        answer = record.text("answer")
        number = ground_truth_of(answer)
        return Task(
            part=record.part,
            index=record.index,
            question=record.text("question"),
            ground_truth=number,
            answer=number,
            details={"answer": answer},
        )

    def split(self, tasks: list[Task], options: argparse.Namespace) -> dict[str, list[Task]]:
        limits = {"train": options.train_rows, "test": options.test_rows}
        return {split: [task for task in tasks if task.part == split][:limit] for split, limit in limits.items()}

    def row(self, task: Task, split: str, options: argparse.Namespace) -> dict[str, Any]:
        return make_row(
            data_source=DATA_SOURCE,
            question=task.question,
            instruction=BOXED_INSTRUCTION,
            ground_truth=task.ground_truth,
            split=split,
            index=task.index,
            extra_info={"dataset": self.name, "answer": task.details["answer"]},
        )


if __name__ == "__main__":
    run_command(lambda: run_recipe(Gsm8k()))
