"""The best fixed advice: one text for every question, chosen on questions of the training alone.

One decision: it is chosen among what the teachers themselves wrote there, the most frequent first, and what a user
adds; saying nothing is a candidate too, worth exactly 0. So whatever the teacher gains over it is gained by reading
the question and the outline.

    >>> search = find_fixed(exam, readers_of, most=16, added=["Check your work."], ask=ask)
    >>> search.for_all.text, search.own[0].text
    ('Remember the carry.', 'Remember to borrow.')
"""

import asyncio
import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from verl.classmate.errors import ConfigError
from verl.evaluation.teaching.exam import Exam
from verl.teaching.tags import TeachingState

WROTE, ADDED, SILENT = "written", "added", "no advice"
"""Where a candidate comes from."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One advice, and what it was worth on questions of the training."""

    text: str
    """What is said; empty: nothing."""
    origin: str
    """`written` by a teacher, `added` by the user, or `no advice`."""
    times: int
    """How often the teachers wrote it."""
    gains: tuple[float | None, ...] = ()
    """Mean gain of each student; None where nothing could be measured."""

    def gain(self, readers: Sequence[int]) -> float:
        """Mean over some students; the lowest there is where one is not known."""
        found = [self.gains[r] for r in readers]
        known = [one for one in found if one is not None]
        return math.fsum(known) / len(known) if len(known) == len(found) and found else -math.inf


@dataclass(frozen=True, kw_only=True)
class FixedAdvice:
    """What the search found."""

    candidates: tuple[Candidate, ...]
    """All that were tried."""
    distinct: int
    """Teachings that the teachers wrote there, before the budget."""
    items: int
    """Questions of the training that they were tried on."""
    samples: int
    """Answers of each student to each of them."""
    for_all: Candidate
    """The best in the mean of the students that the teacher was trained with."""
    own: tuple[Candidate, ...]
    """The best for each student."""


def read_candidates(file: str | None) -> tuple[str, ...]:
    """Advice of the user's own: a JSON list of texts, or one in each line.

    Raises:
        ConfigError: the file cannot be read, or holds none.
    """
    if file is None:
        return ()
    try:
        content = Path(file).expanduser().read_text(encoding="utf-8")
        texts = json.loads(content) if file.endswith(".json") else content.splitlines()
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"--candidates {file} cannot be read ({reason}); write one advice in each line") from error
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ConfigError(f'--candidates {file} is no list of texts; write ["...", "..."], or one in each line')
    found = tuple(dict.fromkeys(text.strip() for text in texts if text.strip()))
    if not found:
        raise ConfigError(f"--candidates {file} holds no advice; write one in each line")
    return found


def candidates_of(exam: Exam, *, most: int, added: Sequence[str]) -> tuple[list[Candidate], int]:
    """What is tried, and how many distinct teachings were written: nothing, what a user added, then the most frequent.

    Args:
        exam: in which the teachers have written.
        most: of those that teachers wrote.
        added: by the user; they come on top.
    """
    times = Counter(
        told.teaching.text
        for told in exam.records.told.values()
        if told.teaching.state in (TeachingState.ok, TeachingState.empty)
    )
    written = sorted((text for text in times if text), key=lambda text: (-times[text], text))
    rest = [text for text in written if text not in added][:most]
    found = [Candidate(text="", origin=SILENT, times=times[""])]
    found += [Candidate(text=text, origin=ADDED, times=times[text]) for text in added]
    found += [Candidate(text=text, origin=WROTE, times=times[text]) for text in rest]
    return found, len(written)


def find_fixed(
    exam: Exam,
    *,
    most: int,
    added: Sequence[str],
    samples: int,
    ask: Callable[[Sequence[str]], None],
) -> FixedAdvice:
    """Tries the candidates on the exam's items, and chooses.

    Args:
        exam: on questions of the training, with baselines, and with what the teachers wrote.
        most: of those that teachers wrote.
        added: by the user.
        samples: answers to each, for the report.
        ask: asks the students what they make of these tutors' advice.
    """
    tried, distinct = candidates_of(exam, most=most, added=added)
    readers = range(len(exam.students))

    async def advise() -> None:
        for number, one in enumerate(tried):
            for r in readers:
                await exam.advise(_tutor(number), r, lambda _, text=one.text: text)  # type: ignore[misc]

    asyncio.run(advise())
    ask([_tutor(number) for number, one in enumerate(tried) if one.text])
    measured = tuple(
        Candidate(
            text=one.text,
            origin=one.origin,
            times=one.times,
            gains=tuple(_gain(exam, _tutor(number), r) for r in readers),
        )
        for number, one in enumerate(tried)
    )
    known = list(range(exam.people.trained_with))
    return FixedAdvice(
        candidates=measured,
        distinct=distinct,
        items=len(exam.items),
        samples=samples,
        for_all=max(measured, key=lambda one: one.gain(known)),
        own=tuple(max(measured, key=lambda one: one.gain([r])) for r in readers),
    )


def _tutor(number: int) -> str:
    return f"candidate/{number}"


def _gain(exam: Exam, tutor: str, reader: int) -> float | None:
    """Mean over the items of what a student gains by an advice."""
    gains = []
    for setting in exam.settings:
        for item in exam.items:
            place = (tutor, reader, item.name, setting.key)
            alone = exam.records.alone[place[1:]]
            if not alone.responses:
                continue
            if not exam.records.told[place].teaching.text:
                gains.append(0.0)
                continue
            guided = exam.records.guided[place]
            if guided.responses:
                gains.append(
                    _mean([one.score for one in guided.responses]) - _mean([one.score for one in alone.responses])
                )
    return _mean(gains) if gains else None


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
