"""`ChainOfThoughtTrainer`: stage 2, the same training with a reward for how a solution is thought.

One decision: it is `PureRLTrainer` with another reward (`cot_reward.CoTReward`), whose answer part is the one that it
is given; so style never pays for a wrong answer, unless `mode="weighted"` says so.

    >>> trainer = ChainOfThoughtTrainer(CoTConfig(model_name="models/base"), reward_fn)
    >>> trainer.train_with_cot_rewards(problems, num_iterations=100)
    >>> trainer.cot_emergence_metrics["avg_thinking_steps"]
"""

from collections.abc import Callable
from typing import Any

from verl.reasoning.cot_reward import CoTReward, emergence_metrics
from verl.reasoning.reading import read_solution
from verl.reasoning.records import Solution, as_problems
from verl.reasoning.rewards import Reward
from verl.reasoning.rl.config import CoTConfig
from verl.reasoning.rl.trainer import Given, PureRLTrainer, TrainResult
from verl.reasoning.scoring import score_solutions

_MEASURED = 16
"""Problems whose solutions are measured after training."""


class ChainOfThoughtTrainer(PureRLTrainer):
    """Trains with the reward of the chain of thought."""

    stage = "cot"
    config: CoTConfig

    def __init__(self, config: CoTConfig, reward_fn: Callable[..., Any]) -> None:
        """As `PureRLTrainer`; `reward_fn` scores the answer."""
        super().__init__(config, reward_fn)
        self.cot_reward = CoTReward(correctness=self.reward, settings=config.reward_settings(), tags=config.tags())
        self.cot_emergence_metrics: dict[str, float | None] = dict(emergence_metrics([]))
        """`avg_thinking_steps`, `step_clarity_scores`, `logical_flow_scores`, `answer_quality_scores` of the model as
        it is now; None before a training."""

    def train_with_cot_rewards(self, problems: Given, num_iterations: int = 1000) -> TrainResult:
        """As `train`; measures afterwards what the thoughts of the trained model are like."""
        asked = as_problems(problems)
        result = self.train(asked, num_iterations)
        self.cot_emergence_metrics = dict(emergence_metrics(self._scored(asked[:_MEASURED])))
        return result

    def responses(self, problems: Given) -> list[dict[str, Any]]:
        """What the model as it is now answers, with the original's keys: thinking_steps, final_answer, all_tokens,
        all_log_probs, full_response; and the reward with its parts."""
        asked = as_problems(problems)
        drawn = self.collect_trajectories(asked)
        ids = {one.problem: one.id for one in asked}
        solutions = [self._read(one["response"], ids[one["problem"]]) for one in drawn]
        scored = score_solutions(self.cot_reward, asked, solutions).solutions
        return [
            {
                "problem": one["problem"],
                "thinking_steps": [step.text for step in solution.steps],
                "final_answer": solution.final_answer or solution.answer_text,
                "all_tokens": one["tokens"],
                "all_log_probs": one["log_probs"],
                "full_response": one["response"],
                "reward": solution.score,
                "components": dict(solution.reward),
            }
            for one, solution in zip(drawn, scored, strict=True)
        ]

    def _training_reward(self) -> Reward:
        return self.cot_reward

    def _read(self, text: str, name: str) -> Solution:
        return read_solution(text, problem_id=name, tags=self.config.tags())

    def _scored(self, problems: Given) -> list[Solution]:
        asked = as_problems(problems)
        ids = {one.problem: one.id for one in asked}
        solutions = [self._read(one["response"], ids[one["problem"]]) for one in self.collect_trajectories(asked)]
        return list(score_solutions(self.cot_reward, asked, solutions).solutions)
