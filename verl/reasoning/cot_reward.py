"""The reward of chain-of-thought training: the answer, how it was thought, and the format (`CoTReward`).

One decision: gated by default. What the thought earns is multiplied with what the answer earns, so that no style pays
for a wrong answer; "weighted" is the original's sum.

    >>> reward = CoTReward(settings=CoTRewardSettings(force_thinking_steps=3))
    >>> score_solutions(reward, problems, solutions).solutions[0].reward
    {'answer': 1.0, 'thinking': 0.71, 'clarity': 0.8, ..., 'format': 1.0}
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from verl.reasoning import cot_rewards
from verl.reasoning.reading import Tags, is_well_formed, read_solution
from verl.reasoning.records import Problem, Solution
from verl.reasoning.rewards import Reward, RewardContext, RewardResult, as_reward, score
from verl.reasoning.scoring import math_reward
from verl.reasoning.shaping import cosine_length, repetition


@dataclass(frozen=True, kw_only=True)
class CoTWeights:
    """What counts how much, whatever a solution's limits are; the one home of these defaults."""

    mode: Literal["gated", "weighted"] = "gated"
    """gated: the thought counts only as far as the answer is right; weighted: it counts by itself."""
    thinking_reward_weight: float = 0.3
    """Of the thought."""
    answer_reward_weight: float = 0.7
    """Of the answer."""
    step_clarity_weight: float = 0.2
    """Of clarity in the thought; these three are divided by their sum."""
    logical_flow_weight: float = 0.3
    """Of flow in the thought."""
    completeness_weight: float = 0.2
    """Of completeness in the thought."""
    format_weight: float = 0.1
    """Of the format, mode gated only; right or wrong."""
    language_weight: float = 0.0
    """Of the share of words in `language`, gated like the thought."""
    usefulness_weight: float = 0.0
    """Of what the thought is worth to a frozen reader, gated like the thought; needs `usefulness`."""
    force_thinking_steps: int = 3
    """Distinct steps of a complete thought."""
    gate_floor: float = 0.0
    """What of the thought's reward a wrong answer still earns, mode gated only; 0 to 1."""
    language: str = "en"
    """See `cot_rewards.SCRIPTS`."""
    length_shaping: Literal["none", "cosine"] = "none"
    """cosine: a right answer earns 1 with the shortest solution, half with one of `max_length` tokens."""
    penalty_repetition: float = 0.0
    """Taken off for the share of 4-grams of words that are repeated, times this."""

    def __post_init__(self) -> None:
        """Refuses weights of which nothing can be made.

        Raises:
            ValueError: says what to write instead.
        """
        weights = {name: value for name, value in vars(self).items() if name.endswith("_weight")}
        low = [name for name, value in weights.items() if not 0 <= value < float("inf")]
        if low:
            raise ValueError(f"{low[0]}={weights[low[0]]}; write a weight of 0 or more")
        if self.step_clarity_weight + self.logical_flow_weight + self.completeness_weight == 0:
            raise ValueError("all weights of the thought's parts are 0; write one above 0, or thinking_reward_weight=0")
        if self.thinking_reward_weight + self.answer_reward_weight == 0:
            raise ValueError("thinking_reward_weight and answer_reward_weight are 0; write one above 0")
        if not 0 <= self.gate_floor <= 1 or self.penalty_repetition < 0:
            raise ValueError("write 0 <= gate_floor <= 1 and penalty_repetition >= 0")


@dataclass(frozen=True, kw_only=True)
class CoTRewardSettings(CoTWeights):
    """The same, with the length that a solution may have."""

    max_length: int = 1280
    """Tokens; words where a solution's are not known. For `length_shaping`."""


