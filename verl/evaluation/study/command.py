"""What the commands of studies share: how seeds are written, one command at a time, and the work with its messages."""

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn, Protocol

from filelock import FileLock, Timeout

from verl.evaluation.study.work import Task, do_all

MOST_SEEDS = 1000
"""In one range; more are a slip of the hand."""
LARGEST_SEED = 2**31 - 1
"""What every library takes."""


class Plan(Protocol):
    """What is left to do of a study."""

    @property
    def tasks(self) -> Sequence[Task]:
        """In an order in which little waits."""

    @property
    def runs(self) -> Sequence[object]:
        """All runs of the study."""

    @property
    def there(self) -> int:
        """Runs whose result is there."""

    @property
    def stale(self) -> Sequence[str]:
        """Names of runs whose result is out of date."""


class StudyParser(argparse.ArgumentParser):
    """Raises ValueError for a user's mistake, in one line."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; --help shows how it is written")


def seeds_of(text: str) -> tuple[int, ...]:
    """`11,12` or `11-14`, in any mixture.

    Raises:
        ValueError: anything else.
    """
    found: list[int] = []
    for piece in text.replace(" ", ",").split(","):
        first, dash, last = piece.partition("-")
        if not piece.isascii() or not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"--seeds {text}: write for instance 11,12 or 11-14")
        if max(len(first), len(last)) > len(str(LARGEST_SEED)) or int(last or first) > LARGEST_SEED:
            raise ValueError(f"--seeds {text}: a seed is at most {LARGEST_SEED}")
        if int(last or first) - int(first) >= MOST_SEEDS:
            raise ValueError(f"--seeds {text}: these are more than {MOST_SEEDS}; write fewer")
        found += range(int(first), int(last or first) + 1)
    if not found:
        raise ValueError(f"--seeds {text}: names no seed; write the lower one first")
    return tuple(dict.fromkeys(found))


def no_such(kind: str, name: str, known: Sequence[str]) -> str:
    """What to say of a name that is none."""
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"no {kind} {name}; " + (f"did you mean {near[0]}?" if near else f"use one of {', '.join(known)}")


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One command at a time works in a study's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", timeout=0):
            yield
    except Timeout:
        raise ValueError(f"{folder} is in use by another command; wait for it, or name another --output_dir") from None


def check_writable(folder: Path) -> None:
    """Says at once what would else be found out when the first run has been trained."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def carry_out(plan: Plan, *, title: str, folder: Path, jobs: int) -> int:
    """Does what is left of a study behind one progress bar, and says how it went. Returns the exit code."""
    print(f"{title}: {len(plan.runs)} runs, {plan.there} there; runs in {folder}")
    if plan.stale:
        print(f"stale, made again: {'; '.join(plan.stale)}")
    try:
        failed = do_all(plan.tasks, jobs=jobs, title=title)
    except KeyboardInterrupt:
        print("error: stopped; the same command goes on with what is left", file=sys.stderr)
        return 130
    if failed:
        print(f"error: {len(failed)} failed; the same command tries them again", file=sys.stderr)
    return int(bool(failed))
