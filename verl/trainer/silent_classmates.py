"""Tells a person that classmates score nothing: else a run goes on for days on the policy's own reward alone.

One decision: what counts is the rows as they are dumped, so that it does not matter why nothing was scored; the
outcomes in the line say it.

    >>> watch = SilenceWatch(["a", "b"], steps=3)
    >>> for line in watch.step(rows):
    ...     console.line(line, loud=True)
"""

from collections import Counter
from collections.abc import Sequence

from verl.classmate.outcome import Outcome
from verl.classmate.record import RowRecord


class SilenceWatch:
    """Counts, for each classmate and for all together, the steps in a row without a score."""

    def __init__(self, models: Sequence[str], *, steps: int, called: str = "classmate") -> None:
        """
        Args:
            models: the classmates' names, in order.
            steps: steps in a row after which it is told, and again after as many more; 0: never.
            called: what a person is told that they are.
        """
        self._models, self._called = models, called
        self._steps = steps
        self._silent = [0] * len(models)
        self._outcomes: list[Counter[str]] = [Counter() for _ in models]
        self._nothing = 0

    def step(self, rows: Sequence[RowRecord]) -> list[str]:
        """Takes a step's rows; lines for the terminal, without line breaks.

        A step in which a classmate was to read nothing (of a baseline, or where no answer could count) does not count.
        """
        models = range(len(self._models))
        outcomes: list[Counter[str]] = [Counter() for _ in models]
        scored = [False for _ in models]
        for row in rows:
            for m, one in enumerate(row.asked):
                for item in one.continuations:
                    if item.outcome is not Outcome.not_needed:
                        outcomes[m][item.outcome] += 1
                        scored[m] |= item.score is not None
        if not any(outcomes):
            return []
        lines = []
        for m in models:
            # That a classmate was excluded has been told.
            asked = outcomes[m].total() > outcomes[m][Outcome.excluded]
            self._outcomes[m] += outcomes[m]
            self._silent[m] += asked
            if scored[m]:
                self._silent[m], self._outcomes[m] = 0, Counter()
            elif asked and self._due(self._silent[m]):
                why = ", ".join(f"{count} {outcome}" for outcome, count in self._outcomes[m].most_common())
                who = f"{self._called} {m} ({self._models[m]})"
                lines.append(f"WARNING: {who} has scored nothing for {self._silent[m]} steps ({why})")
        self._nothing = 0 if any(scored) else self._nothing + 1
        if self._due(self._nothing):
            lines.append(
                f"WARNING: no {self._called} has scored anything for {self._nothing} steps: the policy trains on its "
                'own reward alone. "Rewards look wrong" in docs/troubleshooting.md says what each outcome means'
            )
        return lines

    def _due(self, silent: int) -> bool:
        return self._steps > 0 and silent > 0 and silent % self._steps == 0
