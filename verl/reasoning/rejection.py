"""`RejectionSampler`: draws solutions, keeps those that the reward accepts, refines, and makes a set to fine-tune on.

One decision: the samplers are a thin face of `pools` and `search`, with the names and result keys of the original
document; a `GenBackend` may stand in the place of model and tokenizer.

    >>> sampler = RejectionSampler(model, tokenizer, reward_fn, RejectionSamplingConfig(num_samples=16))
    >>> sampler.sample_with_rejection({"problem": "What is 3 + 4?", "answer": "7"})["score"]
    1.0
    >>> sampler.accepted_set(problems).write(Path("outputs/rejection"))
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from verl.reasoning.acceptance import Accepts
from verl.reasoning.accepted_set import AcceptedSet, accepted_set
from verl.reasoning.backend_hf import HFBackend
from verl.reasoning.backends import GenBackend, SamplingParams
from verl.reasoning.pools import Drawing, Pool
from verl.reasoning.records import Problem, Solution, as_problem, as_problems
from verl.reasoning.rejection_config import RejectionSamplingConfig
from verl.reasoning.rewards import as_reward
from verl.reasoning.search.driver import Search, run_all
from verl.reasoning.search.moves import scored
from verl.reasoning.search.refining import Refine
from verl.reasoning.search.requests import Found, Spending, Strategy
from verl.reasoning.search.tools import AGGREGATES, Tools
from verl.reasoning.similarity import Similarity, similarity
from verl.reasoning.step_scorer import StepScorer

Given = Problem | str | Mapping[str, Any]
"""What a user calls a problem."""


class RejectionSampler:
    """Samples, accepts, refines and reports."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        reward_fn: Callable[..., Any],
        config: RejectionSamplingConfig | None = None,
        *,
        scorer: StepScorer | None = None,
        tests: Sequence[Accepts] = (),
        tools: Tools | None = None,
        similarity_by: Similarity | None = None,
    ) -> None:
        """Loads nothing.

        Args:
            model: path, hub name, a model of transformers, or a `GenBackend`.
            tokenizer: of a model object; None otherwise.
            reward_fn: of (problem, solution) or (problem, solution, context), as for `as_reward`.
            config: the settings; None: the defaults.
            scorer: of steps, for `use_prm`, refinement and beam search.
            tests: further ones, for solutions that the reward accepts (`ReaderApproval`, `SoundSteps`).
            tools: how answers are read and texts cut into steps; None: as usual.
            similarity_by: None: as configured.

        Raises:
            ValueError: `use_prm` without a scorer.
        """
        self.config = config or RejectionSamplingConfig()
        if self.config.use_prm and scorer is None:
            raise ValueError("use_prm=True ranks by a scorer of steps; give scorer=..., or write use_prm=False")
        self.backend = as_backend(model, tokenizer)
        self.reward = as_reward(reward_fn)
        base = tools or Tools(backend=self.backend)
        self.tools = dataclasses.replace(
            base,
            backend=self.backend,
            scorer=scorer,
            reward=self.reward,
            aggregate=AGGREGATES[self.config.prm_agg],
            sampling=dataclasses.replace(base.sampling, **dataclasses.asdict(self._sampling(base.sampling))),
        )
        self._similarity = similarity_by
        self._drawing = Drawing(self.backend, self.reward, self.config, tools=self.tools, tests=tests)
        self._improvements: list[float] = []
        self._problems = 0
        self.sampling_stats: dict[str, Any] = {
            "total_samples": 0,
            "accepted_samples": 0,
            "failed_samples": 0,
            "undecided_samples": 0,
            "total_tokens": 0,
            "avg_score_improvement": 0.0,
            "score_distribution": [],
        }
        """Of all calls so far; failed samples are those without a text or a score."""

    def sample_with_rejection(self, problem: Given) -> dict[str, Any] | None:
        """The best accepted solution of a problem; None: none was accepted.

        Keys: problem, solution, score, num_samples_generated, num_samples_accepted, score_improvement (best less
        worst score of all samples), gain_over_mean, pass_rate, final_answer.
        """
        pool = self._pools([as_problem(problem)])[0]
        if not pool.accepted:
            return None
        return self._result(pool)

    def sample_many(self, problems: Sequence[Given]) -> list[dict[str, Any] | None]:
        """The same of many problems, in shared batches."""
        return [self._result(pool) if pool.accepted else None for pool in self._pools(as_problems(problems))]

    def iterative_refinement(self, problem: Given, initial_solution: str | Solution) -> dict[str, Any]:
        """Refines a solution by criticism; a text replaces it only if its score is strictly higher.

        Keys: problem, final_solution, final_score, num_refinements (those that were kept), total_improvement, refined,
        history (of iteration, solution, score, improvement).
        """
        asked = as_problem(problem)
        start = initial_solution if isinstance(initial_solution, Solution) else as_solution(asked, initial_solution)
        config = self.config
        refine = Refine(
            rounds=config.max_refinement_iterations,
            candidates=config.refinement_candidates,
            patience=config.refinement_patience,
            temperature=config.refinement_temperature,
            template=config.refinement_prompt_template,
            rank_by="reward",
            given=start,
        )
        found = refine.run(asked, self.tools)
        assert found.solution is not None
        first, best = found.candidates[0].score, found.solution.score
        kept = [one for one in found.details["history"] if one["improvement"] > 0]
        return {
            "problem": asked.problem,
            "final_solution": found.solution.text,
            "final_score": best,
            "num_refinements": len(kept),
            "total_improvement": 0.0 if best is None else best - (first or 0.0),
            "refined": bool(found.solution.meta.get("refined")),
            "history": found.details["history"],
        }

    def accepted_set(self, problems: Sequence[Given]) -> AcceptedSet:
        """What to fine-tune on: accepted solutions, filtered, at most `max_per_problem` unlike ones of a problem, with
        no difficulty prevailing; and the rejected ones. Samples of a `CachedBackend` outlive a kill."""
        pools = self._pools(as_problems(problems))
        ranks = self._ranks([one for pool in pools for one in pool.accepted], pools)
        return accepted_set(pools, self.config, ranks=ranks, similarity=self._measure())

    def get_sampling_report(self) -> str:
        """The statistics, for a person."""
        stats = self.sampling_stats
        scores = stats["score_distribution"]
        total = stats["total_samples"]
        lines = [
            f"{type(self).__name__}: {self.backend.model}",
            f"problems: {self._problems}",
            f"samples: {total}, of which {stats['failed_samples']} failed (no text or no score)",
            f"accepted: {stats['accepted_samples']} ({stats['accepted_samples'] / total:.1%})"
            if total
            else "accepted: 0",
        ]
        if stats["undecided_samples"]:
            lines.append(f"undecided: {stats['undecided_samples']} (a further test could not tell)")
        if scores:
            quartiles = ", ".join(f"{value:.3f}" for value in np.quantile(scores, [0, 0.25, 0.5, 0.75, 1]))
            lines.append(f"scores: mean {np.mean(scores):.3f}; minimum, quartiles, maximum {quartiles}")
            lines.append(f"best less worst, mean of a problem: {stats['avg_score_improvement']:.3f}")
        lines.append(f"generated tokens: {stats['total_tokens']}")
        return "\n".join(lines)

    def close(self) -> None:
        """Ends the engine."""
        self.backend.close()

    def _sampling(self, base: SamplingParams) -> SamplingParams:
        config = self.config
        return SamplingParams(
            temperature=config.temperature,
            top_p=config.top_p,
            top_k=base.top_k,
            max_tokens=config.max_tokens,
            stop=base.stop,
            seed=config.seed,
        )

    def _pools(
        self, problems: Sequence[Problem], *, most: int | None = None, adaptive: bool | None = None
    ) -> list[Pool]:
        pools = self._drawing.pools(problems, most=most, adaptive=adaptive)
        stats = self.sampling_stats
        for pool in pools:
            scores = [one.score for one in pool.solutions if one.score is not None]
            stats["total_samples"] += pool.drawn
            stats["accepted_samples"] += len(pool.accepted)
            stats["failed_samples"] += pool.failed
            stats["undecided_samples"] += sum(one is None for one in pool.verdicts)
            stats["total_tokens"] += pool.tokens
            stats["score_distribution"] += scores
            self._problems += 1
            if scores:
                self._improvements.append(max(scores) - min(scores))
        if self._improvements:
            stats["avg_score_improvement"] = sum(self._improvements) / len(self._improvements)
        return pools

    def _measure(self) -> Similarity:
        if self._similarity is None:
            self._similarity = similarity(self.config.similarity)
        return self._similarity

    def _ranks(self, solutions: Sequence[Solution], pools: Sequence[Pool]) -> dict[int, float]:
        """What each solution is ranked by, by its `id`: its score or the scorer's, less outside of the lengths."""
        config = self.config
        values: list[float | None] = [one.score for one in solutions]
        if config.use_prm and solutions:
            problems = {pool.problem.id: pool.problem for pool in pools}
            groups: dict[str, list[Solution]] = {}
            for one in solutions:
                groups.setdefault(one.problem_id, []).append(one)
            judging = _Judging(groups)
            found = run_all(judging, [problems[name] for name in groups], self.tools)
            told = {(one.problem_id, one.text): one.score for result in found for one in result.candidates}
            values = [told[one.problem_id, one.text] for one in solutions]

        def ranked(solution: Solution, value: float | None) -> float:
            inside = config.min_length <= solution.n_tokens <= config.max_length
            # One that the scorer could not read is not known to be bad; it comes last all the same.
            return (value if value is not None else 0.0) * (1.0 if inside else config.length_penalty)

        return {id(one): ranked(one, value) for one, value in zip(solutions, values, strict=True)}

    def _result(self, pool: Pool) -> dict[str, Any]:
        accepted = pool.accepted
        ranks = self._ranks(accepted, [pool])
        unlike = [0.0] * len(accepted)
        if self.config.diversity_bonus > 0 and len(accepted) > 1:
            sims = self._measure()([one.text for one in accepted])
            unlike = [1 - float(row.sum() - 1) / (len(accepted) - 1) for row in sims]
        best = min(
            range(len(accepted)),
            key=lambda i: (-ranks[id(accepted[i])], -round(unlike[i], 9), accepted[i].n_tokens, i),
        )
        chosen = accepted[best]
        scores = [one.score for one in pool.solutions if one.score is not None]
        assert chosen.score is not None
        return {
            "problem": pool.problem.problem,
            "solution": chosen.text,
            "score": chosen.score,
            "num_samples_generated": pool.drawn,
            "num_samples_accepted": len(accepted),
            "score_improvement": max(scores) - min(scores),
            "gain_over_mean": chosen.score - sum(scores) / len(scores),
            "pass_rate": pool.pass_rate,
            "final_answer": chosen.final_answer,
        }


