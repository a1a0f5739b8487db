"""Backends and rewards for tests of distillation: one that says what a function says, one that runs a small model.

>>> Scripted(lambda problem, index: "1 + 2 = 3.").generate(["What is 1 + 2?"], n=2)
>>> open_small("models/student")
"""

import re
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch

from verl.reasoning.backends import Completion, SamplingParams
from verl.reasoning.sft.chat import chat_tokenizer
from verl.teaching.chat_ids import given_turn


def right_sum(problem: str, solution: str) -> float:
    """1 for a text that ends with the sum of the numbers in the problem."""
    numbers = [int(one) for one in re.findall(r"\d+", problem)]
    said = re.findall(r"\d+", solution)
    return float(bool(said) and int(said[-1][:6]) == sum(numbers))


class Scripted:
    """Says what a function of (problem, index) says: a text, or a completion."""

    def __init__(self, say: Callable[[str, int], str | Completion], revision: str = "script") -> None:
        self.say, self.revision, self.model, self.asked = say, revision, "scripted", list[str]()

    def generate(
        self, prompts: Sequence[str], *, n: int = 1, sampling: SamplingParams | None = None
    ) -> list[list[Completion]]:
        self.asked += prompts
        found = [[self.say(prompt, index) for index in range(n)] for prompt in prompts]
        return [
            [one if isinstance(one, Completion) else Completion(text=one, finish_reason="stop") for one in some]
            for some in found
        ]

    def continue_from(
        self, prompts: Sequence[str], prefixes: Sequence[str], *, n: int = 1, sampling: SamplingParams | None = None
    ) -> list[list[Completion]]:
        raise AssertionError("no test continues a text")

    def log_probs(self, prompts: Sequence[str], texts: Sequence[str]) -> list[list[tuple[str, float]]]:
        raise AssertionError("no test asks how likely a text is")

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def close(self) -> None:
        pass


class Small(Scripted):
    """A small model, by transformers' own loop."""

    def __init__(self, model: Any, tokenizer: Any = None) -> None:
        from transformers import AutoModelForCausalLM

        named = isinstance(model, (str, Path))
        self.tokenizer = tokenizer or chat_tokenizer(model)
        self._model: Any = AutoModelForCausalLM.from_pretrained(model) if named else model
        first = next(iter(self._model.parameters()))
        digest = blake2b(first.detach().numpy().tobytes(), digest_size=8).hexdigest()
        super().__init__(lambda prompt, index: "", revision=digest)
        self.model = str(model) if named else "student"

    @torch.no_grad()
    def generate(
        self, prompts: Sequence[str], *, n: int = 1, sampling: SamplingParams | None = None
    ) -> list[list[Completion]]:
        how, training = sampling or SamplingParams(), self._model.training
        self._model.eval()
        state = torch.get_rng_state()
        torch.manual_seed(how.seed)
        ids = [given_turn(self.tokenizer, [{"role": "user", "content": one}]) for one in prompts for _ in range(n)]
        width = max(map(len, ids))
        pad = self.tokenizer.pad_token_id
        texts = self._model.generate(
            input_ids=torch.tensor([[pad] * (width - len(one)) + one for one in ids]),
            attention_mask=torch.tensor([[0] * (width - len(one)) + [1] * len(one) for one in ids]),
            max_new_tokens=min(16, how.max_tokens),
            do_sample=True,
            temperature=how.temperature,
            top_k=0,
        )[:, width:].tolist()
        torch.set_rng_state(state)
        self._model.train(training)
        end = self.tokenizer.eos_token_id
        done = [
            Completion(
                text=self.tokenizer.decode(one, skip_special_tokens=True),
                token_ids=tuple(one[: one.index(end) + 1] if end in one else one),
                finish_reason="stop" if end in one else "length",
            )
            for one in texts
        ]
        return [done[start : start + n] for start in range(0, len(done), n)]


def open_small(model: Any, tokenizer: Any = None) -> Small:
    return Small(model, tokenizer)
