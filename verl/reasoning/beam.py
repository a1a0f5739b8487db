"""`BeamSearchSampler`: solutions by search over steps, with a scorer that rejects bad beginnings.

One decision: it is a face of `search.StepBeam` and `search.DVTS`; the reward is asked of whole solutions only, and
chooses nothing.

    >>> sampler = BeamSearchSampler(model, tokenizer, reward_fn, beam_size=5, scorer=prm)
    >>> sampler.beam_search_with_rejection("What is 3 + 4?", max_length=512)[0]["solution"]
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from verl.reasoning.blocking import await_here
from verl.reasoning.records import as_problem
from verl.reasoning.rejection import Given, as_backend
from verl.reasoning.rewards import RewardContext, as_reward, score_together
from verl.reasoning.search.beam import DVTS, StepBeam
from verl.reasoning.search.driver import Search
from verl.reasoning.search.moves import best_first
from verl.reasoning.search.tools import Tools
from verl.reasoning.step_scorer import StepScorer


class BeamSearchSampler:
    """Beam search over steps."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        reward_fn: Callable[..., Any],
        beam_size: int = 5,
        *,
        scorer: StepScorer | None = None,
        tools: Tools | None = None,
        width: int = 4,
        max_steps: int = 40,
        step_tokens: int = 256,
        reject_threshold: float | None = 0.5,
        lookahead: int = 0,
        strategy: Literal["beam", "dvts"] = "beam",
    ) -> None:
        """Loads nothing.

        Args:
            model: path, hub name, a model of transformers, or a `GenBackend`.
            tokenizer: of a model object; None otherwise.
            reward_fn: scores the whole solutions, as for `as_reward`.
            beam_size: paths that are kept; with `dvts` subtrees.
            scorer: of steps; None: how likely the model finds a path.
            tools: sampling, ends of steps, how answers are read; None: as usual.
            width: continuations of each path.
            max_steps, step_tokens, reject_threshold, lookahead: as in `StepBeam`; the last two for `beam`.
            strategy: who competes with whom.

        Raises:
            ValueError: the strategy is unknown.
        """
        if strategy not in ("beam", "dvts"):
            raise ValueError(f"strategy={strategy!r} is unknown; write beam or dvts")
        backend = as_backend(model, tokenizer)
        self.reward = as_reward(reward_fn)
        self.tools = dataclasses.replace(
            tools or Tools(backend=backend), backend=backend, scorer=scorer, reward=self.reward
        )
        self.search: Search = (
            DVTS(subtrees=beam_size, width=width, max_steps=max_steps, step_tokens=step_tokens)
            if strategy == "dvts"
            else StepBeam(
                keep=beam_size,
                width=width,
                max_steps=max_steps,
                step_tokens=step_tokens,
                reject_threshold=reject_threshold,
                lookahead=lookahead,
            )
        )

    def beam_search_with_rejection(self, problem: Given, max_length: int = 512) -> list[dict[str, Any]]:
        """Solutions, best beam first.

        Keys: solution, beam_score (of its steps), final_score (the reward's; None: it failed), length (tokens),
        final_answer, finish_reason, fallback (whether a step had only rejected continuations, of which the best went
        on).

        Args:
            problem: a text, a mapping or a problem.
            max_length: most tokens of a solution.
        """
        asked = as_problem(problem)
        sampling = dataclasses.replace(self.tools.sampling, max_tokens=max_length)
        found = self.search.run(asked, dataclasses.replace(self.tools, sampling=sampling))
        solutions = [found.candidates[i] for i in best_first(found.candidates)]
        results = await_here(
            score_together(self.reward, [(asked, one) for one in solutions], RewardContext(stage="beam_search"))
        )
        return [
            {
                "solution": one.text,
                "beam_score": one.score,
                "final_score": result.score if result.valid else None,
                "length": one.n_tokens,
                "final_answer": one.final_answer,
                "finish_reason": one.finish_reason,
                "fallback": found.fallback,
            }
            for one, result in zip(solutions, results, strict=True)
        ]