@dataclasses.dataclass(frozen=True)
class _Judging(Search):
    """Puts the scorer's numbers to solutions that are there."""

    groups: Mapping[str, Sequence[Solution]]

    @property
    def name(self) -> str:
        return "judging"

    def begin(self, problem: Problem, tools: Tools, spending: Spending) -> Strategy:
        solutions = yield from scored(list(self.groups[problem.id]), tools, rank_by="scorer")
        return Found(problem_id=problem.id, solution=None, candidates=tuple(solutions))


def as_backend(model: Any, tokenizer: Any = None) -> GenBackend:
    """A backend as it is, or one of a model's path, hub name or object."""
    return model if hasattr(model, "continue_from") else HFBackend(model, tokenizer)


def as_solution(problem: Problem, given: "str | Mapping[str, Any] | Solution") -> Solution:
    """A solution from a text, or from a mapping with `solution` and perhaps `score`."""
    if isinstance(given, Solution):
        return given
    if isinstance(given, str):
        return Solution(problem_id=problem.id, text=given)
    text = given.get("solution", given.get("text"))
    if not isinstance(text, str):
        raise ValueError(f"a solution without a text: {str(dict(given))[:80]}; write {{'solution': ...}}")
    return Solution(problem_id=problem.id, text=text, score=given.get("score"))
