"""What a thought is worth to a frozen reader: how much likelier it makes the right answer, how much is needed.

One decision: the reader's own log-probabilities, per token of the gold answer, with and without the thought; nothing is
sampled, so that the number has no noise.

    >>> useful = Usefulness(backend=HFBackend("reader"))
    >>> useful.gains([problem], [solution])                  # [Delta], in nats per gold token
    >>> reward = CoTReward(settings=CoTRewardSettings(usefulness_weight=0.2), usefulness=useful)
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from verl.reasoning.backends import GenBackend, SamplingParams
from verl.reasoning.reading import Tags
from verl.reasoning.records import Problem, Solution
from verl.reasoning.rewards import RewardContext, RewardResult, failed
from verl.reasoning.scoring import score_solutions

CUTS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of a thought that the reader is shown in `truncation_curve`."""


@dataclass(frozen=True, kw_only=True)
class Usefulness:
    """A reward of 0 to 1: 0 where the thought helps the reader not, or misleads it; tanh(Delta / 2) else."""

    backend: GenBackend
    """The reader."""
    tags: Tags = field(default_factory=Tags)
    """Marks between which it is shown the thought."""
    cue: str = "The answer is "
    """Between the thought and the gold answer."""

    is_reward = True
    reward_range = (0.0, 1.0)

    async def __call__(self, problem: Problem, solution: Solution, context: RewardContext) -> RewardResult:
        """The reward of one solution; without a gold answer it has none."""
        (gain,) = await asyncio.to_thread(self.gains, [problem], [solution])
        if gain is None:
            return failed("the problem has no gold answer, or its tokens have no log-probabilities")
        return RewardResult(score=squash(gain), components={"gain": gain})

    def gains(self, problems: Sequence[Problem], solutions: Sequence[Solution]) -> list[float | None]:
        """Delta = log p(gold | problem, thought) - log p(gold | problem), per gold token, in nats.

        None without a gold answer.
        """
        known = [i for i, one in enumerate(problems) if one.answer]
        prompts = [problems[i].problem for i in known]
        gold = [str(problems[i].answer) for i in known]
        shown = [self._head(solutions[i].thinking) for i in known]
        bare = self._head("")
        texts = [head + answer for head, answer in zip(shown + [bare] * len(known), gold * 2, strict=True)]
        read = self.backend.log_probs(prompts * 2, texts)
        means = [_tail_mean(tokens, len(answer)) for tokens, answer in zip(read, gold * 2, strict=True)]
        gains: list[float | None] = [None] * len(problems)
        for place, i in enumerate(known):
            with_thought, without = means[place], means[place + len(known)]
            if with_thought is not None and without is not None:
                gains[i] = with_thought - without
        return gains

    def _head(self, thought: str) -> str:
        return f"{self.tags.thinking}{thought}{self.tags.thinking_end}{self.cue}"


def squash(gain: float) -> float:
    """A gain as a reward: 0 for none or less, towards 1 for much."""
    return math.tanh(max(0.0, gain) / 2)


def truncation_curve(
    backend: GenBackend,
    reward: Callable[..., Any],
    problems: Sequence[Problem],
    solutions: Sequence[Solution],
    *,
    cuts: Sequence[float] = CUTS,
    tags: Tags | None = None,
    sampling: SamplingParams | None = None,
) -> dict[float, float | None]:
    """Share of cut -> accuracy of the reader's answers behind that part of each thought; None where none was scored.

    A thought is cut at a word. What fails is left out.
    """
    tags = tags or Tags()
    curve: dict[float, float | None] = {}
    for cut in cuts:
        heads = [f"{tags.thinking}{_first(one.thinking, cut)}{tags.thinking_end}" for one in solutions]
        written = backend.continue_from([one.problem for one in problems], heads, sampling=sampling)
        answers = [
            Solution(problem_id=problem.id, text=completion.text, answer_text=completion.text)
            for problem, (completion, *_) in zip(problems, written, strict=True)
            if completion.ok
        ]
        scored = [one.score for one in score_solutions(reward, problems, answers).solutions if one.score is not None]
        curve[cut] = sum(scored) / len(scored) if scored else None
    return curve


def _first(thought: str, share: float) -> str:
    words = thought.split(" ")
    return " ".join(words[: round(share * len(words))])


def _tail_mean(tokens: Sequence[tuple[str, float]], letters: int) -> float | None:
    """Mean over the tokens that hold the last `letters` characters of the text."""
    found: list[float] = []
    for text, log_prob in reversed(tokens):
        if letters <= 0:
            break
        if text:
            found.append(log_prob)
        letters -= len(text)
    return math.fsum(found) / len(found) if found and all(map(math.isfinite, found)) else None
