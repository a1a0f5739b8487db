"""Rows with a planted error, each shown to be wrong.

One decision: an error that arithmetic does not prove is proved by completions: all that can be judged end wrong, and at
least half of them can be judged. One that ends right, or no generator, and the row is left out, and counted.
"""

import random
from collections import Counter
from collections.abc import Sequence

from verl.reasoning.prm.config import PRMConfig
from verl.reasoning.prm.monte_carlo import Count, MonteCarloLabeler
from verl.reasoning.prm.perturb import plant_several, spliced
from verl.reasoning.prm.planted import Planted
from verl.reasoning.prm.rows import LabelledSolution
from verl.reasoning.records import Problem


class Planter:
    """Makes rows; counts what became of each planted error in `counts`."""

    def __init__(self, config: PRMConfig, kinds: Sequence[str], labeler: MonteCarloLabeler | None) -> None:
        self._config, self._kinds, self._labeler = config, kinds, labeler
        self.counts: Counter[str] = Counter()

    def rows(
        self, problem: Problem, steps: Sequence[str], rng: random.Random, donors: Sequence[str], lead: str = ""
    ) -> list[LabelledSolution]:
        """Rows of a solution that was verified: the steps before the planted one are right, those behind unknown.

        Args:
            problem: of the solution.
            steps: its own.
            rng: chooses places and errors.
            donors: steps of other problems.
            lead: what stands before the steps in a model's text.
        """
        planted = plant_several(problem.problem, steps, self._kinds, self._config.num_perturbations, rng, donors)
        proven = self._proven(problem, steps, lead, [one for one in planted if one.certainty == "uncertain"])
        rows = []
        for one in planted:
            if one.certainty == "own":
                self.counts["planted_needless"] += 1
                rows.append(_row(problem, steps, one, Count(), channel=True))
            elif one.certainty == "exact" or (one.place, one.text) in proven:
                self.counts[f"planted_{one.certainty}"] += 1
                rows.append(_row(problem, steps, one, proven.get((one.place, one.text), Count())))
        return rows

    def _proven(
        self, problem: Problem, steps: Sequence[str], lead: str, planted: Sequence[Planted]
    ) -> dict[tuple[int, str], Count]:
        """By place and text, those that no completion recovers from."""
        if not planted:
            return {}
        if self._labeler is None:
            self.counts["planted_without_proof"] += len(planted)
            return {}
        prefixes = [lead + "".join(spliced(steps, one)[: one.place + 1]) for one in planted]
        found = {}
        for one, count in zip(planted, self._labeler.success(problem, prefixes), strict=True):
            if count.success:
                self.counts["planted_recovered"] += 1
            elif 2 * count.rollouts < self._config.mc_rollouts:
                self.counts["planted_without_proof"] += 1
            else:
                found[one.place, one.text] = count
        return found


def _row(
    problem: Problem, steps: Sequence[str], planted: Planted, count: Count, *, channel: bool = False
) -> LabelledSolution:
    whole = spliced(steps, planted)
    unknown = len(whole) - planted.place - 1
    own: tuple[bool | None, str | None] = (None, None) if channel else (False, "perturb")
    return LabelledSolution(
        prompt=problem.problem,
        completions=whole,
        labels=(*[True] * planted.place, own[0], *[None] * unknown),
        sources=(*["propagated"] * planted.place, own[1], *[None] * unknown),
        problem_id=problem.id,
        # How the spliced solution ends says nothing of its steps, and nobody has looked.
        correct=None,
        perturbation_type=planted.kind,
        n_success=(*[0] * planted.place, count.success, *[0] * unknown),
        n_rollouts=(*[0] * planted.place, count.rollouts, *[0] * unknown),
        meta={"place": planted.place, **planted.meta, **({"channel": planted.kind} if channel else {})},
    )
