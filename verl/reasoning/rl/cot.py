"""`ChainOfThoughtTrainer`: the same training with a reward for how the model thinks, and its numbers.

One decision: a `CoTConfig` is a `PureRLConfig`, and the trainer is `PureRLTrainer` with another reward; so whatever
works there works here. How thoughts emerge is read from the rows that the run has written.

    >>> trainer = ChainOfThoughtTrainer(CoTConfig(model_name="models/policy", force_thinking_steps=3), reward_fn)
    >>> trainer.train_with_cot_rewards(problems, num_iterations=300)
    >>> trainer.cot_emergence_metrics["avg_thinking_steps"]

docs/reasoning_rl.md
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from verl.classmate.record import RowRecord
from verl.reasoning.cot_reward import CoTReward, CoTRewardSettings, CoTWeights, emergence_metrics
from verl.reasoning.reading import Tags, read_solution
from verl.reasoning.records import Problem, Solution, lines_of
from verl.reasoning.rewards import Reward, RewardContext, RewardResult, as_reward
from verl.reasoning.rl.config import PureRLConfig
from verl.reasoning.rl.presets import with_presets
from verl.reasoning.rl.trainer import Problems, PureRLTrainer, TrainResult
from verl.trainer.run.state import write_atomically

SEED: dict[str, Any] = {"mode": "weighted", "learning_rate": 1e-5, "batch_size": 4, "format_weight": 0.0}
"""Of the original document, where they differ."""
METRICS = "cot_metrics.jsonl"
"""In the run folder: `emergence_metrics` and the reward's parts of each step."""


@with_presets({"seed": SEED})
@dataclass(frozen=True, kw_only=True)
class CoTConfig(PureRLConfig, CoTWeights):
    """A training of chains of thought (spec section 3.2): what earns how much is in `CoTWeights`, the rest is as in
    `PureRLConfig`."""

    output_dir: str = "./cot_output"
    """Gets the run folders, the data and the reward that workers read."""
    max_thinking_length: int = 1024
    """Tokens of a thought."""
    max_answer_length: int = 256
    """Tokens of an answer; both together are the longest response."""
    max_prompt_length: int | None = 512
    """Tokens of a problem."""
    thinking_token: str = "<think>"
    """Opens a thought; a plain string, as the next two, and `</think>` closes it."""
    answer_token: str = "<answer>"
    """Opens the answer."""
    step_token: str = "<step>"
    """Opens a step, where the model marks steps."""
    prompt_template: str = (
        "{problem}\n\nThink in steps between {thinking} and {thinking_end}. "
        "Then write the answer alone between {answer} and {answer_end}."
    )
    """What the model is asked; the marks stand in place of their names."""

    def __post_init__(self) -> None:
        for name in ("max_thinking_length", "max_answer_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} is not above 0")
        for name in ("thinking_token", "answer_token", "step_token"):
            token = getattr(self, name)
            if len(token) < 3 or not token.startswith("<") or not token.endswith(">") or token.startswith("</"):
                raise ValueError(f"{name}={token!r} has no closing mark; write for instance '<think>'")
        if self.max_prompt_length is not None:
            length = self.max_prompt_length + self.max_thinking_length + self.max_answer_length
            object.__setattr__(self, "max_length", length)
        super().__post_init__()
        _ = self.settings

    @property
    def prompt_tokens(self) -> int:
        """Longest problem."""
        return self.max_length - self.response_tokens

    @property
    def response_tokens(self) -> int:
        """Longest response."""
        return self.max_thinking_length + self.max_answer_length

    @property
    def tags(self) -> Tags:
        """The marks."""
        return Tags(
            thinking=self.thinking_token,
            thinking_end=closing(self.thinking_token),
            answer=self.answer_token,
            answer_end=closing(self.answer_token),
            step=self.step_token,
        )

    @property
    def settings(self) -> CoTRewardSettings:
        """Of the reward."""
        names = [name for name in CoTRewardSettings.__dataclass_fields__ if name != "max_length"]
        return CoTRewardSettings(max_length=self.response_tokens, **{name: getattr(self, name) for name in names})

    @property
    def template(self) -> str:
        """The prompt with its marks, and `{problem}` still in it."""
        tags = self.tags
        marks = {"thinking": tags.thinking, "thinking_end": tags.thinking_end}
        marks |= {"answer": tags.answer, "answer_end": tags.answer_end, "step": tags.step}
        text = self.prompt_template
        for name, mark in marks.items():
            text = text.replace("{" + name + "}", mark)
        return text


def closing(token: str) -> str:
    """`</think>` for `<think>`."""
    return f"</{token[1:]}"


