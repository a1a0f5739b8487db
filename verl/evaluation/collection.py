"""A collection on disk: what is to be collected, what is there already, and the loop that adds the rest.

One decision: a collection is known by its settings, which stand beside its shards. The same command goes on with what
is missing, in lots of questions that are written down one after the other; another teacher, student or prompt needs
another folder, so that rows of one folder can be compared.

    >>> collection = Collection.open(Path("teachings"), settings)
    >>> collection.add(run, tasks=tasks, readers=(0,), variations=variations)      # behind a progress bar
"""

import contextlib
import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl.classmate.errors import ClassmateEngineError
from verl.classmate.row import Task
from verl.evaluation.claiming import claimed
from verl.evaluation.collecting import Collector, Variation, Work, Written
from verl.evaluation.teaching.serving import Serving
from verl.teaching.collected import CollectedTeaching
from verl.teaching.lesson import StudentLesson
from verl.teaching.shards import ShardWriter, collection_id, keep_templates, read_shards
from verl.teaching.templates import Templates

SETTINGS = "collection.json"
_LOT, _LARGE_LOT = 32, 2048
"""Questions that are asked at a time: where all models run together, and where they take turns."""
_PATIENCE = 2
"""Lots in a row of which no row could be had, before a collection ends."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Asking:
    """Who is asked, and how."""

    collector: Collector
    """Makes rows."""
    serving: Serving
    """Lets the models serve."""
    students: Mapping[int, str]
    """The names of the students' frozen models, by number."""
    teacher: str | None
    """That of the teacher's; None: nobody has to write."""


@dataclass(frozen=True, kw_only=True)
class Collection:
    """A folder that is added to."""

    folder: Path
    """Where it is."""
    run: str
    """Its id."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Rows that could not be made, by the reason."""

    @classmethod
    @contextlib.contextmanager
    def open(cls, folder: Path, settings: Mapping[str, Any]) -> Iterator["Collection"]:
        """The collection of a folder, begun if there is none, and this process's own while it is open.

        Args:
            folder: of the shards.
            settings: all that decides what a row is.

        Raises:
            ConfigError: the folder is in use, or holds a collection with other settings or something else.
        """
        with claimed(folder, SETTINGS, settings, what="collection"):
            yield cls(folder=folder, run=collection_id(folder))

    def rows(self) -> list[CollectedTeaching]:
        """What is there."""
        return read_shards([self.folder]).rows if any(self.folder.glob("*.jsonl")) else []

    def missing(
        self, collector: Collector, tasks: Sequence[Task], readers: Sequence[int], variations: Sequence[Variation]
    ) -> list[Work]:
        """Rows that are not there, or that an engine or the checker failed at."""
        done = {row.id for row in self.rows() if not row.failed}
        wanted = (Work(task=task, reader=r, variation=v) for task in tasks for r in readers for v in variations)
        return [work for work in wanted if collector.id_of(work) not in done]

    def add(
        self,
        asking: Asking,
        *,
        tasks: Sequence[Task],
        variations: Sequence[Variation],
        templates: Templates,
        title: str,
    ) -> None:
        """Collects what is missing.

        Args:
            asking: who is asked.
            tasks: the questions.
            variations: the teachings of each, for each student.
            templates: of the run.
            title: for the progress bar.

        Raises:
            ClassmateEngineError: the models answer nothing any more.
        """
        from tqdm import tqdm

        for variation in variations:
            keep_templates(self.folder, variation.templates(templates))
        readers = list(asking.students)
        missing = self.missing(asking.collector, tasks, readers, variations)
        total = len(tasks) * len(readers) * len(variations)
        bar = tqdm(total=total, initial=total - len(missing), desc=title, unit="row", smoothing=0.05)
        in_vain = 0
        with bar, ShardWriter(self.folder) as writer:
            for lot in _lots(missing, _LOT if _together(asking) else _LARGE_LOT):
                rows = _ask(asking, lot)
                writer.add(rows)
                bar.update(len(lot))
                failed = sum(row.failed for row in rows) + asking.collector.take_failures()
                if failed:
                    asking.serving.heal()
                in_vain = in_vain + 1 if failed == len(lot) else 0
                if in_vain == _PATIENCE:
                    reason = asking.collector.last_error or next((row.outcome for row in rows), "no answer")
                    raise ClassmateEngineError(
                        f"the models of {self.folder} answer nothing ({reason}); the same command goes on from here"
                    )
        self.left_out.update(asking.collector.left_out)


def _lots(missing: Sequence[Work], questions: int) -> Iterator[list[Work]]:
    """Rows of so many questions at a time; those of one question are never apart."""
    lot: list[Work] = []
    seen: set[str] = set()
    for work in missing:
        if work.key not in seen and len(seen) == questions:
            yield lot
            lot, seen = [], set()
        lot.append(work)
        seen.add(work.key)
    if lot:
        yield lot


def _together(asking: Asking) -> bool:
    """Whether all models serve at the same time."""
    names = [*asking.students.values(), *([asking.teacher] if asking.teacher else [])]
    return len(asking.serving.batches(names)) <= 1


def _ask(asking: Asking, lot: Sequence[Work]) -> list[CollectedTeaching]:
    """The rows of a lot, one model after the other where they do not fit together."""
    collector, serving = asking.collector, asking.serving
    tasks = list({work.key: work.task for work in lot}.values())
    names = list(dict.fromkeys(asking.students[work.reader] for work in lot))
    lessons: dict[Any, Any] = {}
    for group in serving.batches(names):
        readers = [r for r, name in asking.students.items() if name in group]
        lessons |= serving.run(group, functools.partial(_lessons, collector, tasks, readers))
    writers = [asking.teacher] if asking.teacher else []
    written = serving.run(writers, lambda _: collector.written(lot, lessons))
    rows = []
    for group in serving.batches(names):
        theirs = [one for one in written if asking.students[one.work.reader] in group]
        rows += serving.run(group, functools.partial(_rows, collector, theirs))
    return rows


async def _lessons(
    collector: Collector, tasks: Sequence[Task], readers: Sequence[int], _: Any
) -> dict[tuple[str, int], StudentLesson]:
    return await collector.lessons(tasks, readers)


async def _rows(collector: Collector, written: Sequence[Written], _: Any) -> list[CollectedTeaching]:
    return await collector.rows(written)
