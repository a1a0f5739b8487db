"""Anthropic HH-RLHF: the first thing that a person said to an assistant, without a right answer.

Decision: only the first human turn of the chosen dialogue is used. Both dialogues of a pair begin alike, and later
turns answer what another model said. Part of the requests is offensive, which is what they are for.

    python -m verl.data_preprocessing.anthropic_hh_rlhf --output_dir data/anthropic_hh_rlhf
    python -m verl.data_preprocessing.anthropic_hh_rlhf --output_dir data/mine --local_file harmless-base.jsonl.gz
"""

import argparse
import re
from collections.abc import Mapping

from verl.data_preprocessing.behaviour import BehaviourRecipe
from verl.data_preprocessing.common import run_command
from verl.data_preprocessing.recipe import run_recipe
from verl.data_preprocessing.sources import HubSplit, Record
from verl.data_preprocessing.splits import Task

_FIRST_TURN = re.compile(r"\s*Human:(?P<said>.*?)\n\n(?:Assistant|Human):", re.DOTALL)


class AnthropicHhRlhf(BehaviourRecipe):
    """One row for each first turn."""

    name = "anthropic_hh_rlhf"
    summary = "First human turns of Anthropic/hh-rlhf as parquet, scored by a judge."

    def sources(self, options: argparse.Namespace) -> Mapping[str, tuple[HubSplit, ...]]:
        return {"all": (HubSplit(repo="Anthropic/hh-rlhf"),)}

    def task(self, record: Record, options: argparse.Namespace) -> Task:
        turn = _FIRST_TURN.match(record.text("chosen") + "\n")
        said = turn["said"].strip() if turn else ""
        if not said:
            raise ValueError("no first human turn in the field chosen")
        return Task(part=record.part, index=record.index, question=said)


if __name__ == "__main__":
    run_command(lambda: run_recipe(AnthropicHhRlhf()))