class ChainOfThoughtTrainer(PureRLTrainer):
    """Trains a policy on its answers and on how it thinks."""

    name = "cot"
    """Of its run folders."""

    config: CoTConfig

    def __init__(self, config: CoTConfig, reward_fn: Callable[..., Any], *, usefulness: Reward | None = None) -> None:
        """Nothing is loaded before it is needed.

        Args:
            config: of the training.
            reward_fn: scores the answer part alone: a function of (problem text, answer text), or of records. In place
                of the whole text it is shown what stands in the answer's marks.
            usefulness: says what a thought is worth to a reader (`usefulness.Usefulness`).

        Raises:
            TypeError: the reward takes neither two nor three arguments.
            ValueError: a weight for usefulness without a reader.
        """
        correctness = AnswerPart(reward=as_reward(reward_fn))
        cot = CoTReward(
            correctness=correctness, settings=config.settings, tags=config.tags, usefulness=usefulness, opened=False
        )
        super().__init__(config, Tagged(reward=cot))
        self.cot_reward = cot
        """What is trained on; the reward's parts are in `METRICS` of the run folder."""
        self.cot_emergence_metrics: dict[str, list[float]] = {name: [] for name in NAMES}
        """By name, a mean for each step of the last training."""

    def train_with_cot_rewards(
        self, problems: Problems, num_iterations: int = 1000, validation_problems: Problems | None = None
    ) -> TrainResult:
        """Trains as `train`; then `cot_emergence_metrics` holds a number for each step."""
        return self.train(problems, num_iterations, validation_problems)

    def train(
        self, problems: Problems, num_iterations: int = 1000, validation_problems: Problems | None = None
    ) -> TrainResult:
        """As `PureRLTrainer.train`, with the numbers of `cot_emergence_metrics`."""
        # Where the chat template has opened the thought, a response holds its closing mark alone.
        self._set_opened()
        result = super().train(problems, num_iterations, validation_problems)
        by_step = emergence(result.run_folder, self.config.tags, opened=self.cot_reward.opened)
        write_atomically(
            result.run_folder / METRICS, "".join(json.dumps({"step": k, **told}) + "\n" for k, told in by_step.items())
        )
        self.cot_emergence_metrics = {
            name: [number for told in by_step.values() if (number := told[name]) is not None] for name in NAMES
        }
        return result

    def _set_opened(self) -> None:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(str(self._start))
        if tokenizer.chat_template is None:
            return
        asked = [{"role": "user", "content": "?"}]
        prompt = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
        opened = str(prompt).rstrip().endswith(self.config.thinking_token)
        self.cot_reward = replace(self.cot_reward, opened=opened)
        self.reward_fn = self.reward = Tagged(reward=self.cot_reward)

    @property
    def _prompt_template(self) -> str:
        return self.config.template

    def generate_with_reasoning(self, problems: Problems) -> list[dict[str, Any]]:
        """Answers of the policy as it is now: `thinking_steps` (texts), `final_answer`, `all_tokens`, `all_log_probs`,
        `full_response`, and `reward` with its parts."""
        found = []
        for one in self.collect_trajectories(problems):
            solution = read_solution(one["response"], tags=self.config.tags, opened=self.cot_reward.opened)
            found.append(
                {
                    "problem": one["problem"],
                    "thinking_steps": [step.text for step in solution.steps] if solution.thinking else [],
                    "final_answer": solution.answer_text,
                    "all_tokens": one["tokens"],
                    "all_log_probs": one["log_probs"],
                    "full_response": one["response"],
                    "reward": one["reward"],
                    "reward_components": one["reward_components"],
                }
            )
        return found


NAMES = ("avg_thinking_steps", "step_clarity_scores", "logical_flow_scores", "answer_quality_scores")
"""Of `cot_emergence_metrics`, as in the original."""


@dataclass(frozen=True, kw_only=True)
class AnswerPart:
    """A reward of the answer part alone: what it is shown as the text is what stands in the answer's marks."""

    reward: Reward
    """The user's."""

    is_reward = True
    reward_range = (0.0, 1.0)

    async def __call__(self, problem: Problem, solution: Solution, context: RewardContext) -> RewardResult:
        """What the reward says of the answer; a response without one is wrong."""
        if not solution.answer_text.strip():
            return RewardResult(score=0.0, correct=False, note="no answer")
        return await self.reward(problem, replace(solution, text=solution.answer_text), context)


@dataclass(frozen=True, kw_only=True)
class Tagged:
    """A reward that reads each response by its own marks, whoever has read it before by the usual ones."""

    reward: CoTReward
    """That is asked."""

    is_reward = True
    reward_range = (0.0, 1.0)

    async def __call__(self, problem: Problem, solution: Solution, context: RewardContext) -> RewardResult:
        """What the reward says of the response."""
        read = read_solution(solution.text, tags=self.reward.tags, opened=self.reward.opened)
        known = replace(solution, thinking=read.thinking, answer_text=read.answer_text, steps=read.steps)
        return await self.reward(problem, known, context)


def emergence(folder: Path, tags: Tags, *, opened: bool = False) -> dict[int, dict[str, float | None]]:
    """How thoughts look at each step of a run: `NAMES`, by step.

    Args:
        folder: of the run, with the rows that it has written.
        tags: the marks.
        opened: the prompts end with the mark that opens a thought.
    """
    found = {}
    for path in (folder / "rollouts").glob("step_*.jsonl"):
        rows = [RowRecord.from_json(line) for line in lines_of(path.read_text()) if line.strip()]
        found[int(path.stem.removeprefix("step_"))] = rows_emergence(rows, tags, opened=opened)
    return dict(sorted(found.items()))


def rows_emergence(rows: Sequence[RowRecord], tags: Tags, *, opened: bool = False) -> dict[str, float | None]:
    """Means over scored rows: `NAMES`, and each part of the reward as `reward/PART`; None where no row has it."""
    scored = [row for row in rows if row.main.score is not None and row.main.components]
    solutions = [
        read_solution(
            row.output or "", tags=tags, opened=opened, score=row.main.score, reward=dict(row.main.components or {})
        )
        for row in scored
    ]
    parts = sorted({name for one in solutions for name in one.reward})
    means = {f"reward/{name}": fmean(one.reward[name] for one in solutions if name in one.reward) for name in parts}
    return {**emergence_metrics(solutions), **means}
