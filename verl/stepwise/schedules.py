"""Numbers that change during a training: temperature, entropy coefficient (docs/reasoning.md).

One decision: a schedule is a pure function of the step. What depends on what happened (a hold, a controller) is a small
value beside it, which a checkpoint keeps.

    >>> Schedule(kind="exp", start=1.2, end=0.3, decay=0.995).at(277)
    0.3
"""

import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Literal, get_args

ScheduleKind = Literal["constant", "exp", "linear", "cosine", "piecewise"]
ZERO_VARIANCE_LIMIT = 0.5
"""Share of groups without variance above which a temperature does not fall."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A value at each step."""

    kind: ScheduleKind = "constant"
    """constant: `start`; exp: `start` * `decay` ** step, as far as `end`; linear, cosine: from `start` to `end` within
    `steps`; piecewise: straight lines between `points`."""
    start: float = 1.0
    """At step 0."""
    end: float | None = None
    """Where it stops; None: at `start`, or for exp at 0."""
    decay: float = 0.995
    """Factor of a step, of kind exp."""
    steps: int = 0
    """How long it takes, of kinds linear and cosine."""
    points: tuple[tuple[int, float], ...] = ()
    """Pairs of a step and a value, of kind piecewise; before the first and behind the last the value stays."""

    def __post_init__(self) -> None:
        """Refuses what gives no value.

        Raises:
            ValueError: says what to write instead.
        """
        numbers = (self.start, self.decay, *(value for _, value in self.points))
        if not all(map(math.isfinite, (*numbers, self.end or 0.0))):
            raise ValueError(f"a schedule with a number that is not finite: {self}; write finite ones")
        if self.kind not in get_args(ScheduleKind):
            raise ValueError(f"a schedule of kind {self.kind!r}; write one of {', '.join(get_args(ScheduleKind))}")
        if self.kind in ("linear", "cosine") and self.steps < 1:
            raise ValueError(f"a {self.kind} schedule of {self.steps} steps; write steps >= 1")
        if self.kind == "exp":
            rises = self.end is not None and self.end > self.start
            if self.decay <= 0 or self.start < 0 or (self.end or 0) < 0:
                raise ValueError(f"an exp schedule from {self.start} to {self.end} by {self.decay}; write none below 0")
            if rises and (self.decay <= 1 or self.start == 0):
                raise ValueError(
                    f"an exp schedule from {self.start} up to {self.end} by {self.decay}; write decay > 1, start > 0"
                )
            if not rises and self.decay > 1:
                raise ValueError(f"an exp schedule that grows by {self.decay} without bound; write decay <= 1, or end")
        steps = [step for step, _ in self.points]
        if self.kind == "piecewise" and (not steps or steps != sorted(set(steps))):
            raise ValueError("a piecewise schedule needs points of ascending steps; write ((0, 1.0), (100, 0.5))")

    def at(self, step: int) -> float:
        """The value at a step; steps before 0 count as 0."""
        step = max(0, step)
        end = self.start if self.end is None else self.end
        if self.kind == "exp":
            return self._exponential(step)
        if self.kind == "linear":
            done = min(1.0, step / self.steps)
            return self.start * (1 - done) + end * done
        if self.kind == "cosine":
            done = (1 - math.cos(math.pi * min(1.0, step / self.steps))) / 2
            return self.start * (1 - done) + end * done
        return self._between(step) if self.kind == "piecewise" else self.start

    def _exponential(self, step: int) -> float:
        rises = self.end is not None and self.end > self.start
        try:
            value = self.start * self.decay**step
        except OverflowError:
            value = math.inf
        return min(self.end or 0.0, value) if rises else max(self.end or 0.0, value)

    def _between(self, step: int) -> float:
        i = bisect_right([at for at, _ in self.points], step)
        if i in (0, len(self.points)):
            return self.points[max(0, i - 1)][1]
        (left, low), (right, high) = self.points[i - 1], self.points[i]
        done = (step - left) / (right - left)
        return low * (1 - done) + high * done


ORIGINAL_TEMPERATURE = Schedule(kind="exp", start=1.2, end=0.3, decay=0.995)
"""Of the original document; at its end from step 277 on."""
ORIGINAL_ENTROPY = Schedule(kind="exp", start=0.1, end=0.001, decay=0.99)
"""Of the original document; at its end from step 459 on."""


@dataclass(frozen=True, kw_only=True)
class Hold:
    """Keeps a temperature from falling while most groups are all right or all wrong, and so teach nothing.

    The schedule's clock stands still at such steps, and goes on from there afterwards.

    >>> hold = Hold().after(schedule, step, zero_variance=0.8)      # after each step
    >>> hold.at(schedule, step + 1)
    """

    held: int = 0
    """Steps at which the clock stood still."""

    def at(self, schedule: Schedule, step: int) -> float:
        """The value at a step."""
        return schedule.at(step - self.held)

    def after(self, schedule: Schedule, step: int, *, zero_variance: float) -> "Hold":
        """The hold for step + 1.

        Args:
            schedule: of the temperature.
            step: that was just taken.
            zero_variance: share of its groups whose rewards are all the same, 0 to 1; NaN: none had a reward.
        """
        falls = self.at(schedule, step + 1) < self.at(schedule, step)
        return replace(self, held=self.held + 1) if falls and zero_variance > ZERO_VARIANCE_LIMIT else self


@dataclass(frozen=True, kw_only=True)
class TargetEntropy:
    """Steers the entropy coefficient so that the policy's entropy stays near a target: at most 10 % a step."""

    target: float
    """Mean entropy of a generated token, in nats."""
    rate: float = 0.1
    """Largest relative change at a step."""
    lowest: float = 1e-4
    """Least coefficient; above 0, or it could never rise again."""
    highest: float = 0.1
    """Largest coefficient."""

    def __post_init__(self) -> None:
        """Refuses bounds in which nothing moves.

        Raises:
            ValueError: says what to write instead.
        """
        if not (0 < self.lowest <= self.highest and 0 < self.rate < 1 and self.target > 0):
            raise ValueError(f"{self}: write 0 < lowest <= highest, 0 < rate < 1, target > 0")

    def after(self, coefficient: float, entropy: float) -> float:
        """The coefficient of the next step: higher if the entropy was below the target, lower if above.

        Args:
            coefficient: of this step.
            entropy: that was measured at it; NaN changes nothing.
        """
        if math.isnan(entropy):
            return coefficient
        wanted = 1 + max(-self.rate, min(self.rate, (self.target - entropy) / self.target))
        return max(self.lowest, min(self.highest, coefficient * wanted))
