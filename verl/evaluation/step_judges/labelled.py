"""The world's labelled solutions as rows of process reward models, with the kind of each first error beside them.

One decision: steps behind a first error keep their labels, which the world knows: one that follows from what stands
above it is right. A judge that never saw such steps finds all of them wrong, and the first error is not the weakest.

    rows = read_labelled(world / "labelled_val.jsonl")
    rows[0].row.first_error, rows[0].kind           # 2, 'copy'
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from verl.reasoning.prm.rows import LabelledSolution


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """A solution whose first error is known."""

    row: LabelledSolution
    """Its steps and their labels."""
    kind: str
    """Of its first error (`checking.KINDS`); "": it has none."""
    text: str
    """As it was written, with thought and answer."""
    planted: bool
    """Whether it was made with an error in a known place, or with none; else a policy wrote it."""


def read_labelled(file: Path) -> list[Labelled]:
    """Rows of `reasoning_world.rows.LABELLED_FILES`."""
    return [_labelled(json.loads(line)) for line in file.read_text().splitlines()]


def spread(rows: Sequence[Labelled], most: int) -> list[Labelled]:
    """At most so many, evenly from all: the files have planted solutions first and the policy's own behind them."""
    count = min(most, len(rows))
    return [rows[place * len(rows) // count] for place in range(count)]


def _labelled(line: dict) -> Labelled:  # type: ignore[type-arg]
    known = line["meta"]
    row = LabelledSolution(
        prompt=known["problem"],
        completions=tuple(step["text"] for step in line["steps"]),
        labels=tuple(bool(label) for label in known["labels"]),
        problem_id=line["problem_id"],
        correct=line["correct"],
    )
    return Labelled(row=row, kind=known["first_kind"], text=line["text"], planted=line["model"] == "planted")
