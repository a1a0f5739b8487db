"""The numbers of a run in a small file, to be shown beside those of another one.

>>> write(Path("baseline.json"), stored)
>>> read(Path("baseline.json")).after.policy.value
0.84
"""

import dataclasses
import errno
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from verl.classmate.errors import ConfigError
from verl.classmate.read_back import checked, read_back
from verl.evaluation.validations import Numbers, Reader, Score, Validation
from verl.trainer.run.state import read_state, write_atomically

SCHEMA = 1
"""Version of the file."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """What is kept of a run."""

    command: str
    """How it was started."""
    day: str
    """When it ended."""
    commit: str
    """The code that stood there when the file was written."""
    problems: str
    """Which problems the validation asked (`Validation.problems`)."""
    before: Numbers
    """Of the first validation."""
    after: Numbers
    """Of the last one."""


def of_run(run: Path, before: Validation, after: Validation, *, command: str) -> Stored:
    """What is to be kept of a run."""
    last = (run / "val_preds" / f"step_{after.step}.jsonl").stat().st_mtime
    ended = (read_state(run) or {}).get("at") or date.fromtimestamp(last).isoformat()
    return Stored(
        command=command,
        day=str(ended)[:10],
        commit=_commit(),
        problems=after.problems,
        before=before.numbers,
        after=after.numbers,
    )


def write(file: Path, stored: Stored) -> None:
    """Writes the file. Raises ConfigError if it cannot."""
    try:
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        # Only ASCII, so that it reads the same in every locale.
        text = json.dumps({"schema": SCHEMA, **dataclasses.asdict(stored)}, indent=2)
        write_atomically(file, text + "\n")
    except OSError as error:
        raise ConfigError(f"--write {file} cannot be written ({error.strerror}); name a file that can") from error


def read(file: Path) -> Stored:
    """Reads what `write` wrote.

    Raises:
        ConfigError: it cannot be read, or is something else.
    """
    again = "make it again by --write"
    try:
        content = json.loads(file.read_bytes())
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise ValueError(f"it is no file of this version, schema {SCHEMA}")
        names = ("command", "day", "commit", "problems")
        before, after = _numbers(content, "before"), _numbers(content, "after")
        return read_back(Stored, content, {name: name for name in names}, before=before, after=after)
    except OSError as error:
        raise ConfigError(f"--beside {file} cannot be read ({error.strerror}); {again}") from error
    except KeyError as error:
        raise ConfigError(f"--beside {file} is damaged (no {error.args[0]}); {again}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--beside {file} is damaged ({error}); {again}") from error


def _numbers(content: Mapping[str, Any], where: str) -> Numbers:
    told = checked(Mapping[str, Any], content[where], where)
    readers = checked(Mapping[str, Any], told["readers"], f"{where}.readers")
    return read_back(
        Numbers,
        told,
        {name: name for name in ("step", "rows", "response_tokens")},
        where=f"{where}.",
        policy=_score(told, "policy", where),
        readers={name: _reader(readers, name, f"{where}.readers") for name in readers},
    )


def _reader(content: Mapping[str, Any], name: str, where: str) -> Reader:
    told = checked(Mapping[str, Any], content[name], f"{where}.{name}")
    role = told["role"]
    if role not in ("classmate", "unseen"):
        raise ValueError(f"{where}.{name}.role is {role!r}, not classmate or unseen")
    return Reader(role=role, score=_score(told, "score", f"{where}.{name}"))


def _score(content: Mapping[str, Any], name: str, where: str) -> Score:
    told = checked(Mapping[str, Any], content[name], f"{where}.{name}")
    return read_back(Score, told, {"value": "value", "rows": "rows"}, where=f"{where}.{name}.")


def _commit() -> str:
    """The commit of this checkout, with a mark if files of it have changed; `unknown` outside of one."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    except OSError:
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 and done.stdout.strip() else "unknown"
