"""The prompts of the data as chats: samples of them, and whether every one asks something.

>>> chats = chat_samples(config["data"])
>>> chats[0].roles
('system', 'user')
>>> check_chats(chats)                                        # raises ConfigError
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from verl.classmate.errors import ConfigError
from verl.trainer.preflight.data import KEYS, data_files
from verl.trainer.preflight.tables import column_chunks

_FIRST_ROWS = 8
"""Chats of each file that are looked at, whatever their roles."""


@dataclass(frozen=True, kw_only=True)
class Chat:
    """The prompt of one row."""

    key: str
    """`train_files` or `val_files`."""
    file: str
    """Its file."""
    row: int
    """Its row there, from 0."""
    messages: tuple[Mapping[str, Any], ...]
    """As the dataset has them."""

    @property
    def roles(self) -> tuple[str, ...]:
        """Who speaks, turn by turn."""
        return tuple(str(message.get("role")) for message in self.messages)


def chat_samples(data: Mapping[str, Any]) -> list[Chat]:
    """Prompts of the local files: the first few of each, and one of each sequence of roles, with and without text, that
    occurs in it.

    Empty where a dataset class of the user's makes the rows.
    """
    if data["custom_cls"]["path"] is not None:
        return []
    return [
        Chat(key=key, file=name, row=row, messages=messages)
        for key in KEYS
        for name in data_files(data, key)
        if "://" not in name
        for row, messages in sampled_chats(name, data["prompt_key"])
    ]


@lru_cache(maxsize=16)
def sampled_chats(name: str, prompt_key: str) -> tuple[tuple[int, tuple[Mapping[str, Any], ...]], ...]:
    """(row, messages) of a file: the first few, and one of each sequence of roles, with and without text, that occurs
    in it. All roles are read, but only the samples' contents."""
    sampled, known, first = [], set(), 0
    for chats in column_chunks(Path(name), prompt_key):
        turns = list(zip(chats.values.field("role").to_pylist(), _are_blank(chats.values), strict=True))
        bounds = chats.offsets.to_pylist()
        for i, (begin, end) in enumerate(pairwise(bounds)):
            sequence = tuple(turns[begin:end])
            if first + i < _FIRST_ROWS or sequence not in known:
                sampled.append((first + i, tuple(chats[i].as_py() or ())))
            known.add(sequence)
        first += len(chats)
    return tuple(sampled)


def _are_blank(turns: Any) -> list[bool]:
    """Of turns as an Arrow array: whether each lacks a text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if turns.type.get_field_index("content") < 0:
        return [True] * len(turns)
    content = turns.field("content")
    if pa.types.is_string(content.type) or pa.types.is_large_string(content.type):
        return pc.equal(pc.utf8_trim_whitespace(content), "").fill_null(True).to_pylist()
    return content.is_null().to_pylist()


def check_chats(chats: Sequence[Chat]) -> None:
    """Every prompt asks something.

    Raises:
        ConfigError: naming file and row.
    """
    for chat in chats:
        reason = _empty(chat.messages)
        if reason is not None:
            raise ConfigError(
                f"data.{chat.key}={chat.file}, row {chat.row}: its prompt is empty ({reason}); take the row out, or "
                "write its text"
            )


def _empty(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """Why a prompt is empty; None if it is not."""
    if not messages:
        return "no turns"
    for message in messages:
        if message.get("content") is None and not message.get("tool_calls"):
            return f"the {message.get('role')} turn has content null"
    contents = [message.get("content") for message in messages]
    if all(not content or (isinstance(content, str) and not content.strip()) for content in contents):
        return "no turn has a text"
    return None
