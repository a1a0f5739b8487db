"""What is remembered of the rewards of steps over a training, and when they are being exploited.

One decision: a rise and a fall count when a straight line through the last steps of training has a slope beyond three
of its standard errors, so that noise ends no run.

    >>> watch = ProcessWatch()
    >>> watch = watch.after(process=0.6, accuracy=0.4, steps=3.5, keep=20)
    >>> watch.exploited(20), watch.bounds(0.5)
    (False, (2.3333333333333335, 5.25))

Specification of the pipeline, section 7.4
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

ERRORS = 3.0
"""Standard errors of a slope beyond which it is none by chance."""


@dataclass(frozen=True, kw_only=True)
class ProcessWatch:
    """The last steps of a training, and the first."""

    process: tuple[float, ...] = ()
    """Mean reward of steps, in order."""
    accuracy: tuple[float, ...] = ()
    """Share of right answers, as long."""
    first_steps: float | None = None
    """Mean number of steps of an answer when it was first known."""

    def after(self, *, process: float, accuracy: float, steps: float, keep: int) -> "ProcessWatch":
        """With one more step of training; numbers that are not finite are left out.

        Args:
            process: mean reward of steps.
            accuracy: share of right answers.
            steps: mean number of steps of an answer.
            keep: how many steps of training are remembered.
        """
        if not all(map(math.isfinite, (process, accuracy, steps))):
            return self
        keep = max(1, keep)
        return ProcessWatch(
            process=(*self.process, process)[-keep:],
            accuracy=(*self.accuracy, accuracy)[-keep:],
            first_steps=steps if self.first_steps is None else self.first_steps,
        )

    def exploited(self, steps: int) -> bool:
        """Whether over the last `steps` steps the rewards of steps have risen while accuracy has fallen; 0: never."""
        if not steps or len(self.process) < steps:
            return False
        rise, fall = slope_errors(self.process[-steps:]), slope_errors(self.accuracy[-steps:])
        return rise > ERRORS and fall < -ERRORS

    def bounds(self, growth: float | None) -> tuple[float, float] | None:
        """Fewest and most steps of an answer that has rewards of steps; None: any number."""
        if growth is None or self.first_steps is None:
            return None
        return self.first_steps / (1 + growth), self.first_steps * (1 + growth)


def slope_errors(values: Sequence[float]) -> float:
    """The slope of a straight line through values, in its standard errors; infinite on a line, 0 without a slope."""
    n = len(values)
    middle, mean = (n - 1) / 2, math.fsum(values) / n
    spread = math.fsum((i - middle) ** 2 for i in range(n))
    slope = math.fsum((i - middle) * (value - mean) for i, value in enumerate(values)) / spread
    if abs(slope) * n <= 1e-9 * max(1.0, max(map(abs, values))):
        return 0.0
    rest = math.fsum((value - mean - slope * (i - middle)) ** 2 for i, value in enumerate(values))
    error = math.sqrt(rest / (n - 2) / spread)
    return slope / error if error > 1e-12 else math.copysign(math.inf, slope)
