"""Backends, scorers and rewards that do what a test says, in no time.

>>> backend = Scripted(lambda prompt, prefix, seed: " the next step\\n\\n")
>>> scorer = Scorer(lambda problem, steps: [0.9] * len(steps))
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from verl.reasoning.backends import Completion, SamplingParams
from verl.reasoning.records import Problem
from verl.reasoning.token_backend import completion_seed, cut_at_stop


@dataclass
class Scripted:
    """Writes what a function of prompt, prefix and seed says; a token is a character."""

    write: Callable[[str, str, int], str | None]
    model: str = "scripted"
    revision: str = "r0"
    calls: list[tuple[list[tuple[str, str]], int, SamplingParams]] = field(default_factory=list)
    """Of each call the pairs, n and the sampling."""

    def generate(
        self, prompts: Sequence[str], *, n: int = 1, sampling: SamplingParams | None = None
    ) -> list[list[Completion]]:
        return self.continue_from(prompts, [""] * len(prompts), n=n, sampling=sampling)

    def continue_from(
        self, prompts: Sequence[str], prefixes: Sequence[str], *, n: int = 1, sampling: SamplingParams | None = None
    ) -> list[list[Completion]]:
        how = sampling or SamplingParams()
        pairs = list(zip(prompts, prefixes, strict=True))
        self.calls.append((pairs, n, how))
        return [[self._one(*pair, how.first_index + k, how) for k in range(n)] for pair in pairs]

    def _one(self, prompt: str, prefix: str, index: int, how: SamplingParams) -> Completion:
        seed = completion_seed(how.seed, prompt, prefix, index)
        text = self.write(prompt, prefix, seed)
        if text is None:
            return Completion(text="", seed=seed, error="engine_error: scripted")
        text = cut_at_stop(text, how.stop)
        cut = text[: how.max_tokens]
        return Completion(
            text=cut,
            token_ids=tuple(range(len(cut))),
            finish_reason="stop" if len(text) <= how.max_tokens else "length",
            seed=seed,
        )

    def log_probs(self, prompts: Sequence[str], texts: Sequence[str]) -> list[list[tuple[str, float]]]:
        return [[(letter, -0.1) for letter in text] for text in texts]

    def count_tokens(self, text: str) -> int:
        return len(text)

    def close(self) -> None:
        pass

    @property
    def seeds(self) -> list[int]:
        """Of all completions so far."""
        return [
            completion_seed(how.seed, *pair, how.first_index + k)
            for pairs, n, how in self.calls
            for pair in pairs
            for k in range(n)
        ]


@dataclass
class Scorer:
    """Scores steps by a function of the problem and the steps."""

    score: Callable[[str, Sequence[str]], list[float | None]]
    seen: list[list[str]] = field(default_factory=list)
    """Steps of all calls."""

    def score_steps(self, problems: Sequence[str], steps: Sequence[Sequence[str]]) -> list[list[float | None]]:
        self.seen += [list(one) for one in steps]
        return [self.score(problem, one) for problem, one in zip(problems, steps, strict=True)]


def answering(answers: Sequence[str]) -> Scripted:
    """Writes solutions that give one of the answers, which the seed chooses."""
    return Scripted(
        lambda prompt, prefix, seed: f"Draw {seed % 1000}.\n\nThe answer is {random.Random(seed).choice(answers)}."
    )


PROBLEM = Problem(id="p", problem="What is 3 + 4?", answer="7")
