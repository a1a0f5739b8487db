"""Problems as the trainer's rows.

One decision: what a reward needs of its problem is in the row's `extra_info`, so that no worker looks anything up.

    >>> write_rows(problems, folder / "train.parquet", template="{problem}", split="train")
"""

import json
from collections.abc import Sequence
from pathlib import Path

from verl.data_preprocessing.common import make_row, write_parquet
from verl.reasoning.records import Problem

SOURCE = "reasoning"
"""Data source of problems that name none."""


def write_rows(problems: Sequence[Problem], path: Path, *, template: str, split: str) -> Path:
    """Writes one row for each problem.

    Args:
        problems: in their order.
        path: of the parquet file.
        template: of what the model is asked, with `{problem}` in it.
        split: name of the set.

    Raises:
        ValueError: there is no problem.
    """
    rows = []
    for index, one in enumerate(problems):
        asked = template.replace("{problem}", one.problem)
        told = {
            "problem": one.problem,
            "id": one.id,
            "level": None if one.level is None else str(one.level),
            # Rows of a file have the same fields; what a data set says of its problems need not.
            "meta": json.dumps(one.meta, default=str),
        }
        row = make_row(
            data_source=one.source or SOURCE,
            question=asked,
            ground_truth=one.answer,
            split=split,
            index=index,
            extra_info=told,
        )
        rows.append(row)
    write_parquet(rows, path)
    return path
