"""Stands for the supervised trainer: the student comes out as it went in.

>>> python -m tests.evaluation.copying_sft model.path=MODEL data.train_files=FILE trainer.default_local_dir=FOLDER
"""

import json
import shutil
import sys
from pathlib import Path

import pyarrow.parquet


def main(arguments: list[str]) -> None:
    """Copies the model, and writes down what it was told."""
    given = dict(one.split("=", 1) for one in arguments if not one.startswith("--"))
    folder = Path(given["trainer.default_local_dir"])
    shutil.copytree(given["model.path"], folder)
    rows = pyarrow.parquet.read_table(given["data.train_files"])
    told = {"given": given, "questions": sorted(rows["question"].to_pylist()), "columns": sorted(rows.column_names)}
    (folder / "told.json").write_text(json.dumps(told))
    if given.get("fails"):
        sys.exit(3)


if __name__ == "__main__":
    main(sys.argv[1:])
