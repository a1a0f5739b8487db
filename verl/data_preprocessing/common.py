"""What all data sets share: the row format, parquet files, hashes and the manifest beside them.

Decision: a folder of data counts as whole only when its `manifest.json` is there and every hash in it agrees. The
manifest is written last, so that an interrupted build is never taken for a finished one.

    rows = [make_row(data_source="openai/gsm8k", question="2+2?", ground_truth="4", split="train", index=0)]
    write_parquet(rows, folder / "train.parquet")
    write_manifest(folder, {"rows": 1})
    assert read_manifest(folder)["rows"] == 1
"""

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

MANIFEST_NAME = "manifest.json"


def make_row(
    *,
    data_source: str,
    question: str,
    ground_truth: str | None,
    split: str,
    index: int,
    ability: str = "math",
    instruction: str = "",
    separator: str = " ",
    hint: str | None = None,
    actual_ground_truth: str | None = None,
    reward_model: Mapping[str, Any] | None = None,
    extra_info: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """One row of a parquet file (docs/data.md#rows).

    Args:
        data_source: exact name of the verifier that scores the row.
        question: the task in words, as a monitor sees it (without hint and instruction).
        ground_truth: what the verifier compares with; None where a judge scores.
        hint: a sentence of the user's that comes after the question.
        instruction: the wanted answer format; comes last in the prompt.
        separator: between these three parts of the prompt.
        actual_ground_truth: the true answer; the ground truth unless given.
        reward_model, extra_info: further keys of these two fields.
    """
    without_hint = separator.join(part for part in (question, instruction) if part)
    content = separator.join(part for part in (question, hint, instruction) if part)
    return {
        "data_source": data_source,
        "prompt": [{"role": "user", "content": content}],
        "ability": ability,
        "reward_model": {
            "style": "rule",
            "ground_truth": ground_truth,
            "raw_question_for_monitor": question,
            "hint_str_for_monitor": hint,
            "prompt_without_hint": without_hint if hint else None,
            "actual_ground_truth": ground_truth if actual_ground_truth is None else actual_ground_truth,
            **(reward_model or {}),
        },
        "extra_info": {"split": split, "index": index, **(extra_info or {})},
    }


def write_parquet(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Writes rows as one parquet file. Raises ValueError when there is none, since verl cannot load an empty file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not rows:
        raise ValueError(f"no rows to write to {path}: check the input file and the row limits")
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), path)


def sha256_of(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path, content: Mapping[str, Any]) -> None:
    """Writes `manifest.json` with `content` and the hash of every other file below `folder`."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST_NAME)
    hashes = {p.relative_to(folder).as_posix(): sha256_of(p) for p in files}
    partial = folder / (MANIFEST_NAME + ".partial")
    partial.write_text(json.dumps({**content, "sha256": hashes}, indent=2, ensure_ascii=False) + "\n")
    partial.replace(folder / MANIFEST_NAME)


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a whole folder; None when it is missing, unreadable, or a file it lists is missing or changed."""
    try:
        manifest = json.loads((folder / MANIFEST_NAME).read_text())
        whole = all(sha256_of(folder / name) == digest for name, digest in manifest["sha256"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return manifest if whole else None


def run_command(main: Callable[[], None]) -> None:
    """Runs a command line's main function; a ValueError or OSError ends it in one line, exit code 1."""
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {' '.join(str(error).split())}")
