"""Draws and scores solutions of many problems, in rounds, until enough of each are accepted.

One decision: what was drawn, scored and accepted of a problem is one value, from which everything else follows: the
best one, a diverse set, a training set, pairs of preference. Scores in it are the reward's own.

    >>> pools = Drawing(backend, reward, config).pools(problems)
    >>> pools[0].accepted, pools[0].pass_rate
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tqdm import tqdm

from verl.reasoning.acceptance import Accepts, apply
from verl.reasoning.backends import GenBackend, SamplingParams
from verl.reasoning.blocking import await_here
from verl.reasoning.records import Problem, Solution
from verl.reasoning.rejection_config import ROUND, RejectionSamplingConfig
from verl.reasoning.rewards import Reward, RewardContext, RewardResult, score_together
from verl.reasoning.search.requests import Ask
from verl.reasoning.search.tools import Tools
from verl.reasoning.token_backend import completion_seed

_HARDLY = 0.05
"""Probability below which a problem is given up."""


@dataclass
class Pool:
    """What was drawn for one problem."""

    problem: Problem
    """It."""
    solutions: list[Solution] = field(default_factory=list)
    """Those with a score, in the order of their draws."""
    verdicts: list[bool | None] = field(default_factory=list)
    """Whether each is accepted; None: a further test could not tell."""
    drawn: int = 0
    """Completions that were asked for."""
    failed: int = 0
    """Completions that were not written, and solutions without a score."""
    tokens: int = 0
    """Generated."""
    refused_by: Counter[str] = field(default_factory=Counter)
    """By a further test: right solutions that it refused."""

    @property
    def accepted(self) -> list[Solution]:
        """In the order of their draws."""
        return [one for one, verdict in zip(self.solutions, self.verdicts, strict=True) if verdict]

    @property
    def rejected(self) -> list[Solution]:
        """In the order of their draws."""
        return [one for one, verdict in zip(self.solutions, self.verdicts, strict=True) if verdict is False]

    @property
    def pass_rate(self) -> float | None:
        """Accepted share of those that were decided; None: of none."""
        known = [one for one in self.verdicts if one is not None]
        return sum(known) / len(known) if known else None

    @property
    def distinct(self) -> int:
        """Different accepted texts."""
        return len({" ".join(one.text.split()) for one in self.accepted})


class Drawing:
    """Draws pools. Each call for a problem goes on where the last one for it ended, so that none repeats another."""

    def __init__(
        self,
        backend: GenBackend,
        reward: Reward,
        config: RejectionSamplingConfig,
        *,
        tools: Tools | None = None,
        tests: Sequence[Accepts] = (),
    ) -> None:
        """Asks nothing.

        Args:
            backend: who writes.
            reward: of `as_reward`.
            config: the settings.
            tools: how answers are read; None: as usual.
            tests: further ones, for solutions that the reward accepts.
        """
        self._backend, self._reward, self._config, self._tests = backend, reward, config, tuple(tests)
        self._tools = tools or Tools(backend=backend)
        self._drawn: Counter[str] = Counter()

    def pools(
        self, problems: Sequence[Problem], *, most: int | None = None, adaptive: bool | None = None
    ) -> list[Pool]:
        """A pool of each, in their order.

        Args:
            problems: with different ids.
            most: samples of each; None: as configured.
            adaptive: stop where enough are accepted; None: as configured.
        """
        config = self._config
        most = config.num_samples if most is None else most
        adaptive = config.adaptive if adaptive is None else adaptive
        pools = [Pool(problem=problem) for problem in problems]
        with tqdm(
            total=most * len(pools), desc="rejection sampling", unit="text", disable=None if len(pools) > 1 else True
        ) as bar:
            while open_pools := [pool for pool in pools if self._goes_on(pool, most, adaptive)]:
                count = ROUND if adaptive else most
                for size in sorted({min(count, most - pool.drawn) for pool in open_pools}):
                    some = [pool for pool in open_pools if min(count, most - pool.drawn) == size]
                    self._round(some, size)
                    bar.update(size * len(some))
        return pools

    def _goes_on(self, pool: Pool, most: int, adaptive: bool) -> bool:
        left = most - pool.drawn
        if left <= 0 or (adaptive and pool.distinct >= self._config.max_per_problem):
            return False
        if not adaptive or not pool.drawn:
            return True
        known = [one for one in pool.verdicts if one is not None]
        return chance_of_rate(sum(known), len(known) - sum(known), self._config.hopeless_rate) >= _HARDLY

    def _round(self, pools: Sequence[Pool], size: int) -> None:
        new: list[tuple[Pool, Solution]] = []
        for count, places, sampling in self._parts(pools, size):
            some = [pools[i] for i in places]
            texts = self._backend.generate([pool.problem.problem for pool in some], n=count, sampling=sampling)
            for pool, completions in zip(some, texts, strict=True):
                for one in completions:
                    pool.drawn += 1
                    pool.tokens += len(one.token_ids)
                    if one.ok:
                        new.append((pool, self._tools.solution(pool.problem, Ask(sampling=sampling), one)))
                    else:
                        pool.failed += 1
        for pool in pools:
            self._drawn[pool.problem.id] += size
        self._decide(new)

    def _parts(self, pools: Sequence[Pool], size: int) -> list[tuple[int, list[int], SamplingParams]]:
        """Calls of the backend: how many texts, of which pools, drawn how."""
        config = self._config
        mix = config.temperature_mix or (config.temperature,)
        parts: dict[tuple[int, int, int], list[int]] = {}
        for place, pool in enumerate(pools):
            first = self._drawn[pool.problem.id]
            for turn in range(len(mix)):
                # Draw k has temperature k mod len(mix); of each temperature they are counted by themselves.
                before, after = (-(-(end - turn) // len(mix)) for end in (first, first + size))
                if after > before:
                    parts.setdefault((turn, max(before, 0), after - max(before, 0)), []).append(place)
        calls = []
        for (turn, first, count), places in parts.items():
            seed = config.seed if turn == 0 else completion_seed(config.seed, "temperature", str(turn), 0)
            sampling = SamplingParams(
                temperature=mix[turn],
                top_p=config.top_p,
                max_tokens=config.max_tokens,
                seed=seed,
                first_index=first,
                stop=self._tools.sampling.stop,
            )
            calls.append((count, places, sampling))
        return calls

    def _decide(self, new: Sequence[tuple[Pool, Solution]]) -> None:
        """Scores new solutions and puts them into their pools."""
        pairs = [(pool.problem, solution) for pool, solution in new]
        results = await_here(score_together(self._reward, pairs, RewardContext(stage="rejection_sampling")))
        told = [with_result(solution, result) for (_, solution), result in zip(new, results, strict=True)]
        verdicts: list[bool | None] = [passes(one, self._config.min_score_threshold) for one in told]
        passing = [i for i, one in enumerate(verdicts) if one]
        said = apply(self._tests, [(new[i][0].problem, told[i]) for i in passing])
        for i, verdict in zip(passing, said, strict=True):
            verdicts[i] = verdict.accepted
            if verdict.by_test:
                told[i] = dataclasses.replace(told[i], meta={**told[i].meta, "tests": verdict.by_test})
                new[i][0].refused_by.update(name for name, one in verdict.by_test.items() if one is False)
        for (pool, _), solution, verdict_of_it in zip(new, told, verdicts, strict=True):
            if solution.score is None:
                pool.failed += 1
                continue
            pool.solutions.append(solution)
            pool.verdicts.append(verdict_of_it)


def with_result(solution: Solution, result: RewardResult) -> Solution:
    """A solution with what the reward says of it; a result that is not valid leaves it without a score."""
    return dataclasses.replace(
        solution,
        score=result.score if result.valid else None,
        reward=dict(result.components),
        correct=result.correct if result.valid else None,
        final_answer=result.final_answer or solution.final_answer,
    )


def passes(solution: Solution, threshold: float) -> bool | None:
    """Whether a solution is accepted: by `correct` where that is known, else by its score; None: it has neither."""
    if solution.score is None:
        return None
    return solution.correct if solution.correct is not None else solution.score >= threshold


def chance_of_rate(accepted: int, rejected: int, rate: float) -> float:
    """How probable it is that a pass rate is `rate` or more, after so many draws and with a uniform prior."""
    n = accepted + rejected + 1
    return sum(math.comb(n, k) * rate**k * (1 - rate) ** (n - k) for k in range(accepted + 1))
