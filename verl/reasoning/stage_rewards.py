"""Rewards that follow each other in a training: explore, exploit, refine (`StageRewardSchedule`).

One decision: the phase is a pure function of the step, and neighbours cross-fade in a straight line, so that the
reward has no jump. What each phase counted for is among the components.

    >>> reward = stage_schedule({"exploration": diversity_reward, "exploitation": accuracy_reward,
    ...                          "refinement": combined_reward})
    >>> reward.weights(10, 300)
    {'exploration': 1.0}
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from verl.reasoning import cot_rewards
from verl.reasoning.compound import CompoundRewardFunction
from verl.reasoning.records import Problem, Solution
from verl.reasoning.rewards import Reward, RewardContext, RewardResult, as_reward, score
from verl.reasoning.scoring import math_reward

STAGES = ("exploration", "exploitation", "refinement")
"""Keys of the original's `stage_rewards`, in their order."""
BLEND = 0.05
"""Share of a training over which one phase becomes the next, half of it on each side of the border."""


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A reward and how long it counts."""

    name: str
    """For the log."""
    reward: Reward
    """What is scored with."""
    until: float
    """Share of the training at which it ends."""


class StageRewardSchedule:
    """A reward that is another one as training goes on; needs `context.step` and `context.total_steps`."""

    is_reward = True
    reward_range = (0.0, 1.0)

    def __init__(self, phases: Sequence[tuple[str, Callable[..., Any], float]], blend: float = BLEND) -> None:
        """Phases are triples (name, reward function, share of the training at which it ends).

        Raises:
            ValueError: shares that do not rise to 1, a name twice, or a blend that is longer than a phase.
        """
        self.phases = tuple(Phase(name=name, reward=as_reward(fn), until=until) for name, fn, until in phases)
        ends = [0.0, *(phase.until for phase in self.phases)]
        if len(ends) < 2 or any(b <= a for a, b in pairwise(ends)) or abs(ends[-1] - 1) > 1e-9:
            raise ValueError(f"phases end at {ends[1:]}; write shares that rise to 1, for instance 0.33, 0.67, 1.0")
        if len({phase.name for phase in self.phases}) < len(self.phases):
            raise ValueError("two phases have one name; give each its own")
        if not 0 <= blend <= min(b - a for a, b in pairwise(ends)):
            raise ValueError(f"blend={blend} is negative or longer than a phase; write a smaller one")
        self.blend = blend

    def weights(self, step: int, total_steps: int) -> dict[str, float]:
        """What each phase counts at a step; those that count nothing are left out, and the others' sum is 1."""
        done = min(1.0, max(0.0, step / max(1, total_steps)))
        found: dict[str, float] = {}
        left = 1.0
        for phase in self.phases[:-1]:
            over = (done - (phase.until - self.blend / 2)) / self.blend if self.blend else float(done >= phase.until)
            ended = min(1.0, max(0.0, over))
            found[phase.name], left = left * (1 - ended), left * ended
        found[self.phases[-1].name] = left
        return {name: weight for name, weight in found.items() if weight > 0}

    def phase(self, step: int, total_steps: int) -> str:
        """The phase that counts most at a step; the earlier of two that count the same."""
        weights = self.weights(step, total_steps)
        return max(weights, key=lambda name: weights[name])

    async def __call__(self, problem: Problem, solution: Solution, context: RewardContext) -> RewardResult:
        """The weighted sum of the phases that count at this step; not valid if one of them is not."""
        weights = self.weights(context.step, context.total_steps)
        total, parts, last = 0.0, {}, None
        for phase in self.phases:
            if phase.name not in weights:
                continue
            said = await score(phase.reward, problem, solution, context)
            if said.score is None:
                return replace(said, note=f"{phase.name}: {said.note}")
            total += weights[phase.name] * said.score
            parts[f"phase/{phase.name}"] = weights[phase.name]
            parts |= {f"{phase.name}/{name}": value for name, value in said.components.items()}
            last = said if last is None or weights[phase.name] >= 0.5 else last
        assert last is not None
        return replace(last, score=total, components=parts)

    @property
    def group_correctness(self) -> Reward | None:
        """The correctness that a phase needs to be told of a whole group first."""
        return next((one for phase in self.phases if (one := getattr(phase.reward, "group_correctness", None))), None)


def stage_schedule(stage_rewards: Mapping[str, Callable[..., Any]], blend: float = BLEND) -> StageRewardSchedule:
    """The original's dictionary of stage rewards, each for as long as the others.

    Raises:
        ValueError: another key than those of `STAGES`, or none at all.
    """
    unknown = sorted(set(stage_rewards) - set(STAGES))
    if unknown or not stage_rewards:
        raise ValueError(f"stage_rewards has {unknown or 'no key'}; write any of {', '.join(STAGES)}")
    names = [name for name in STAGES if name in stage_rewards]
    ends = [(i + 1) / len(names) for i in range(len(names))]
    return StageRewardSchedule([(name, stage_rewards[name], end) for name, end in zip(names, ends, strict=True)], blend)


@dataclass(frozen=True, kw_only=True)
class DiversityReward:
    """Correct and unlike the group's other correct solutions: c * (1 - share + share * novelty).

    Novelty is 1 less the highest similarity to another correct solution of the group; 1 where there is none.
    """

    correctness: Callable[..., Any]
    """A reward."""
    share: float = 0.5
    """What novelty counts, 0 to 1."""
    similarity: Callable[[str, str], float] = cot_rewards.similarity
    """Of two texts, 0 to 1."""

    is_reward = True
    reward_range = (0.0, 1.0)

    async def __call__(self, problem: Problem, solution: Solution, context: RewardContext) -> RewardResult:
        """The reward with its parts."""
        said = await score(self.group_correctness, problem, solution, context)
        if said.score is None:
            return said
        others = [one.text for one in _others(solution, context) if one.correct]
        novelty = 1 - max((self.similarity(solution.text, other) for other in others), default=0.0)
        total = said.score * (1 - self.share + self.share * novelty)
        return replace(said, score=total, components={"correctness": said.score, "novelty": novelty})

    @property
    def group_correctness(self) -> Reward:
        """`score_solutions` asks it first, so that a group's right solutions are known."""
        return as_reward(self.correctness)


def _others(solution: Solution, context: RewardContext) -> list[Solution]:
    """The group without this solution, once."""
    rest = list(context.group)
    mine = next((i for i, one in enumerate(rest) if one is solution or one.text == solution.text), None)
    if mine is not None:
        del rest[mine]
    return rest


def diversity_reward(problem: Problem, solution: Solution, context: RewardContext) -> Awaitable[RewardResult]:
    """Correct by math-verify, and unlike the group's other correct solutions."""
    return _DIVERSITY(problem, solution, context)


def accuracy_reward(problem: Problem, solution: Solution, context: RewardContext) -> Awaitable[RewardResult]:
    """Correct by math-verify."""
    return _ACCURACY(problem, solution, context)


def combined_reward(problem: Problem, solution: Solution, context: RewardContext) -> Awaitable[RewardResult]:
    """Correct by math-verify, clear and short: `CompoundRewardFunction` with its usual weights."""
    return _COMBINED(problem, solution, context)


_ACCURACY = math_reward()
_DIVERSITY = DiversityReward(correctness=_ACCURACY)
_COMBINED = CompoundRewardFunction()
for _function, _reward in ((diversity_reward, _DIVERSITY), (accuracy_reward, _ACCURACY), (combined_reward, _COMBINED)):
    _function.is_reward = True  # type: ignore[attr-defined]
    _function.group_correctness = getattr(_reward, "group_correctness", None)  # type: ignore[attr-defined]
