"""Particle filtering (I. Puri et al., "A probabilistic inference approach to inference-time scaling of LLMs using
particle-based Monte Carlo methods", 2025).

One decision: after each step the particles are drawn anew in proportion to the odds that the scorer gives their texts.
So a low score makes a path rare and not impossible, and a scorer that errs once does not end it, as in a beam.

    >>> ParticleFilter(particles=8).run(problem, tools)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from verl.reasoning.records import Problem
from verl.reasoning.search.driver import Search
from verl.reasoning.search.requests import Spending, Strategy
from verl.reasoning.search.stepping import Path, Select, concluded, expand, worth
from verl.reasoning.search.tools import RankBy, Tools
from verl.reasoning.token_backend import completion_seed

_LEAST = 1e-4
"""Scores are kept this far from 0 and 1, where the odds would be 0 or infinite."""


@dataclass(frozen=True, kw_only=True)
class ParticleFilter(Search):
    """Paths that are continued, weighted and resampled, step by step."""

    particles: int = 8
    """Paths."""
    temperature: float = 1.0
    """Of the weights: odds to the power of 1 / temperature; above 1 it rejects less."""
    max_steps: int = 40
    """The last of them writes on to the end."""
    step_tokens: int = 256
    """Most tokens of a step."""
    select: Select = "vote"
    """Which whole solution is chosen."""
    rank_by: RankBy | None = None
    """`scorer` or `log_prob`; None: the scorer if there is one."""

    def begin(self, problem: Problem, tools: Tools, spending: Spending) -> Strategy:
        """As `Search.begin`."""
        paths, steps = [Path()] * self.particles, 0
        for number in range(self.max_steps):
            live = [i for i, path in enumerate(paths) if not path.ended]
            if not live or not spending.worth_going_on:
                break
            found = yield from expand(
                problem,
                tools,
                spending,
                [paths[i] for i in live],
                counts=[1] * len(live),
                step_tokens=self.step_tokens,
                to_end=number == self.max_steps - 1,
            )
            if not any(found):
                break
            steps = number + 1
            for i, children in zip(live, found, strict=True):
                paths[i] = children[0] if children else paths[i]
            paths = yield from worth(paths, tools, self.rank_by)
            seed = completion_seed(tools.sampling.seed, problem.problem, "resampling", number)
            paths = [paths[i] for i in resampled([path.score for path in paths], self.temperature, seed)]
        return concluded(problem, tools, paths, select=self.select, fallback=False, steps=steps)


def resampled(scores: Sequence[float | None], temperature: float, seed: int) -> list[int]:
    """Systematic resampling: places, each as often as its weight says to within one. Without a score: the mean weight.

    Args:
        scores: (P,) in 0..1.
        temperature: of the weights.
        seed: of the one random number that is drawn.
    """
    known = [score for score in scores if score is not None]
    if not known:
        return list(range(len(scores)))
    odds = {i: _odds(score, temperature) for i, score in enumerate(scores) if score is not None}
    middle = sum(odds.values()) / len(odds)
    weights = np.array([odds.get(i, middle) for i in range(len(scores))])
    ends = np.cumsum(weights / weights.sum())
    ticks = (np.random.default_rng(seed).random() + np.arange(len(scores))) / len(scores)
    return [int(i) for i in np.minimum(np.searchsorted(ends, ticks, side="right"), len(scores) - 1)]


def _odds(score: float, temperature: float) -> float:
    inside = min(max(score, _LEAST), 1 - _LEAST)
    return float((inside / (1 - inside)) ** (1 / temperature))
