"""GSM8K as parquet: from the hub, or from local JSONL files with the fields `question` and `answer`.

Decision: both sources go through `datasets`, row by row in the file's order. A broken row is reported with its
number and left out; it never stops the others.

    python -m verl.data_preprocessing.gsm8k --output_dir data/gsm8k
    python -m verl.data_preprocessing.gsm8k --output_dir data/gsm8k --local_file train.jsonl --val_file test.jsonl
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from verl.data_preprocessing.common import make_row, run_command, sha256_of, write_manifest, write_parquet

DATA_SOURCE = "openai/gsm8k"
INSTRUCTION = "Let's think step by step and put the final answer within \\boxed{}."


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


def convert(records: Iterable[Any], *, split: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows of a split, and a message for every record left out; `index` is the record's place in the source."""
    rows, problems = [], []
    for index, record in enumerate(records):
        try:
            question, answer = record["question"], record["answer"]
            if not (isinstance(question, str) and question.strip() and isinstance(answer, str)):
                raise ValueError("no JSON object with the texts question and answer")
            truth = ground_truth_of(answer)
        except ValueError as error:
            problems.append(f"row {index + 1} left out: {error}")
        else:
            rows.append(
                make_row(
                    data_source=DATA_SOURCE,
                    question=question.strip(),
                    instruction=INSTRUCTION,
                    ground_truth=truth,
                    split=split,
                    index=index,
                    extra_info={"answer": answer},
                )
            )
    return rows, problems


def load_local(path: Path) -> Iterable[Any]:
    """Records of a JSONL file, one for every line, be it broken or not."""
    from datasets import Dataset

    if not path.is_file():
        raise ValueError(f"{path} does not exist: --local_file and --val_file take JSONL files")
    with path.open(encoding="utf-8", errors="replace") as lines:
        records = [_local_record(line) for line in lines]
    if not records:
        raise ValueError(f"{path} is empty: it must hold one JSON object a line, with question and answer")
    return Dataset.from_list(records)


def _local_record(line: str) -> dict[str, str | None]:
    """Question and answer of a line; None for what is not there or no text, which `convert` reports."""
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    fields = record if isinstance(record, dict) else {}
    return {key: fields[key] if isinstance(fields.get(key), str) else None for key in ("question", "answer")}


def load_hub(split: str, revision: str) -> Iterable[Any]:
    """Records of a split of `openai/gsm8k`.

    Raises:
        ValueError: the hub or the revision cannot be reached, and there is no cached copy.
    """
    from datasets import load_dataset

    try:
        return load_dataset(DATA_SOURCE, "main", split=split, revision=revision)
    except Exception as error:
        raise ValueError(_unreachable(error)) from error


def resolve_revision(revision: str) -> str:
    """The commit that a revision of the data set on the hub stands for; unchanged with `HF_HUB_OFFLINE`.

    Raises:
        ValueError: the hub does not answer within seconds; `datasets` alone would try for most of a minute.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.constants import HF_HUB_OFFLINE

    if HF_HUB_OFFLINE:
        return revision
    try:
        return HfApi().dataset_info(DATA_SOURCE, revision=revision, timeout=8).sha or revision
    except Exception as error:
        raise ValueError(_unreachable(error)) from error


def _unreachable(error: Exception) -> str:
    # Every layer below (HTTP client, hub, datasets) has exceptions of its own for this, hence the broad clauses above.
    return (
        f"{DATA_SOURCE} could not be loaded from the hub ({type(error).__name__}): check the network and --revision, "
        "or give a local copy with --local_file train.jsonl"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line; `arguments` replaces what the shell gave."""
    parser = argparse.ArgumentParser(prog="python -m verl.data_preprocessing.gsm8k", description="GSM8K as parquet.")
    parser.add_argument(
        "--output_dir", type=Path, required=True, help="folder for train.parquet, test.parquet, manifest"
    )
    parser.add_argument("--local_file", type=Path, help="JSONL with question and answer: becomes train.parquet")
    parser.add_argument("--val_file", type=Path, help="JSONL with question and answer: becomes test.parquet")
    parser.add_argument("--revision", default="main", help="revision of the data set on the hub")
    parser.add_argument("--train_rows", type=int, help="keep only the first rows of the training split")
    parser.add_argument("--test_rows", type=int, help="keep only the first rows of the test split")
    args = parser.parse_args(arguments)

    local = {"train": args.local_file, "test": args.val_file}
    if args.val_file and not args.local_file:
        raise ValueError("--val_file needs --local_file")
    limits = {"train": args.train_rows, "test": args.test_rows}
    splits = [split for split in local if local[split] or not args.local_file]
    revision = "" if args.local_file else resolve_revision(args.revision)
    converted = {
        split: convert(load_local(path) if (path := local[split]) else load_hub(split, revision), split=split)
        for split in splits
    }
    sources: dict[str, Any] = {
        split: {"file": path.name, "sha256": sha256_of(path)}
        if (path := local[split])
        else {"hub": DATA_SOURCE, "revision": revision}
        for split in splits
    }
    counts = {}
    args.output_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial.", dir=args.output_dir) as scratch:
        for split, (rows, problems) in converted.items():
            for problem in problems:
                print(f"{split}: {problem}", file=sys.stderr)
            kept = rows[: limits[split]]
            write_parquet(kept, Path(scratch) / f"{split}.parquet")
            counts[split] = {"rows": len(kept), "left_out": len(problems)}
        write_manifest(Path(scratch), {"data_source": DATA_SOURCE, "sources": sources, "counts": counts})
        for path in sorted(Path(scratch).iterdir(), key=lambda p: p.suffix, reverse=True):
            shutil.move(path, args.output_dir / path.name)
    for split, count in counts.items():
        print(f"{args.output_dir / split}.parquet: {count['rows']} rows, {count['left_out']} left out")


if __name__ == "__main__":
    run_command(main)
