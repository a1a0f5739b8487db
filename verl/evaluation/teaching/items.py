"""The questions of an evaluation: rows of data files that have a ground truth, each with a name of its own.

One decision: of more rows than are wanted, those are taken whose names hash lowest. So the choice depends neither on
the order of the files nor on a seed, and the questions of a small evaluation are among those of a larger one.

    >>> items = load_items(["test.parquet"], most=256, option="--data")
    >>> items.chosen[0].task.ground_truth, items.without_truth
    ('85', 0)
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl.classmate.errors import ConfigError
from verl.classmate.row import Task
from verl.classmate.seeds import row_key
from verl.data_preprocessing.taught_dataset import has_truth
from verl.teaching.templates import Messages


@dataclass(frozen=True, kw_only=True)
class Item:
    """One question."""

    name: str
    """Its own in this evaluation: the data source and the row's number."""
    task: Task
    """What is asked, and the ground truth."""
    messages: tuple[Mapping[str, str], ...]
    """The row's whole chat."""

    @property
    def question(self) -> str:
        """What a student is asked."""
        return str(self.task.question)


@dataclass(frozen=True, kw_only=True)
class Items:
    """The questions of some files."""

    chosen: tuple[Item, ...]
    """Those that are asked, in the order of the files; at least one."""
    rows: int
    """In the files."""
    without_truth: int
    """Rows that are left out since nobody knows their answers."""
    files: tuple[str, ...]
    """Their names."""

    def digest(self) -> str:
        """Sha256 of all that is asked."""
        told = "\x00".join(f"{one.name}\x01{one.question}\x01{one.task.ground_truth}" for one in self.chosen)
        return hashlib.sha256(told.encode()).hexdigest()


def load_items(
    files: Sequence[str],
    *,
    option: str,
    most: int | None = None,
    prompt_key: str = "prompt",
    without: frozenset[str] = frozenset(),
) -> Items:
    """The questions of data files.

    Args:
        files: parquet, or JSON lines.
        option: who named them, for messages.
        most: how many are wanted; None: all.
        prompt_key: the column with the chat.
        without: questions that are left out.

    Raises:
        ConfigError: a file that cannot be read, has no rows or lacks a column, or no row with a ground truth.
    """
    rows = [row for name in files for row in _rows(option, name, prompt_key)]
    known = [row for row in rows if has_truth(row)]
    if not known:
        raise ConfigError(
            f"{option}: no row of {', '.join(files)} has a ground truth (reward_model.ground_truth), which answers are "
            "compared with; name another file"
        )
    items = [one for one in _named(known, prompt_key) if one.question not in without]
    if not items:
        raise ConfigError(f"{option}: all questions of {', '.join(files)} are evaluated on; name another file")
    if most is not None and len(items) > most:
        wanted = {one.name for one in sorted(items, key=lambda one: row_key("evaluation", one.name))[:most]}
        items = [one for one in items if one.name in wanted]
    return Items(chosen=tuple(items), rows=len(rows), without_truth=len(rows) - len(known), files=tuple(files))


def _named(rows: Sequence[Mapping[str, Any]], prompt_key: str) -> list[Item]:
    """Rows as items; where two have one number they are named by their place."""
    numbers = [(row["extra_info"] or {}).get("index") if "extra_info" in row else None for row in rows]
    sources = [str(row.get("data_source")) for row in rows]
    uses = Counter(zip(sources, map(str, numbers), strict=True))
    unique = all(number is not None for number in numbers) and max(uses.values()) == 1
    items = []
    for place, (row, number, source) in enumerate(zip(rows, numbers, sources, strict=True)):
        index = number if unique else place
        messages = tuple({"role": str(turn["role"]), "content": str(turn["content"])} for turn in row[prompt_key])
        task = Task(
            question=messages[-1]["content"],
            data_source=source,
            reward_model=dict(row["reward_model"]),
            extra_info={**(row.get("extra_info") or {}), "index": index},
        )
        items.append(Item(name=f"{source}/{index}", task=task, messages=messages))
    return items


def _rows(option: str, name: str, prompt_key: str) -> list[dict[str, Any]]:
    import pyarrow.json
    import pyarrow.parquet

    path = Path(name).expanduser()
    kind = "JSON lines" if path.suffix in (".json", ".jsonl") else "parquet"
    try:
        table = pyarrow.json.read_json(path) if kind == "JSON lines" else pyarrow.parquet.read_table(path)
    except Exception as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else type(error).__name__
        raise ConfigError(f"{option}: {name} cannot be read as {kind} ({reason}); name another file") from error
    if not table.num_rows:
        raise ConfigError(f"{option}: {name} has no rows; name another file")
    if missing := [column for column in (prompt_key, "reward_model") if column not in table.column_names]:
        raise ConfigError(
            f"{option}: {name} has no column {missing[0]}; name a file with the columns data_source, {prompt_key}, "
            "reward_model and extra_info"
        )
    rows: list[dict[str, Any]] = table.to_pylist()
    for number, row in enumerate(rows):
        if not _is_chat(row[prompt_key]):
            raise ConfigError(f"{option}: row {number} of {name} has no chat in {prompt_key}; write a list of turns")
    return rows


def _is_chat(value: Any) -> bool:
    turns = value if isinstance(value, list) else []
    return bool(turns) and all(isinstance(turn, dict) and {"role", "content"} <= turn.keys() for turn in turns)


def chat_of(item: Item) -> Messages:
    """An item's own chat."""
    return [dict(turn) for turn in item.messages]
