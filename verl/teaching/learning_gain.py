"""What a student has learnt that stays when its teacher is gone: its solve rates before and after, with and without.

One decision: an item is compared with itself. Differences are means over the items that both sides have, and intervals
come from resampling items, so that hard and easy questions are no noise of a difference.

    >>> table = gain_table({"alone": alone, "teachings": trained, "solutions": rival})
    >>> table.arms["teachings"].learnt_without.value, table.arms["teachings"].learnt_without.interval
    (0.14, (0.08, 0.2))
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from verl.teaching.collected import CollectedTeaching
from verl.teaching.evaluation_metrics import RESAMPLES, Estimate
from verl.utils.significance import percentiles

ALONE, TEACHINGS, SOLUTIONS = "alone", "teachings", "solutions"
"""The student as it was, trained on teachings, and trained on what it wrote with the solution as advice."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One student, evaluated."""

    items: int
    """Held-out questions that it was asked both ways."""
    lost: int
    """Questions for which a call or the checker failed, or the teacher had no room; they are in no number."""
    without: Estimate
    """Mean solve rate without the teacher."""
    with_teacher: Estimate
    """The same with the teacher."""
    learnt_without: Estimate
    """What it is above the student as it was, without the teacher: the gain that stays. None for that one itself."""
    learnt_with: Estimate
    """The same with the teacher."""
    rows: int = 0
    """That it was trained on."""
    tokens: int = 0
    """In them."""


@dataclass(frozen=True, kw_only=True)
class GainTable:
    """All arms."""

    arms: dict[str, Arm]
    """By name; `alone` is among them."""
    over_rival: Estimate
    """What teachings are above solutions, without the teacher; None without the rival."""

    def as_json(self) -> dict[str, Any]:
        """All numbers by their names; what is not defined is null."""
        return asdict(self)

    def text(self) -> str:
        """For a terminal."""
        labels = {
            ALONE: "as it was",
            TEACHINGS: "trained on teachings",
            SOLUTIONS: "trained on solutions",
        }
        lines = [_line("", "rows", "tokens", "without teacher", "with teacher", "learnt, without", "learnt, with")]
        for name, arm in self.arms.items():
            size = ("", "") if name == ALONE else (str(arm.rows), str(arm.tokens))
            numbers = [_shown(arm.without), _shown(arm.with_teacher)]
            numbers += [_shown(arm.learnt_without, signed=True), _shown(arm.learnt_with, signed=True)]
            lines.append(_line(labels.get(name, name), *size, *numbers))
        if self.over_rival.value is not None:
            lines.append(_line("teachings over solutions", "", "", "", "", _shown(self.over_rival, signed=True), ""))
        lost = {name: arm.lost for name, arm in self.arms.items() if arm.lost}
        if lost:
            lines.append("lost: " + ", ".join(f"{count} questions of {labels.get(n, n)}" for n, count in lost.items()))
        return "\n".join(line.rstrip() for line in lines)


def gain_table(
    rows: Mapping[str, Sequence[CollectedTeaching]],
    *,
    questions: int | None = None,
    trained_on: Mapping[str, tuple[int, int]] | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> GainTable:
    """Compares the arms.

    Args:
        rows: of each arm, one for each held-out question; `alone` among them.
        questions: that were to be asked; None: those that an arm has rows of.
        trained_on: of each trained arm: rows and tokens.
        seed: of the resampling.
        resamples: how many.

    Raises:
        ValueError: a question is there twice in an arm, or `alone` is missing.
    """
    if ALONE not in rows:
        raise ValueError("the student as it was is missing; nothing can be compared with it")
    found = {name: _by_item(name, of_arm) for name, of_arm in rows.items()}

    def estimate(values: Sequence[float]) -> Estimate:
        return _mean(values, seed, resamples)

    def paired(name: str, other: str, place: int) -> Estimate:
        mine, theirs = found[name], found[other]
        both = [item for item in mine if item in theirs]
        return estimate([mine[item][place] - theirs[item][place] for item in both])

    arms = {}
    for name, items in found.items():
        size = (trained_on or {}).get(name, (0, 0))
        itself = name == ALONE
        arms[name] = Arm(
            items=len(items),
            lost=(len(rows[name]) if questions is None else questions) - len(items),
            without=estimate([b for b, _ in items.values()]),
            with_teacher=estimate([w for _, w in items.values()]),
            learnt_without=Estimate(value=None) if itself else paired(name, ALONE, 0),
            learnt_with=Estimate(value=None) if itself else paired(name, ALONE, 1),
            rows=size[0],
            tokens=size[1],
        )
    has_rival = {TEACHINGS, SOLUTIONS} <= found.keys()
    return GainTable(arms=arms, over_rival=paired(TEACHINGS, SOLUTIONS, 0) if has_rival else Estimate(value=None))


def _by_item(name: str, rows: Sequence[CollectedTeaching]) -> dict[str, tuple[float, float]]:
    """b and w of each question for which both are known."""
    found: dict[str, tuple[float, float]] = {}
    seen: set[str] = set()
    for row in rows:
        if row.question_hash in seen:
            raise ValueError(f"{name}: the question {row.question[:60]!r} is there twice; give one row for each")
        seen.add(row.question_hash)
        if not row.failed and row.b is not None and row.w is not None:
            found[row.question_hash] = (row.b, row.w)
    return found


def _mean(values: Sequence[float], seed: int, resamples: int) -> Estimate:
    """A mean over items, and its percentile interval; None where one item or none is left."""
    if not values:
        return Estimate(value=None)
    told = np.array(values, dtype=np.float64)
    value = math.fsum(values) / len(values)
    if len(values) == 1:
        return Estimate(value=value)
    drawn = np.random.default_rng(seed)
    means = [float(told[drawn.integers(len(told), size=len(told))].mean()) for _ in range(resamples)]
    return Estimate(value=value, interval=percentiles(means))


def _line(label: str, rows: str, tokens: str, *numbers: str) -> str:
    widths = (20, 20, 23, 23)
    return f"{label:<25}{rows:>6}{tokens:>8}  " + "".join(f"{one:<{w}}" for one, w in zip(numbers, widths, strict=True))


def _shown(one: Estimate, *, signed: bool = False) -> str:
    if one.value is None:
        return ""
    form = "{:+.3f}" if signed else "{:.3f}"
    ends = "" if one.interval is None else f" [{form.format(one.interval[0])},{form.format(one.interval[1])}]"
    return form.format(one.value) + ends