@dataclass(frozen=True, kw_only=True)
class CoTReward:
    """The reward, 0 to 1: a weighted mean of its parts. Can be handed wherever a reward is."""

    correctness: Callable[..., Any] = field(default_factory=math_reward)
    """Scores the answer part alone; when it fails there is no reward."""
    settings: CoTRewardSettings = field(default_factory=CoTRewardSettings)
    """Weights and targets."""
    tags: Tags = field(default_factory=Tags)
    """Marks of the parts."""
    opened: bool = False
    """The prompt ends with the mark that opens the thought."""
    usefulness: Reward | None = None
    """A reward that says what the thought is worth to a reader (`usefulness.Usefulness`)."""

    is_reward = True
    reward_range = (0.0, 1.0)

    def __post_init__(self) -> None:
        """Refuses a weight without what it weighs.

        Raises:
            ValueError: says what to write instead.
        """
        if self.settings.usefulness_weight and self.usefulness is None:
            raise ValueError("usefulness_weight without a reader; write usefulness=Usefulness(backend), or 0")

    async def __call__(self, problem: Problem, solution: Solution, context: RewardContext) -> RewardResult:
        """The reward with its parts."""
        known = solution
        if not solution.thinking and not solution.answer_text:
            read = read_solution(solution.text, tags=self.tags, opened=self.opened)
            known = replace(solution, thinking=read.thinking, answer_text=read.answer_text, steps=read.steps)
        answer = known if known.thinking else replace(known, answer_text=known.answer_text or known.text)
        said = await score(as_reward(self.correctness), problem, answer, context)
        if not said.valid or said.score is None:
            return said
        parts = {"answer": said.score, **self.style(known)}
        if self.usefulness is not None and self.settings.usefulness_weight:
            worth = await score(self.usefulness, problem, known, context)
            if not worth.valid or worth.score is None:
                return worth
            parts["usefulness"] = worth.score
        total = combine(parts, self.settings, length=length_of(known), repeated=repetition(known.text))
        return replace(said, score=total, components=parts)

    def style(self, solution: Solution) -> dict[str, float]:
        """The parts that follow from the text alone, 0 to 1."""
        settings = self.settings
        steps = [step.text for step in solution.steps] if solution.thinking else []
        clear, flows = cot_rewards.clarity(steps), cot_rewards.flow(steps) if steps else 0.0
        complete = cot_rewards.completeness(steps, force_thinking_steps=settings.force_thinking_steps)
        weights = settings.step_clarity_weight, settings.logical_flow_weight, settings.completeness_weight
        thinking = sum(w * part for w, part in zip(weights, (clear, flows, complete), strict=True)) / sum(weights)
        return {
            "thinking": thinking,
            "clarity": clear,
            "flow": flows,
            "completeness": complete,
            "format": float(is_well_formed(solution.text, tags=self.tags, opened=self.opened)),
            "language": cot_rewards.language_share(solution.thinking or solution.text, settings.language),
        }


def combine(parts: dict[str, float], settings: CoTRewardSettings, *, length: int = 0, repeated: float = 0.0) -> float:
    """The reward from its parts, 0 to 1: their weighted mean, less what repetition costs.

    Args:
        parts: `answer`, `thinking`, `format`, `language`, and `usefulness` where it has a weight.
        settings: weights.
        length: of the solution, for `length_shaping`.
        repeated: share of repeated 4-grams.
    """
    right = parts["answer"]
    if settings.length_shaping == "cosine":
        right *= cosine_length(correct=True, length=length, max_length=settings.max_length)
    style = {
        "thinking": settings.thinking_reward_weight,
        "language": settings.language_weight,
        "usefulness": settings.usefulness_weight,
    }
    earned = sum(weight * parts.get(name, 0.0) for name, weight in style.items())
    weights = settings.answer_reward_weight + sum(style.values())
    if settings.mode == "gated":
        earned *= settings.gate_floor + (1 - settings.gate_floor) * parts["answer"]
        earned += settings.format_weight * parts["format"]
        weights += settings.format_weight
    total = (settings.answer_reward_weight * right + earned) / weights
    return min(1.0, max(0.0, total - settings.penalty_repetition * repeated))


def length_of(solution: Solution) -> int:
    """In tokens; in words where the engine did not count."""
    return solution.n_tokens or len(solution.text.split())


def emergence_metrics(results: Sequence[Solution]) -> dict[str, float | None]:
    """Means over scored solutions, by the original's names; None where none is scored."""
    known = [one for one in results if one.score is not None and one.reward]

    def mean(values: Sequence[float]) -> float | None:
        return sum(values) / len(values) if values else None

    return {
        "avg_thinking_steps": mean([float(len(one.steps) if one.thinking else 0) for one in known]),
        "step_clarity_scores": mean([one.reward["clarity"] for one in known]),
        "logical_flow_scores": mean([one.reward["flow"] for one in known]),
        "answer_quality_scores": mean([one.reward["answer"] for one in known]),
    }
