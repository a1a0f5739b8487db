"""What a search works with: who writes, who judges, how answers are read, and how much may be spent.

One decision: everything that differs between two machines or two scorers is here, and nothing of it in a strategy.

    >>> tools = Tools(backend=backend, scorer=prm, sampling=SamplingParams(max_tokens=256), budget=Budget(tokens=2048))
    >>> StepBeam(keep=2, width=4).run(problem, tools).solution.final_answer
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from verl.reasoning.answers import Answers
from verl.reasoning.backends import Completion, GenBackend, SamplingParams
from verl.reasoning.records import Problem, Solution
from verl.reasoning.rewards import Reward
from verl.reasoning.search.requests import Ask, Budget
from verl.reasoning.step_scorer import StepScorer

Aggregate = Callable[[Sequence[float]], float]
"""One number for a solution, from those of its steps (one or more)."""

AGGREGATES: Mapping[str, Aggregate] = {
    "prod": math.prod,
    "min": min,
    "last": lambda scores: scores[-1],
    "mean": lambda scores: sum(scores) / len(scores),
}
"""The usual ones, by name."""

RankBy = Literal["scorer", "log_prob", "reward"]


@dataclass(frozen=True, kw_only=True)
class Tools:
    """Shared by all searches of a comparison."""

    backend: GenBackend
    """Who writes."""
    scorer: StepScorer | None = None
    """Who judges steps; None: solutions are ranked by how likely the model finds them. One that counts what it reads
    and writes, in an attribute `tokens_used`, is believed; else what it is shown is counted in the backend's tokens."""
    reward: Reward | None = None
    """What decides whether a solution is right (`as_reward`). It may know the gold answer, so only strategies that are
    told `rank_by="reward"` ask it: those make training data."""
    answers: Answers = field(default_factory=Answers)
    """How answers are read and compared."""
    sampling: SamplingParams = field(default_factory=SamplingParams)
    """Of whole solutions; `max_tokens` bounds a solution also where it is written in steps."""
    step_stop: tuple[str, ...] = ("\n\n",)
    """Texts that end a step."""
    split: Callable[[str], Sequence[str]] | None = None
    """Cuts a text into steps; None: behind each text of `step_stop`."""
    aggregate: Aggregate = math.prod
    """Of a solution's step scores."""
    budget: Budget | None = None
    """For each problem; None: no limit."""

    @property
    def rank_by(self) -> RankBy:
        """What ranks solutions where nothing else is said."""
        return "log_prob" if self.scorer is None else "scorer"

    def steps(self, text: str) -> list[str]:
        """The steps of a text that have words in them."""
        cut = self.split(text) if self.split is not None else split_behind(text, self.step_stop)
        return [step for step in cut if step.strip()]

    def score(self, numbers: Sequence[float | None]) -> float | None:
        """One number for a solution; None where a step has none, or there are no steps."""
        known = [number for number in numbers if number is not None]
        return self.aggregate(known) if known and len(known) == len(numbers) else None

    def solution(self, problem: Problem, ask: Ask, completion: Completion) -> Solution:
        """A whole solution from what was written behind a prefix.

        Raises:
            ValueError: nothing was written.
        """
        if not completion.ok:
            raise ValueError(f"nothing was written ({completion.error}); count it, and leave it out")
        text = ask.prefix + completion.text
        thinking, output = self.answers.parts(text)
        told = completion.log_probs
        return Solution(
            problem_id=problem.id,
            text=text,
            thinking=thinking,
            answer_text=output or "",
            final_answer=self.answers.read(problem, text),
            n_tokens=len(completion.token_ids),
            finish_reason=completion.finish_reason,
            log_prob=sum(told) / len(told) if told else None,
            seed=completion.seed,
            model=f"{self.backend.model}@{self.backend.revision}",
            sampling={"temperature": ask.sampling.temperature, "top_p": ask.sampling.top_p, "seed": ask.sampling.seed},
        )


def split_behind(text: str, stops: Sequence[str]) -> list[str]:
    """The pieces of a text, each with the stop text that ends it; joined they are the text."""
    pieces: list[str] = []
    start = 0
    while start < len(text):
        ends = [text.find(stop, start) + len(stop) for stop in stops if text.find(stop, start) >= 0]
        end = min(ends, default=len(text))
        pieces.append(text[start:end])
        start = end
    return pieces
