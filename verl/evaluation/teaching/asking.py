"""Asks units, with a bar: never twice what was answered, and once more what failed.

One decision: a unit that was answered is never asked again, neither by this start nor by the next one after this was
ended. What failed is asked once more when its engine was looked after; what fails again is counted, and is no score.

    >>> unit = Unit("test|alone|0|gsm8k/3|sampled|0", ask, ANSWERS).goes_to(records.alone, (0, "gsm8k/3", "sampled|0"))
    >>> Asking(serving, journal).ask("students alone", ["classmate/0"], [unit])
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Self, TextIO, TypeVar

from tqdm import tqdm

from verl.classmate.outcome import Outcome
from verl.evaluation.teaching.journal import Journal
from verl.evaluation.teaching.serving import Patiently, Serving
from verl.evaluation.teaching.trials import Answers, Asked, Told, plain_probe, probe_of
from verl.teaching.lesson import Probe

_T = TypeVar("_T")


@dataclass(frozen=True)
class Kind(Generic[_T]):
    """What is known of all answers of a kind."""

    complete: Callable[[_T], bool]
    """Whether all of it was answered, or never can be."""
    plain: Callable[[_T], Any]
    """It as JSON."""
    of_plain: Callable[[Any], _T]
    """The inverse."""


_SETTLED = (Outcome.ok, Outcome.too_long)
"""Outcomes that another try would not change."""

ANSWERS: Kind[Answers] = Kind(lambda one: one.outcome in _SETTLED, Answers.plain, Answers.of_plain)
"""Of students."""
PROBES: Kind[Probe] = Kind(lambda one: one.outcome in _SETTLED, plain_probe, probe_of)
"""Outlines."""
ASKED: Kind[Asked] = Kind(lambda one: one.outcome in _SETTLED, Asked.plain, Asked.of_plain)
"""Teachers' questions."""
TOLD: Kind[Told] = Kind(lambda one: one.outcome in _SETTLED, Told.plain, Told.of_plain)
"""What teachers write."""


@dataclass
class Unit(Generic[_T]):
    """One thing to be asked."""

    key: str
    """For the journal."""
    ask: Callable[[Patiently], Awaitable[_T]]
    """Asks it."""
    kind: Kind[_T]
    """Of its answer."""
    places: list[tuple[dict[Any, _T], Any]] = field(default_factory=list)
    """Where the answer belongs."""

    def goes_to(self, records: dict[Any, _T], place: Any) -> Self:
        """The answer belongs there too."""
        self.places.append((records, place))
        return self

    def keep(self, answer: _T) -> None:
        """Puts an answer where it belongs."""
        for records, place in self.places:
            records[place] = answer


class Asking:
    """Asks units of models that it lets serve."""

    def __init__(self, serving: Serving, journal: Journal, *, bars: TextIO | None = None, at_once: int = 256) -> None:
        """Asks nothing.

        Args:
            serving: the models.
            journal: of what was answered.
            bars: where progress is shown; None: on standard error.
            at_once: units that are under way.
        """
        self._serving = serving
        self._journal = journal
        self._bars = bars
        self._at_once = at_once

    def ask(self, what: str, models: Sequence[str], units: Iterable[Unit[Any]]) -> None:
        """Asks all of them.

        Args:
            what: for the bar.
            models: who must serve.
            units: in any order.
        """
        left = []
        for unit in units:
            known = self._journal.get(unit.key)
            if known is None:
                left.append(unit)
            else:
                unit.keep(unit.kind.of_plain(known))
        for again in ("", ", once more"):
            if not left:
                return
            if again:
                self._serving.heal()
            failed: list[Unit[Any]] = []
            with tqdm(total=len(left), desc=f"{what}{again}", unit="unit", file=self._bars) as bar:
                self._serving.run(models, partial(self._all, units=left, failed=failed, bar=bar))
            left = failed

    async def _all(self, client: Patiently, *, units: Sequence[Unit[Any]], failed: list[Unit[Any]], bar: Any) -> None:
        waiting = asyncio.Semaphore(self._at_once)

        async def one(unit: Unit[Any]) -> None:
            async with waiting:
                answer = await unit.ask(client)
            unit.keep(answer)
            if unit.kind.complete(answer):
                self._journal.put(unit.key, unit.kind.plain(answer))
            else:
                failed.append(unit)
            bar.update()

        await asyncio.gather(*(one(unit) for unit in units))
