"""Sycophancy data of the embedded world: its problems with a wrong hint, scored by whether the answer follows the hint.

Decision: rows are taken from a world that is there, which stays as it is, and go into a folder of their own with the
splits of the judged sycophancy sets. Problems with the same numbers never cross splits: warm-up and training rows come
from the world's training split, the others from its validation split.

    python -m verl.data_preprocessing.hinted_arithmetic_sycophancy \\
        --world data/embedded_world --output_dir data/embedded_world_sycophancy
"""

import argparse
import os
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl.data_preprocessing import common

DATA_SOURCE = "hinted_arithmetic_sycophancy"
BUILDER = f"verl.data_preprocessing.{DATA_SOURCE}"

_SHARES = {
    "train": {"warmup_train": 0.25, "warmup_dev": 0.1, "train": 0.65},
    "val": {"dev": 0.5, "test": 0.5},
}
"""Of the world's two splits, the share of each of ours."""


def make_sycophancy_data(world: Path, folder: Path, *, force: bool = False) -> dict[str, Any]:
    """Writes five parquet files and a manifest, unless `folder` holds those of the same world; returns the manifest.

    Args:
        world: folder of an embedded world.
        folder: where the files go.
        force: write them again even if they are there.

    Raises:
        ValueError: `world` is no world, has too few hinted problems, or `folder` holds something else.
    """
    try:
        sources = {name: common.sha256_of(world / f"{name}.parquet") for name in _SHARES}
    except OSError as error:
        raise ValueError(
            f"{world} holds no embedded world ({Path(str(error.filename)).name} is missing): make it with python -m "
            "verl.data_preprocessing.hinted_arithmetic --output_dir FOLDER"
        ) from error
    manifest = common.read_manifest(folder)
    if manifest and manifest["builder"] == BUILDER and manifest["world_sha256"] == sources and not force:
        return {**manifest, "reused": True}
    if folder.exists() and any(folder.iterdir()) and (manifest is None or manifest["builder"] != BUILDER) and not force:
        raise ValueError(f"{folder} holds other files: choose an empty or new folder as --output_dir, or write --force")
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, shares in _SHARES.items():
        rows |= split_rows(_read(world / f"{name}.parquet"), shares)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        fresh = Path(scratch) / "data"
        for split, part in rows.items():
            if not part:
                raise ValueError(f"{world} has too few problems with a hint for the split {split}: make a larger world")
            made = [sycophancy_row(row, split=split, index=index) for index, row in enumerate(part)]
            common.write_parquet(made, fresh / f"{split}.parquet")
        counts = {split: len(part) for split, part in rows.items()}
        common.write_manifest(fresh, {"builder": BUILDER, "world_sha256": sources, "rows": counts})
        if folder.exists():
            os.replace(folder, Path(scratch) / "old")
        os.replace(fresh, folder)
    manifest = common.read_manifest(folder)
    assert manifest is not None
    return {**manifest, "reused": False}


def split_rows(rows: Sequence[dict[str, Any]], shares: dict[str, float]) -> dict[str, list[dict[str, Any]]]:
    """The hinted rows in their order, parted by shares; rows about the same numbers stay together."""
    hinted = [row for row in rows if row["reward_model"]["hinted_answer"] is not None]
    sizes = Counter(map(_operands, hinted))
    place, seen = {}, 0
    for key in dict.fromkeys(map(_operands, hinted)):
        place[key] = _split_at((seen + sizes[key] / 2) / len(hinted), shares)
        seen += sizes[key]
    return {name: [row for row in hinted if place[_operands(row)] == name] for name in shares}


def _split_at(position: float, shares: dict[str, float]) -> str:
    """The split that holds a position between 0 and 1 when the splits lie one behind the other."""
    end = 0.0
    for name, share in shares.items():
        end += share
        if position < end:
            return name
    return name


def _operands(row: dict[str, Any]) -> tuple[str, ...]:
    """The numbers of the problem, in whatever order they come."""
    return tuple(sorted(re.findall(r"[0-9]+", row["reward_model"]["raw_question_for_monitor"])))


def sycophancy_row(row: dict[str, Any], *, split: str, index: int) -> dict[str, Any]:
    """A row of the world, with the hinted answer as ground truth and the true one beside it."""
    task = row["reward_model"]
    return common.make_row(
        data_source=DATA_SOURCE,
        question=task["raw_question_for_monitor"],
        hint=task["hint_str_for_monitor"],
        ground_truth=task["hinted_answer"],
        actual_ground_truth=task["ground_truth"],
        split=split,
        index=index,
        reward_model={"hinted_answer": task["hinted_answer"]},
        extra_info={"dataset": DATA_SOURCE},
    )


def _read(path: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    return pq.read_table(path).to_pylist()


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: makes the data, or says that it is there; `arguments` replaces what the shell gave."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {BUILDER}",
        description="Sycophancy rows out of an embedded world: its problems with a wrong hint, in five splits.",
    )
    parser.add_argument("--world", type=Path, required=True, help="folder of the embedded world, which is only read")
    parser.add_argument("--output_dir", type=Path, required=True, help="folder for the parquet files and the manifest")
    parser.add_argument("--force", action="store_true", help="write again even if they are there")
    args = parser.parse_args(arguments)
    manifest = make_sycophancy_data(args.world, args.output_dir, force=args.force)
    counts = ", ".join(f"{split} {count}" for split, count in manifest["rows"].items())
    print(f"sycophancy rows {'found' if manifest['reused'] else 'written'}: {args.output_dir} ({counts})")


if __name__ == "__main__":
    common.run_command(main)
