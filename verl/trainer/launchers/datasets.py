"""From a data set as users name it to files of rows: parquet as it is, anything else through the preparer.

One decision: what a run reads is always parquet. A data set that is none (a hub name, JSON lines) is prepared by a
command of its own before the run, into a folder named after the set, its format and what the rows are for.

    >>> how = Preparation(rows="teacher_rl", data=Path("data"), data_format="gsm8k", kind="rcl")
    >>> rows_of(["openai/gsm8k"], how).train
    ('data/teaching/openai_gsm8k-gsm8k-teacher_rl-rcl/train.parquet',)
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from verl.classmate.errors import ConfigError
from verl.trainer.launchers.steps import Step

PREPARER = "verl.data_preprocessing.teaching_rows"
"""Makes rows of a data set."""

TRAIN = "train.parquet"
HELD_OUT = ("test.parquet", "val.parquet")
"""Files of a prepared folder."""


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """How rows are made of a data set; the preparer's options."""

    rows: str
    """What they are for, `Phase.rows`."""
    data: Path
    """Folder of prepared sets."""
    data_format: str = "custom"
    """How the set's columns are read; the config's `data.format`."""
    kind: str = "auto"
    """rcl, rlt or auto: which reward's; `data.kind`."""
    tokenizer: str | None = None
    """The student's, where thoughts are cut to advice; `data.tokenizer`."""
    templates: Path | None = None
    """File of the run's templates, where its rows are written in them; `data.templates`."""
    max_teaching_tokens: int | None = None
    """Most tokens of such advice; `data.max_teaching_tokens`."""

    def argv(self, source: str, folder: Path) -> tuple[str, ...]:
        """The command."""
        options = {
            "rows": self.rows,
            "format": self.data_format,
            "dataset": source,
            "output_dir": folder,
            "kind": self.kind,
            "tokenizer": self.tokenizer,
            "templates": self.templates,
            "max_teaching_tokens": self.max_teaching_tokens,
        }
        words = [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
        return (sys.executable, "-m", PREPARER, *words)


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Files of a run, and what makes them."""

    train: tuple[str, ...]
    """To train on."""
    val: tuple[str, ...] = ()
    """To validate on; empty where nobody named any."""
    step: Step | None = None
    """Makes them; None where they are there."""


def rows_of(named: Sequence[str], how: Preparation) -> Rows:
    """The rows of a data set.

    Args:
        named: parquet files, a folder of them, one file of JSON lines, or one name of the hub.
        how: what is made of it, where it is no parquet.

    Raises:
        ConfigError: a file is not there, or several sets are named that are not parquet.
    """
    ready = [_ready(one) for one in named]
    if all(one is not None for one in ready):
        found = [one for one in ready if one is not None]
        return Rows(train=tuple(one.train[0] for one in found), val=tuple(file for one in found for file in one.val))
    if len(named) > 1:
        raise ConfigError(
            f"dataset_id_or_path=[{','.join(named)}]: a list may hold parquet files only; write one data set"
        )
    path = Path(named[0]).expanduser()
    if not path.exists() and (named[0].startswith((".", "/", "~")) or path.suffix in (".json", ".jsonl")):
        raise ConfigError(f"dataset_id_or_path={named[0]} does not exist; name a file, a folder or a set of the hub")
    return prepared(str(path.resolve()) if path.exists() else named[0], how)


def _ready(name: str) -> Rows | None:
    """Rows that need no preparation; None for what has to be prepared."""
    path = Path(name).expanduser()
    if path.is_dir() and (path / TRAIN).is_file():
        held_out = [str(path / file) for file in HELD_OUT if (path / file).is_file()]
        return Rows(train=(str(path / TRAIN),), val=tuple(held_out[:1]))
    if name.endswith(".parquet"):
        return Rows(train=(str(path),))
    return None


def prepared(source: str, how: Preparation) -> Rows:
    """The rows that the preparer makes of a data set, which need not be there yet."""
    slug = re.sub(r"[^A-Za-z0-9.-]+", "_", source).strip("_")[-80:]
    folder = how.data / "teaching" / f"{slug}-{how.data_format}-{how.rows}-{how.kind}"
    return Rows(
        train=(str(folder / TRAIN),),
        val=(str(folder / HELD_OUT[0]),),
        step=Step(title=f"prepares {source}", argv=how.argv(source, folder)),
    )
