"""Programming tasks as parquet: HumanEval and MBPP, scored by running their tests in the sandbox.

Decision: the ground truth is JSON, `{"tests": [...], "setup": ...}`. The policy's program runs first, then the setup
(what the tests need besides the program), then one test. Of MBPP's assertions the prompt shows only the first, which
tells the function's name and arguments: a program could be written to fit those that it has seen.

    python -m verl.data_preprocessing.code_tasks --dataset humaneval --output_dir data/humaneval
    python -m verl.data_preprocessing.code_tasks --dataset mbpp --output_dir data/mbpp --local_file sanitized.jsonl
"""

import argparse
import ast
import json
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from verl.data_preprocessing.common import make_row, run_command
from verl.data_preprocessing.recipe import Recipe, messages, run_recipe
from verl.data_preprocessing.sources import HubSplit, Record
from verl.data_preprocessing.splits import Task

DATA_SOURCE = "code"
FORMAT = "Answer with the whole program, its imports and helper functions included, in one fenced python block."
MBPP_TEST_IDS = range(11, 511)

_HUB = {
    "humaneval": (HubSplit(repo="openai/openai_humaneval", split="test"),),
    "mbpp": tuple(
        HubSplit(repo="google-research-datasets/mbpp", config="sanitized", split=split)
        for split in ("prompt", "test", "validation", "train")
    ),
}


class CodeTasks(Recipe):
    """One row for each task. HumanEval is for testing, and so are the tasks 11 to 510 of MBPP; the others are not."""

    name = "code_tasks"
    summary = "Programming tasks with tests, as parquet."
    seeded = False
    options: ClassVar = {"--dataset": {"choices": tuple(_HUB), "required": True, "help": "which tasks"}}

    def sources(self, options: argparse.Namespace) -> Mapping[str, tuple[HubSplit, ...]]:
        return {"all": _HUB[options.dataset]}

    def task(self, record: Record, options: argparse.Namespace) -> Task:
        return _humaneval(record) if options.dataset == "humaneval" else _mbpp(record)

    def split(self, tasks: list[Task], options: argparse.Namespace) -> dict[str, list[Task]]:
        splits: tuple[Literal["train", "test"], ...] = ("train", "test")
        return {split: [task for task in tasks if task.group == split] for split in splits}

    def row(self, task: Task, split: str, options: argparse.Namespace) -> dict[str, Any]:
        row = make_row(
            data_source=DATA_SOURCE,
            question=task.question,
            ground_truth=task.ground_truth,
            split=split,
            index=task.index,
            ability="code",
            extra_info={"dataset": options.dataset, **task.details},
        )
        return {**row, "prompt": messages(f"{task.question}\n\n{FORMAT}")}


def _humaneval(record: Record) -> Task:
    head, body = record.text("prompt", strip=False), record.text("canonical_solution", strip=False)
    entry_point = record.text("entry_point")
    before, definition, _ = head.partition(f"def {entry_point}(")
    if not definition:
        raise ValueError(f"the field prompt does not define {entry_point}")
    call = f"{record.text('test', strip=False).rstrip()}\n\ncheck({entry_point})\n"
    _check_python(prompt=head + body, test=call)
    return Task(
        part=record.part,
        index=record.index,
        question=f"Complete this function so that it does what its docstring says.\n\n```python\n{head.strip()}\n```",
        # Imports and helpers that stand before the function: the tests of some tasks use them.
        ground_truth=_ground_truth(tests=[call], setup=before.strip()),
        group="test",
        details={"task_id": record.text("task_id"), "reference": head + body},
    )


def _mbpp(record: Record) -> Task:
    prompt, code = record.text("prompt"), record.text("code")
    tests, setup = record.texts("test_list"), "\n".join(record.texts("test_imports"))
    number = (record.fields or {}).get("task_id")
    if type(number) is not int:
        raise ValueError("no number in the field task_id")
    if not tests:
        raise ValueError("no test in the field test_list")
    _check_python(code=code, test_imports=setup, **{f"test_list[{i}]": test for i, test in enumerate(tests)})
    question = f"{prompt}\n\nAmong others, this assertion must hold:\n\n```python\n{tests[0].strip()}\n```"
    return Task(
        part=record.part,
        index=record.index,
        question=question,
        wording=prompt,
        ground_truth=_ground_truth(tests=tests, setup=setup),
        group="test" if number in MBPP_TEST_IDS else "train",
        details={"task_id": str(number), "reference": code},
    )


def _ground_truth(*, tests: list[str], setup: str) -> str:
    return json.dumps({"tests": tests, "setup": setup}, ensure_ascii=False)


def _check_python(**sources: str) -> None:
    """Raises ValueError naming the first field that is no Python; nothing is run."""
    for name, source in sources.items():
        try:
            with warnings.catch_warnings(action="ignore"):
                ast.parse(source)
        except SyntaxError as error:
            raise ValueError(f"the field {name} is no Python ({error.msg})") from error


if __name__ == "__main__":
    run_command(lambda: run_recipe(CodeTasks()))
