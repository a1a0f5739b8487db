"""Helpful instructions: what people ask an assistant to do, without a right answer.

Decision: three shapes of a record are read, since the set is made of them: `instruction` (the hub), `prompt` (its
prompt-source part) and `instruction` with `instances` (Self-Instruct), whose first input follows the instruction.

    python -m verl.data_preprocessing.helpful_instructions --output_dir data/helpful_instructions
    python -m verl.data_preprocessing.helpful_instructions --output_dir data/confidence --behaviour confidence
    python -m verl.data_preprocessing.helpful_instructions --output_dir data/mine --local_file seed_tasks.jsonl
"""

import argparse
from collections.abc import Mapping
from typing import Any

from verl.data_preprocessing.behaviour import BehaviourRecipe
from verl.data_preprocessing.common import run_command
from verl.data_preprocessing.recipe import run_recipe
from verl.data_preprocessing.sources import HubSplit, Record
from verl.data_preprocessing.splits import Task


class HelpfulInstructions(BehaviourRecipe):
    """One row for each instruction."""

    name = "helpful_instructions"
    summary = "Instructions as parquet, scored by a judge."

    def sources(self, options: argparse.Namespace) -> Mapping[str, tuple[HubSplit, ...]]:
        return {"all": (HubSplit(repo="HuggingFaceH4/helpful-instructions"),)}

    def task(self, record: Record, options: argparse.Namespace) -> Task:
        fields = record.fields or {}
        text = record.text("instruction" if "instruction" in fields else "prompt")
        if "instances" in fields:
            text = "\n\n".join(part for part in (text, _first_input(fields["instances"])) if part)
        return Task(part=record.part, index=record.index, question=text)


def _first_input(instances: Any) -> str:
    try:
        return instances[0]["input"].strip()
    except (TypeError, KeyError, IndexError, AttributeError) as error:
        raise ValueError("no text in the field instances[0].input") from error


if __name__ == "__main__":
    run_command(lambda: run_recipe(HelpfulInstructions()))
