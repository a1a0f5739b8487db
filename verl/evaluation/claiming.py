"""A folder that one command at a time adds to, and that knows with which settings it was begun.

One decision: other settings need another folder, so that all rows of a folder can be compared.

    >>> with claimed(Path("teachings"), "collection.json", settings, what="collection"):
    ...     ...                                     # nobody else writes there meanwhile
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from verl.classmate.errors import ConfigError
from verl.trainer.run.state import write_atomically


@contextlib.contextmanager
def claimed(folder: Path, name: str, settings: Mapping[str, Any], *, what: str) -> Iterator[None]:
    """Makes a folder this process's own while the context is open; it is begun if there is none.

    Args:
        folder: of the rows.
        name: of the file that keeps the settings.
        settings: all that decides what a row is.
        what: the rows are called together, for messages.

    Raises:
        ConfigError: the folder is in use, or holds rows with other settings or something else.
    """
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(folder / ".lock", timeout=0))
            _claim(folder, name, settings, what)
        except Timeout as error:
            raise ConfigError(f"{folder} is in use by another {what}; wait for it or name another folder") from error
        except OSError as error:
            raise ConfigError(f"{folder} cannot be written ({error.strerror}); name a folder that can") from error
        yield


def _claim(folder: Path, name: str, settings: Mapping[str, Any], what: str) -> None:
    file = folder / name
    told = json.loads(json.dumps(settings))
    if not file.exists():
        if any(folder.glob("*.jsonl")):
            raise ConfigError(f"{folder} holds shards of something else (no {name}); name another folder")
        write_atomically(file, json.dumps(told, indent=1, sort_keys=True) + "\n")
        return
    try:
        found = json.loads(file.read_text())
    except ValueError as error:
        raise ConfigError(f"{file} is damaged; name another folder, or put it back") from error
    differing = sorted(key for key in {*found, *told} if found.get(key) != told.get(key))
    if differing:
        raise ConfigError(
            f"{folder} holds a {what} that differs in {', '.join(differing)}; name another folder, or write the "
            "old values to go on with it"
        )
