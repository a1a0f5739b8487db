"""`DiversityAwareSampler`: several good solutions that are unlike each other, and one answer out of several.

One decision: being different is worth something only among solutions that are accepted.

    >>> sampler = DiversityAwareSampler(model, tokenizer, reward_fn, RejectionSamplingConfig(num_samples=16))
    >>> solutions = sampler.sample_diverse_solutions(problem, num_diverse=5)
    >>> sampler.ensemble_solutions(problem, solutions)["ensemble_solution"]
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from verl.reasoning.blocking import await_here
from verl.reasoning.mmr import clusters, select, without_near_copies
from verl.reasoning.pools import with_result
from verl.reasoning.records import Problem, Solution, as_problem
from verl.reasoning.rejection import Given, RejectionSampler, as_solution
from verl.reasoning.rewards import RewardContext, score_together
from verl.reasoning.search.sampling import Ensemble


class DiversityAwareSampler(RejectionSampler):
    """A `RejectionSampler` that looks for different solutions."""

    def sample_diverse_solutions(self, problem: Given, num_diverse: int = 5) -> list[dict[str, Any]]:
        """At most `num_diverse` accepted solutions: drawn, held against the threshold, without near copies, by MMR.

        Keys: problem, solution, score, diversity_rank (from 0), mmr, max_sim (to an earlier one), cluster,
        final_answer.
        """
        config = self.config
        (pool,) = self._pools([as_problem(problem)], most=config.num_samples * config.oversample, adaptive=False)
        accepted = pool.accepted
        if not accepted:
            return []
        ranks = self._ranks(accepted, [pool])
        values = [ranks[id(one)] for one in accepted]
        sims = self._measure()([one.text for one in accepted])
        numbers = clusters(sims, threshold=config.dedup_threshold)
        kept = without_near_copies(values, sims, threshold=config.dedup_threshold)
        picks = select(
            [values[i] for i in kept],
            sims[kept][:, kept],
            count=num_diverse,
            weight=config.mmr_lambda,
            lengths=[accepted[i].n_tokens for i in kept],
        )
        return [
            {
                "problem": pool.problem.problem,
                "solution": accepted[kept[pick.index]].text,
                "score": accepted[kept[pick.index]].score,
                "diversity_rank": place,
                "mmr": pick.mmr,
                "max_sim": pick.max_sim,
                "cluster": numbers[kept[pick.index]],
                "final_answer": accepted[kept[pick.index]].final_answer,
            }
            for place, pick in enumerate(picks)
        ]

    def ensemble_solutions(
        self,
        problem: Given,
        solutions: Sequence[str | Mapping[str, Any] | Solution],
        *,
        synthesise: bool = False,
    ) -> dict[str, Any]:
        """A vote over the answers of solutions; of the winning answer the best whole solution.

        Keys: problem, ensemble_solution, ensemble_score, num_components, individual_scores, score_improvement (over
        their mean), answer, votes, agreement, method (vote, best or synthesis).

        Args:
            problem: of the solutions.
            solutions: texts, or what `sample_diverse_solutions` returns. Those without a score are scored.
            synthesise: let the model merge the winners; the merged text counts only if it gives their answer and
                scores as high as the best of them.

        Raises:
            ValueError: there are no solutions.
        """
        asked = as_problem(problem)
        members = self._scored(asked, [as_solution(asked, one) for one in solutions])
        if not members:
            raise ValueError("there is nothing to vote on; give one solution or more")
        ensemble = Ensemble(
            given=tuple(members), weighted=self.config.vote == "weighted", synthesise=synthesise, rank_by="reward"
        )
        found = ensemble.run(asked, self.tools)
        assert found.solution is not None
        scores = [one.score for one in members if one.score is not None]
        best = found.solution.score
        return {
            "problem": asked.problem,
            "ensemble_solution": found.solution.text,
            "ensemble_score": best,
            "num_components": len(members),
            "individual_scores": [one.score for one in members],
            "score_improvement": best - sum(scores) / len(scores) if best is not None and scores else 0.0,
            "answer": found.details["answer"],
            "votes": found.details["votes"],
            "agreement": found.details["agreement"],
            "method": found.details["method"],
        }

    def _scored(self, problem: Problem, solutions: Sequence[Solution]) -> list[Solution]:
        missing = [one for one in solutions if one.score is None]
        results = await_here(
            score_together(self.reward, [(problem, one) for one in missing], RewardContext(stage="ensemble"))
        )
        told = iter([with_result(one, result) for one, result in zip(missing, results, strict=True)])
        whole = [next(told) if one.score is None else one for one in solutions]
        read = self.tools.answers.read
        return [
            one if one.final_answer is not None else dataclasses.replace(one, final_answer=read(problem, one.text))
            for one in whole
        ]
