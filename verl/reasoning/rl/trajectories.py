"""Answers of a policy in this process, with their log-probs, rewards and advantages: one iteration to look at.

One decision: log-probs are of the tokens behind problem and earlier tokens, at the temperature of sampling, and
advantages are computed by the training's own estimators; nothing here trains.

    >>> sampler = Sampler.load("models/policy", config)
    >>> drawn = sampler.draw(problems, "{problem}", temperature=1.0, seed=0)
    >>> sampler.score(drawn, problems, reward, timeout_s=60.0)
    >>> advantages_of(drawn, config)[0]["advantages"]

Shapes: B answers of a problem, P tokens of the problem, T of an answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from verl.classmate.algorithm_config import AdvantageConfig
from verl.reasoning.reading import read_solution
from verl.reasoning.records import Problem
from verl.reasoning.rewards import Reward
from verl.reasoning.rl.config import PureRLConfig
from verl.reasoning.scoring import score_solutions
from verl.trainer.ppo.advantage import AdvantageInputs, compute_advantage


@dataclass(frozen=True, kw_only=True, eq=False)
class Sampler:
    """A policy with its tokenizer."""

    model: Any
    """Of transformers."""
    tokenizer: Any
    """The model's."""
    config: PureRLConfig
    """How many answers, and how long."""

    @classmethod
    def load(cls, name: str, config: PureRLConfig) -> "Sampler":
        """The model of a folder or hub name, on the config's device."""
        from transformers import AutoModelForCausalLM, AutoTokenizer

        usual = "cuda" if torch.cuda.is_available() else "cpu"
        device = usual if config.device == "auto" else config.device
        short = config.number_format
        if short == "auto":
            short = "fp32" if device == "cpu" else "bf16"
        dtype = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp16": torch.float16}[short]
        model: Any = AutoModelForCausalLM.from_pretrained(name, dtype=dtype)
        return cls(model=model.to(device).eval(), tokenizer=AutoTokenizer.from_pretrained(name), config=config)

    def prompt_ids(self, problem: Problem, template: str) -> list[int]:
        """A problem in the model's chat template, or as plain text where it has none."""
        asked = template.replace("{problem}", problem.problem)
        if self.tokenizer.chat_template is None:
            return list(self.tokenizer(asked)["input_ids"])
        text = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": asked}], tokenize=False, add_generation_prompt=True
        )
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    @torch.no_grad()
    def draw(
        self, problems: Sequence[Problem], template: str, temperature: float, *, seed: int
    ) -> list[dict[str, Any]]:
        """`group_size` answers to each problem; the seed is added to the config's."""
        found = []
        ends = self._ends()
        with torch.random.fork_rng():
            torch.manual_seed(self.config.seed * 1_000_003 + seed)
            for problem in problems:
                prompt = self.prompt_ids(problem, template)
                for tokens in self._answers(prompt, temperature, ends):
                    text = self.tokenizer.decode(tokens, skip_special_tokens=True)
                    found.append(
                        {
                            "problem": problem.problem,
                            "problem_id": problem.id,
                            "response": text,
                            "tokens": tokens,
                            "log_probs": self.log_probs(prompt, tokens, temperature),
                            "values": [0.0] * len(tokens),
                            "temperature": temperature,
                            "finish_reason": "stop" if tokens[-1] in ends else "length",
                        }
                    )
        return found

    def _ends(self) -> set[int]:
        ends = self.model.generation_config.eos_token_id
        return {self.tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])} - {None}

    def _answers(self, prompt: list[int], temperature: float, ends: set[int]) -> list[list[int]]:
        """(B, T) tokens, each up to its end."""
        ids = torch.tensor([prompt], device=self.model.device)
        pad = next(iter(ends)) if self.tokenizer.pad_token_id is None else self.tokenizer.pad_token_id
        out_BS = self.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            temperature=temperature,
            top_k=0,
            top_p=1.0,
            num_return_sequences=self.config.group_size,
            max_new_tokens=self.config.response_tokens,
            eos_token_id=sorted(ends),
            pad_token_id=pad,
        )
        answers = []
        for row in out_BS[:, len(prompt) :].tolist():
            end = next((i + 1 for i, token in enumerate(row) if token in ends), len(row))
            answers.append(row[:end])
        return answers

    @torch.no_grad()
    def log_probs(self, prompt: Sequence[int], tokens: Sequence[int], temperature: float) -> list[float]:
        """Of each token (T) behind the prompt (P) and earlier tokens, at a temperature."""
        ids = torch.tensor([[*prompt, *tokens]], device=self.model.device)
        logits_TV = self.model(input_ids=ids).logits[0, len(prompt) - 1 : -1].float() / temperature
        picked = torch.tensor(tokens, device=ids.device)
        return torch.log_softmax(logits_TV, dim=-1).gather(1, picked[:, None])[:, 0].tolist()

    def score(
        self, drawn: Sequence[dict[str, Any]], problems: Sequence[Problem], reward: Reward, *, timeout_s: float
    ) -> None:
        """Adds the `reward` of each answer, None where it failed, and why (`reward_note`)."""
        solutions = [
            read_solution(one["response"], problem_id=one["problem_id"], n_tokens=len(one["tokens"])) for one in drawn
        ]
        scored = score_solutions(reward, problems, solutions, timeout_s=timeout_s)
        for one, solution, result in zip(drawn, scored.solutions, scored.results, strict=True):
            one["reward"] = solution.score
            one["reward_components"] = dict(solution.reward)
            one["reward_note"] = "" if result.valid else result.note


def advantages_of(trajectories: Sequence[dict[str, Any]], config: PureRLConfig) -> list[dict[str, Any]]:
    """Copies of the trajectories with `advantages` and `returns`, a number for each token.

    Args:
        trajectories: with `problem` (or `problem_id`), `tokens`, `values` and `reward`.
        config: which estimator, with which options.
    """
    if not trajectories:
        return []
    lengths = [len(one["tokens"]) for one in trajectories]
    rows, width = len(lengths), max(lengths)
    mask_BT = (torch.arange(width) < torch.tensor(lengths)[:, None]).long()
    values_BT = torch.zeros(rows, width)
    for i, one in enumerate(trajectories):
        values_BT[i, : lengths[i]] = torch.tensor(one["values"], dtype=torch.float32)
    valid_B = torch.tensor([one["reward"] is not None for one in trajectories])
    reward_B = torch.tensor([one["reward"] or 0.0 for one in trajectories], dtype=torch.float32)
    groups = np.array([one.get("problem_id", one["problem"]) for one in trajectories], dtype=object)
    inputs = AdvantageInputs(
        base_reward_B=reward_B,
        classmate_reward_B=torch.zeros(rows),
        final_reward_B=reward_B,
        main_valid_B=valid_B,
        classmate_valid_B=torch.zeros(rows, dtype=torch.bool),
        response_mask_BR=mask_BT,
        classmate_mask_BR=torch.zeros_like(mask_BT),
        group_B=groups,
        classmate_asked_B=torch.zeros(rows, dtype=torch.bool),
        values_BR=values_BT if config.algorithm == "gae" else None,
    )
    name = "grpo" if config.algorithm == "dr_grpo" else config.algorithm
    options = AdvantageConfig(adv_estimator=name, norm_adv_by_std_in_grpo=config.algorithm != "dr_grpo")
    found = compute_advantage(inputs, options, {"gamma": config.gamma, "lam": config.lam})
    return [
        {
            **one,
            "advantages": found.advantages_BR[i, : lengths[i]].tolist(),
            "returns": found.returns_BR[i, : lengths[i]].tolist(),
        }
        for i, one in enumerate(trajectories)
    ]
