"""Shards of a collection: a folder of JSONL files with a row a line, and beside them the prompts they were made with.

One decision: no file is ever changed. A process writes files of its own, and a line counts when it is whole; so
whatever was killed leaves at most one half line at a file's end, which readers pass over and count.

    teachings/ID                        of the run or the collection
    teachings/step_3.jsonl              a step of a training run, whole or not there
    teachings/part_1.jsonl              what one start of an offline collection has added
    teachings/templates_<hash>.yaml     the prompts of rows with this `template_hash`

    >>> found = read_shards([Path("run/teachings")])
    >>> found.rows, found.counts
    ([CollectedTeaching(...), ...], {'repeated': 0, 'cut': 1})
"""

import contextlib
import dataclasses
import os
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import yaml

from verl.classmate.errors import ConfigError
from verl.teaching.collected import CollectedTeaching
from verl.teaching.templates import Templates

FOLDER = "teachings"
"""Of a run folder."""
ID = "ID"
_PART = re.compile(r"part_([1-9][0-9]*)\.jsonl")


@dataclass(frozen=True, kw_only=True)
class Shards:
    """What some folders hold."""

    rows: list[CollectedTeaching]
    """Each row once, in the order of steps and files."""
    counts: dict[str, int]
    """`repeated` rows that were there already, and `cut` lines."""
    templates: dict[str, Templates]
    """The prompts that stand beside them, by their hash."""


def collection_id(folder: Path) -> str:
    """The id of a collection, which it gets with its first start."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / ID
    if not file.exists():
        # In one step, so that no start ever reads a half id: who comes second gets the first one's.
        own = _own_name(file)
        own.write_text(f"{secrets.token_hex(8)}\n")
        with contextlib.suppress(FileExistsError):
            os.link(own, file)
        own.unlink()
    return file.read_text().strip()


def keep_templates(folder: Path, templates: Templates) -> str:
    """Puts the prompts of rows beside them; returns their hash."""
    file = folder / f"templates_{templates.hash[:16]}.yaml"
    if not file.exists():
        content: dict[str, Any] = {"answer_format": templates.answer_format}
        for one in dataclasses.fields(templates):
            value = getattr(templates, one.name)
            if one.name.endswith("_template"):
                content[one.name] = {key: text for key, text in vars(value).items() if text is not None}
        own = _own_name(file)
        own.write_text(yaml.safe_dump(content, allow_unicode=True, sort_keys=False), encoding="utf-8")
        own.replace(file)
    return templates.hash


def _own_name(file: Path) -> Path:
    """A name beside a file that nobody else writes to, no thread of this process either."""
    return file.with_name(f".{file.name}.{secrets.token_hex(8)}")


class HasJson(Protocol):
    """A row of some kind."""

    def to_json(self) -> str:
        """Its line, without an end."""


class ShardWriter:
    """Adds rows to a folder, in a file of its own that begins with the first row."""

    def __init__(self, folder: Path) -> None:
        """Writes nothing yet."""
        self._folder = folder
        self._file: IO[bytes] | None = None

    def add(self, rows: Iterable[HasJson]) -> None:
        """Writes rows; when it returns, what kills this process cannot take them away."""
        lines = b"".join(f"{row.to_json()}\n".encode(errors="replace") for row in rows)
        if not lines:
            return
        if self._file is None:
            self._file = self._new_file()
        self._file.write(lines)
        self._file.flush()
        os.fsync(self._file.fileno())

    def _new_file(self) -> IO[bytes]:
        self._folder.mkdir(parents=True, exist_ok=True)
        taken = [int(match[1]) for file in self._folder.iterdir() if (match := _PART.fullmatch(file.name))]
        number = max(taken, default=0) + 1
        while True:
            with contextlib.suppress(FileExistsError):
                return (self._folder / f"part_{number}.jsonl").open("xb")
            number += 1

    def close(self) -> None:
        """Ends the file."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_shards(places: Sequence[Path]) -> Shards:
    """The rows of some folders and files. A run folder stands for its `teachings`.

    A row that is there twice, since two collections went on with the same work or a file was copied, is taken once: the
    one that has a reward, if the other has none.

    Raises:
        ConfigError: there are no rows, or a line is damaged that is not the last of its file.
    """
    found: dict[str, CollectedTeaching] = {}
    counts = {"repeated": 0, "cut": 0}
    templates: dict[str, Templates] = {}
    for folder, files in map(_files, places):
        for file in files:
            for row in _rows(file, counts):
                other = found.get(row.id)
                counts["repeated"] += other is not None
                if other is None or (other.reward is None and row.reward is not None):
                    found[row.id] = row
        templates |= _templates(folder)
    if not found:
        named = ", ".join(map(str, places))
        raise ConfigError(f"{named}: no teaching was collected there; train with rcl.collect.enable=true first")
    return Shards(rows=list(found.values()), counts=counts, templates=templates)


def _files(place: Path) -> tuple[Path, list[Path]]:
    """The folder of some shards, and their files."""
    place = place.expanduser()
    if place.is_file():
        return place.parent, [place]
    folder = place / FOLDER if (place / FOLDER).is_dir() else place
    if not folder.is_dir():
        raise ConfigError(f"{place} does not exist; name a folder of shards, or a run folder that has one")
    return folder, sorted(folder.glob("*.jsonl"), key=_by_number)


def _by_number(file: Path) -> tuple[str, int, str]:
    name, _, number = file.stem.rpartition("_")
    return (name, int(number), "") if number.isdigit() else (file.stem, 0, "")


def _rows(file: Path, counts: dict[str, int]) -> Iterable[CollectedTeaching]:
    # As bytes: a model may write characters that text is split at.
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield CollectedTeaching.from_json(line)
            except (ValueError, RecursionError) as error:
                if not line.endswith(b"\n"):
                    counts["cut"] += 1
                    continue
                reason = " ".join(str(error).split())[:120]
                raise ConfigError(
                    f"{file}, line {number}: not a row of a collection ({reason}); name other shards, or take the line "
                    "out"
                ) from error


def _templates(folder: Path) -> dict[str, Templates]:
    found = {}
    for file in folder.glob("templates_*.yaml"):
        try:
            templates = Templates.from_mapping(yaml.safe_load(file.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(f"{file} cannot be read; put back the one that the collection wrote") from error
        found[templates.hash] = templates
    return found
