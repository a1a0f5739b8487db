"""Where the records of a data set come from: files of the user's, or a split of a data set on the hub.

Decision: both go through `datasets`. A JSONL file is loaded as lines of text, which are then parsed one by one, so that
a line that is no JSON object costs this one record, with its number, and not the file.

    for record in read([LocalFile(path=Path("train.jsonl"))], part="train"):
        record.place     # 'train.jsonl line 1'
        record.fields    # {'question': '...', 'answer': '...'}, or None, with the reason in record.problem
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from verl.data_preprocessing.common import sha256_of

HUB_TIMEOUT_S = 8


@dataclass(frozen=True, kw_only=True)
class Record:
    """One record of a source, be it usable or not."""

    part: str
    """The part of the data set that it comes from, for example `train`."""
    index: int
    """Its number within the part, over all files, counted from 0 and over broken records too."""
    place: str
    """Where a person finds it."""
    fields: Mapping[str, Any] | None
    """What it holds; None if that is no object with named fields."""
    problem: str | None = None
    """Why `fields` is None."""

    def text(self, name: str, *, strip: bool = True) -> str:
        """A field that must be a text that is not blank, without blanks around it unless `strip` is false.

        Raises:
            ValueError: it is not.
        """
        value = (self.fields or {}).get(name)
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"no text in the field {name}")
        return value.strip() if strip else value

    def texts(self, name: str) -> list[str]:
        """A field that must be a list of texts; it may be empty, and so may they.

        Raises:
            ValueError: it is not.
        """
        value = (self.fields or {}).get(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ValueError(f"no list of texts in the field {name}")
        return value


@dataclass(frozen=True, kw_only=True)
class LocalFile:
    """A JSONL file (also compressed, `.gz`) or a parquet file."""

    path: Path
    """Where it is."""

    def identity(self) -> dict[str, Any]:
        """What must be the same for the same data to come out, wherever the file lies."""
        return {"sha256": sha256_of(self.path)}

    def provenance(self) -> dict[str, Any]:
        """The source as the manifest names it."""
        return {"file": self.path.name, **self.identity()}


@dataclass(frozen=True, kw_only=True)
class HubSplit:
    """One split of a data set on the hub."""

    repo: str
    """Its name there."""
    config: str | None = None
    """The configuration, where it has several."""
    split: str = "train"
    """The split."""
    revision: str = "main"
    """Branch, tag or commit."""

    def identity(self) -> dict[str, Any]:
        """What must be the same for the same data to come out."""
        return self.provenance()

    def provenance(self) -> dict[str, Any]:
        """The source as the manifest names it."""
        return {"hub": self.repo, "config": self.config, "split": self.split, "revision": self.revision}


Source = LocalFile | HubSplit


def check_files(paths: Iterable[Path]) -> None:
    """Raises ValueError naming the first path that is no file or has nothing in it."""
    for path in paths:
        if not path.is_file():
            raise ValueError(f"{path} does not exist: --local_file and --val_file take JSONL or parquet files")
        if path.stat().st_size == 0:
            raise ValueError(f"{path} is empty: it must hold one JSON object a line, or be a parquet file")


def resolve(sources: Sequence[Source]) -> list[Source]:
    """The sources with the commit in place of each revision; with `HF_HUB_OFFLINE` a revision stays as it is.

    Raises:
        ValueError: the hub does not answer within seconds; `datasets` alone would try for most of a minute.
    """
    commits: dict[tuple[str, str], str] = {}
    for source in sources:
        if isinstance(source, HubSplit) and (source.repo, source.revision) not in commits:
            commits[source.repo, source.revision] = _commit(source)
    return [replace(s, revision=commits[s.repo, s.revision]) if isinstance(s, HubSplit) else s for s in sources]


def read(sources: Sequence[Source], *, part: str) -> Iterator[Record]:
    """The records of the sources, one after another, with a progress bar for each on a terminal.

    Raises:
        ValueError: a source cannot be read at all.
    """
    index = 0
    for source in sources:
        for number, (fields, problem) in enumerate(_rows(source), start=1):
            if fields is not None or problem is not None:
                yield Record(part=part, index=index, place=_place(source, number), fields=fields, problem=problem)
            index += 1


def _place(source: Source, number: int) -> str:
    lines = isinstance(source, LocalFile) and source.path.suffix != ".parquet"
    return f"{_name(source)} {'line' if lines else 'row'} {number}"


def _name(source: Source) -> str:
    if isinstance(source, LocalFile):
        return source.path.name
    return " ".join(name for name in (source.repo, source.config, source.split) if name)


def _rows(source: Source) -> Iterator[tuple[Mapping[str, Any] | None, str | None]]:
    """Fields of each row, or what is wrong with it; (None, None) for an empty line."""
    import datasets

    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    if isinstance(source, HubSplit):
        yield from ((row, None) for row in _bar(source, _load_hub(source)))
    elif source.path.suffix == ".parquet":
        yield from ((row, None) for row in _bar(source, _load_file(source, "parquet")))
    else:
        # latin-1 keeps every byte, so that a line that is no UTF-8 is a broken record and not a broken file.
        lines = _load_file(source, "text", encoding="latin-1")
        yield from (_parse(row["text"]) for row in _bar(source, lines))


def _bar(source: Source, rows: Iterable[Any]) -> Iterable[Any]:
    from tqdm import tqdm

    total = None
    if isinstance(source, LocalFile) and source.path.suffix == ".jsonl":
        with source.path.open("rb") as file:
            total = sum(1 for _ in file)
    # With `disable=None` there is a bar on a terminal only; the length of what comes from the hub is known.
    return tqdm(rows, total=total, desc=_name(source), unit=" rows", leave=False, disable=None)


def _parse(line: str) -> tuple[Mapping[str, Any] | None, str | None]:
    if not line.strip():
        return None, None
    try:
        fields = json.loads(line.encode("latin-1").decode("utf-8-sig"))
    except UnicodeDecodeError:
        return None, "not UTF-8"
    except ValueError as error:
        return None, f"no JSON ({error})"
    return (fields, None) if isinstance(fields, dict) else (None, "no JSON object")


def _load_file(source: LocalFile, builder: str, **options: Any) -> Iterator[dict[str, Any]]:
    from datasets import load_dataset

    try:
        # Streaming leaves no second copy of the file in a cache.
        stream = load_dataset(builder, data_files=str(source.path), split="train", streaming=True, **options)
        for columns in stream.iter(batch_size=1000):
            for values in zip(*columns.values(), strict=True):
                yield dict(zip(columns, values, strict=True))
    except Exception as error:
        raise ValueError(
            f"{source.path} cannot be read as {'parquet' if builder == 'parquet' else 'lines of JSON'} "
            f"({type(error).__name__}): give a JSONL or parquet file"
        ) from error


def _load_hub(source: HubSplit) -> Iterable[Any]:
    from datasets import load_dataset

    try:
        return load_dataset(source.repo, source.config, split=source.split, revision=source.revision)
    except Exception as error:
        raise ValueError(_unreachable(source, error)) from error


def _commit(source: HubSplit) -> str:
    from huggingface_hub import HfApi
    from huggingface_hub.constants import HF_HUB_OFFLINE

    if HF_HUB_OFFLINE:
        return source.revision
    try:
        return HfApi().dataset_info(source.repo, revision=source.revision, timeout=HUB_TIMEOUT_S).sha or source.revision
    except Exception as error:
        raise ValueError(_unreachable(source, error)) from error


def _unreachable(source: HubSplit, error: Exception) -> str:
    # Every layer below (HTTP client, hub, datasets) has exceptions of its own for this, hence the broad clauses above.
    return (
        f"{source.repo} could not be loaded from the hub ({type(error).__name__}): check the network and --revision, "
        "or give a local copy with --local_file FILE.jsonl (--local_dir for all sets)"
    )
