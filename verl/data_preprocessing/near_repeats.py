"""Rows that nearly repeat a held-out one: the same request in another form of words, or with a word changed.

Decision: texts are compared by what they say three words at a time, and it is the row to train on that goes, so that a
test split stays what it was. What more than a few dozen rows share is the form of a template and says nothing.
Two texts with different numbers, or two tasks with different answers, are two tasks, as most problems are that somebody
made out of one; so are short texts unless their words are the same.

    >>> splits, lost = without_near_repeats({"train": train, "dev": dev, "test": test})
    >>> lost
    {'train': 86, 'dev': 10}
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from verl.data_preprocessing.splits import Task

HELD_OUT = ("test", "dev", "warmup_dev")
"""Splits that no other one may repeat, in the order in which they are kept; those to train on may repeat each other."""

LIKE = 0.5
"""Jaccard similarity from which two texts are near repeats."""

WITHIN = 0.8
"""Share of the shorter text's shingles in the longer one from which they are too."""

FEWEST = 16
"""With fewer shingles that count, one word makes another task ("a synonym of happy", "a synonym of sad")."""

FORM = 50
"""A shingle in more rows belongs to a form. This also bounds the rows that each row is compared with."""

_SHINGLE = 3

_WORD = re.compile(r"\w+")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")

Shingle = tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Text:
    """A task as it is compared."""

    task: Task
    """What it is of."""
    shingles: frozenset[Shingle]
    """Those that count; of a short text all of its words as one."""
    kind: tuple[object, ...]
    """Texts of different kinds are no repeats of each other: short or not, answer, numbers."""

    def repeats(self, other: "_Text", both: int) -> bool:
        """Whether a text of the same kind that has `both` of the shingles is a near repeat."""
        sizes = len(self.shingles), len(other.shingles)
        return both >= LIKE * (sum(sizes) - both) or both >= WITHIN * min(sizes)


def without_near_repeats(splits: Mapping[str, Sequence[Task]]) -> tuple[dict[str, list[Task]], dict[str, int]]:
    """The splits without rows that nearly repeat one of a held-out split, and how many each lost, where any.

    Raises:
        ValueError: a split would be empty.
    """
    texts = _texts(splits)
    index: dict[tuple[object, Shingle], list[_Text]] = defaultdict(list)

    def is_repeat(text: _Text) -> bool:
        both = Counter(found for shingle in text.shingles for found in index.get((text.kind, shingle), ()))
        return any(text.repeats(found, count) for found, count in both.items())

    kept: dict[str, list[Task]] = {}
    order = [name for name in HELD_OUT if name in splits]
    for name in [*order, *(name for name in splits if name not in order)]:
        fresh = [text for text in texts[name] if not is_repeat(text)]
        if texts[name] and not fresh:
            raise ValueError(f"every row of the split {name} nearly repeats one that is held out: give other files")
        kept[name] = [text.task for text in fresh]
        for text in fresh if name in order else ():
            for shingle in text.shingles:
                index[text.kind, shingle].append(text)
    lost = {name: len(splits[name]) - len(kept[name]) for name in splits}
    return {name: kept[name] for name in splits}, {name: count for name, count in lost.items() if count}


def _texts(splits: Mapping[str, Sequence[Task]]) -> dict[str, list[_Text]]:
    """All tasks as they are compared."""
    words = {name: [_WORD.findall(_wording(task)) for task in tasks] for name, tasks in splits.items()}
    rows = Counter(shingle for split in words.values() for text in split for shingle in _shingles(text))
    return {
        name: [_text(task, said, rows) for task, said in zip(tasks, words[name], strict=True)]
        for name, tasks in splits.items()
    }


def _text(task: Task, words: list[str], rows: Mapping[Shingle, int]) -> _Text:
    shingles = frozenset(shingle for shingle in _shingles(words) if rows[shingle] <= FORM)
    is_short = len(shingles) < FEWEST
    answer = None if task.answer is None else " ".join(task.answer.casefold().split()).strip(" .")
    return _Text(
        task=task,
        shingles=frozenset([tuple(words)]) if is_short else shingles,
        kind=(is_short, answer, tuple(sorted(_NUMBER.findall(_wording(task))))),
    )


def _wording(task: Task) -> str:
    return (task.wording or task.key or task.question).casefold()


def _shingles(words: list[str]) -> set[Shingle]:
    return {tuple(words[i : i + _SHINGLE]) for i in range(len(words) - _SHINGLE + 1)}
