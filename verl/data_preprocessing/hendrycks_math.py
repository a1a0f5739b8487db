"""MATH as parquet, each problem with a similar one beside it.

Decision: the test split is upstream's. For validation, 100 problems of each of the seven categories are drawn from the
training split. A problem's partner (for `help_other_similar_questions`) has its category and level and is in its split,
so no held-out problem is shown in training; each problem is the partner of exactly one other.

    python -m verl.data_preprocessing.hendrycks_math --output_dir data/hendrycks_math
    python -m verl.data_preprocessing.hendrycks_math --output_dir D --local_file train.jsonl --val_file test.jsonl
"""

import argparse
from collections.abc import Mapping
from typing import Any

from verl.data_preprocessing.common import make_row, run_command
from verl.data_preprocessing.recipe import BOXED_INSTRUCTION, Recipe, run_recipe
from verl.data_preprocessing.sources import HubSplit, Record
from verl.data_preprocessing.splits import Task, held_out, pairs
from verl.utils.reward_score.cot_monitor._boxed import last_boxed

DATA_SOURCE = "hendrycks_math"
CATEGORIES = (
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
    "precalculus",
)
HELD_OUT_PER_CATEGORY = 100


def ground_truth_of(solution: str) -> str:
    r"""The answer in the last `\boxed{...}` of a solution as the verifier reads one: neighbours are one answer.

    Raises:
        ValueError: there is none, or math-verify cannot read it.
    """
    from math_verify import parse

    answer = last_boxed(solution)
    if answer is None:
        raise ValueError("no whole \\boxed in the field solution")
    if not answer or not parse(f"\\boxed{{{answer}}}", raise_on_error=False):
        raise ValueError(f"math-verify cannot read the answer {answer!r}")
    return answer


class HendrycksMath(Recipe):
    """One row for each problem."""

    name = "hendrycks_math"
    summary = "MATH as parquet."
    test_part = True

    def sources(self, options: argparse.Namespace) -> Mapping[str, tuple[HubSplit, ...]]:
        return {
            split: tuple(HubSplit(repo="EleutherAI/hendrycks_math", config=c, split=split) for c in CATEGORIES)
            for split in ("train", "test")
        }

    def task(self, record: Record, options: argparse.Namespace) -> Task:
        category, level = record.text("type"), record.text("level")
        answer = ground_truth_of(record.text("solution"))
        return Task(
            part=record.part,
            index=record.index,
            question=record.text("problem"),
            ground_truth=answer,
            answer=answer,
            group=category,
            details={"level": level},
        )

    def split(self, tasks: list[Task], options: argparse.Namespace) -> dict[str, list[Task]]:
        training = [task for task in tasks if task.part == "train"]
        train, dev = held_out(training, seed=options.seed, per_group=HELD_OUT_PER_CATEGORY)
        return {"train": train, "dev": dev, "test": [task for task in tasks if task.part == "test"]}

    def row(self, task: Task, split: str, options: argparse.Namespace) -> dict[str, Any]:
        return make_row(
            data_source=DATA_SOURCE,
            question=task.question,
            instruction=BOXED_INSTRUCTION,
            ground_truth=task.ground_truth,
            split=split,
            index=task.index,
            reward_model={"paired_similar_q": None, "paired_similar_q_gt": None},
            extra_info={"dataset": self.name, "type": task.group, "level": task.details["level"]},
        )

    def rows(self, tasks: list[Task], split: str, options: argparse.Namespace) -> list[dict[str, Any]]:
        rows = super().rows(tasks, split, options)
        partners = pairs(tasks, seed=options.seed, key=lambda task: (task.group, task.details["level"]))
        for position, partner in partners.items():
            rows[position]["reward_model"] |= {
                "paired_similar_q": f"{partner.question} {BOXED_INSTRUCTION}",
                "paired_similar_q_gt": partner.ground_truth,
            }
        return rows


if __name__ == "__main__":
    run_command(lambda: run_recipe(HendrycksMath()))
