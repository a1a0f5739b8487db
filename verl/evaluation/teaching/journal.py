"""What an evaluation has found out so far, on disk, so that one that was ended goes on where it stopped.

One decision: a line is one answered unit under its key, and the file begins with all that the answers follow from. A
file that begins otherwise is of another evaluation, and is written anew.

    >>> with Journal.open(Path("evaluation.partial.jsonl"), settings) as journal:
    ...     journal.get("teacher|weak|3|sampled|0")
    ...     journal.put("teacher|weak|3|sampled|0", {"text": "Remember the carry."})
"""

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from verl.classmate.errors import ConfigError


class Journal:
    """An open file of answered units."""

    def __init__(self, path: Path, found: dict[str, Any], file: TextIO) -> None:
        """`found`: the units that are in the file, which is open at its end."""
        self._path = path
        self._found = found
        self._file = file
        self.reused = len(found)
        """Units that an earlier start has left."""

    @classmethod
    def open(cls, path: Path, settings: Any) -> "Journal":
        """The journal of an evaluation with these settings, which is begun anew where it is of others.

        Raises:
            ConfigError: it cannot be written.
        """
        head = json.dumps(settings, sort_keys=True, default=str)
        found: dict[str, Any] = {}
        whole = 0
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        for number, line in enumerate(lines):
            try:
                content = json.loads(line)
            except ValueError:
                break  # cut off when the process was ended
            if not line.endswith(b"\n") or (number == 0 and content != json.loads(head)):
                break
            if number:
                found[content[0]] = content[1]
            whole += len(line)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                file.truncate(whole)
            opened = path.open("a", encoding="utf-8")
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ConfigError(f"--output: {path} cannot be written ({reason}); name a file elsewhere") from error
        if not whole:
            opened.write(f"{head}\n")
        return cls(path, found, opened)

    def get(self, key: str) -> Any | None:
        """What is known of a unit."""
        return self._found.get(key)

    def put(self, key: str, value: Any) -> None:
        """Keeps an answered unit."""
        self._found[key] = value
        self._file.write(f"{json.dumps([key, value])}\n")
        self._file.flush()

    def remove(self) -> None:
        """Ends it: the evaluation's own file says all."""
        self._file.close()
        self._path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
