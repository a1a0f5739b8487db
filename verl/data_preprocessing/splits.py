"""Which task goes into which split: seeded, disjoint, the same on every machine.

Decision: a split is a cut through one list of distinct tasks, so no task can be in two of them. What is random follows
from a seed and the task's number in the source alone.

    tasks = unique(tasks)[0]
    splits = by_sizes(ordered(tasks, seed=0, order="shuffle"), {"train": 8000, "dev": 1000})
"""

import random
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal

Order = Literal["shuffle", "file"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """One usable record, before it is known which split it goes into."""

    part: str
    """The part of the source that it comes from."""
    index: int
    """Its number in that part."""
    question: str
    """The task in words."""
    ground_truth: str | None = None
    """What a verifier compares with; None where a judge scores."""
    group: str = ""
    """Subject or category."""
    key: str = ""
    """What tells it from other tasks; the question where empty."""
    wording: str = ""
    """What is compared with other tasks for near repeats, without what all questions of the set share; the key where
    empty."""
    answer: str | None = None
    """The right answer in words: tasks with different ones are different tasks. None: the question alone tells."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What only this data set has."""

    @property
    def place(self) -> tuple[str, int]:
        """Where it stands in the source; no other task stands there."""
        return self.part, self.index

    @property
    def identity(self) -> str:
        """Equal for tasks that differ in nothing but blanks, case or the way a letter is encoded."""
        return " ".join(unicodedata.normalize("NFC", self.key or self.question).casefold().split())


def unique(tasks: Iterable[Task]) -> tuple[list[Task], list[Task]]:
    """The first task of each identity, and the repeats."""
    kept: dict[str, Task] = {}
    repeats = [task for task in tasks if kept.setdefault(task.identity, task) is not task]
    return list(kept.values()), repeats


def row_rng(seed: int, index: int) -> random.Random:
    """Random numbers of one row, which no other row and no order of rows changes."""
    return random.Random(f"{seed}/{index}")


def ordered(tasks: Sequence[Task], *, seed: int, order: Order) -> list[Task]:
    """The tasks in the source's order, or in one that follows from the seed."""
    in_file = sorted(tasks, key=lambda task: task.place)
    return in_file if order == "file" else random.Random(seed).sample(in_file, len(in_file))


def by_sizes(tasks: Sequence[Task], sizes: Mapping[str, int]) -> dict[str, list[Task]]:
    """Cuts the list into pieces of these sizes, in this order; what is left over is in none.

    With fewer tasks than the sizes add up to, each piece but the first is as much smaller as there are fewer tasks
    (rounded down, at least 1), and the first takes the rest.

    Raises:
        ValueError: fewer tasks than splits.
    """
    if len(tasks) < len(sizes):
        raise ValueError(f"{len(tasks)} usable rows cannot fill {len(sizes)} splits: give more rows")
    first, total = next(iter(sizes)), sum(sizes.values())
    if len(tasks) < total:
        scaled = {name: max(1, len(tasks) * size // total) for name, size in sizes.items()}
        sizes = {**scaled, first: len(tasks) - sum(size for name, size in scaled.items() if name != first)}
    pieces, start = {}, 0
    for name, size in sizes.items():
        pieces[name] = list(tasks[start : start + size])
        start += size
    return pieces


def by_tenths(tasks: Sequence[Task], *, seed: int, order: Order, most_dev: int) -> dict[str, list[Task]]:
    """Train, dev and test as 80/10/10 of all tasks and, within one row, of each group; dev holds at most `most_dev`.

    Raises:
        ValueError: fewer than ten tasks, so that a split would be empty.
    """
    if len(tasks) < 10:
        raise ValueError(f"{len(tasks)} usable rows cannot be split 80/10/10: give at least 10")
    # The groups one after another: every tenth task of the whole list is every tenth of each group too.
    grouped = sorted(ordered(tasks, seed=seed, order=order), key=lambda task: task.group)
    dev, test = grouped[4::10], grouped[9::10]
    train = [task for position, task in enumerate(grouped) if position % 10 not in (4, 9)]
    size = min(len(dev), most_dev)
    dev = [dev[position * len(dev) // size] for position in range(size)]
    # Groups are mixed again, so that the first rows of a file stand for all of it.
    return {
        name: ordered(piece, seed=seed, order=order) for name, piece in (("train", train), ("dev", dev), ("test", test))
    }


def held_out(tasks: Sequence[Task], *, seed: int, per_group: int) -> tuple[list[Task], list[Task]]:
    """The rest, and `per_group` tasks of each group, at most a fifth of it; both in the source's order."""
    out: set[tuple[str, int]] = set()
    for _, group in by_group(tasks, lambda task: task.group):
        size = min(per_group, len(group) // 5)
        out |= {task.place for task in ordered(group, seed=seed, order="shuffle")[:size]}
    in_file = ordered(tasks, seed=seed, order="file")
    return [task for task in in_file if task.place not in out], [task for task in in_file if task.place in out]


def pairs(tasks: Sequence[Task], *, seed: int, key: Callable[[Task], Any]) -> dict[int, Task]:
    """For each task's position in the list another one with the same key; a task that is alone has none."""
    positions = {task.place: position for position, task in enumerate(tasks)}
    found: dict[int, Task] = {}
    for _, group in by_group(tasks, key):
        circle = ordered(group, seed=seed, order="shuffle")
        if len(circle) > 1:
            found |= {positions[task.place]: circle[i - 1] for i, task in enumerate(circle)}
    return found


def by_group(tasks: Sequence[Task], key: Callable[[Task], Any]) -> list[tuple[Any, list[Task]]]:
    """The tasks of each key, keys in their order."""
    return [(name, list(group)) for name, group in groupby(sorted(tasks, key=key), key=key)]
