"""Completers that a test can see through: an oracle that adds digits, with as much noise as wanted."""

import random
import re
from collections.abc import Sequence

from verl.reasoning.backends import Completion, SamplingParams
from verl.reasoning.records import Problem

FAILED = Completion(text="", error="engine down")


class Oracle:
    """Continues "Sum: ..." problems from whatever total the prefix has; a `GenBackend` as far as it is asked.

    With `noise` each step that it writes is wrong with that probability.
    """

    model, revision = "oracle", "1"

    def __init__(self, noise: float = 0.0, fails: float = 0.0) -> None:
        self.noise, self.fails = noise, fails
        self.asked: list[tuple[str, int]] = []

    def generate(
        self, prompts: Sequence[str], *, n: int = 1, sampling: SamplingParams | None = None
    ) -> list[list[Completion]]:
        return self.continue_from(prompts, [""] * len(prompts), n=n, sampling=sampling)

    def continue_from(
        self, prompts: Sequence[str], prefixes: Sequence[str], *, n: int = 1, sampling: SamplingParams | None = None
    ) -> list[list[Completion]]:
        how = sampling or SamplingParams()
        self.asked += [(prefix, n) for prefix in prefixes]
        return [
            [self._one(prompt, prefix, f"{how.seed}/{how.first_index + k}/{prompt}/{prefix}") for k in range(n)]
            for prompt, prefix in zip(prompts, prefixes, strict=True)
        ]

    def log_probs(self, prompts: Sequence[str], texts: Sequence[str]) -> list[list[tuple[str, float]]]:
        return [[] for _ in texts]

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def close(self) -> None:
        pass

    def _one(self, prompt: str, prefix: str, seed: str) -> Completion:
        rng = random.Random(seed)
        if rng.random() < self.fails:
            return FAILED
        numbers = [int(one) for one in re.findall(r"\d+", prompt)]
        totals = re.findall(r"= (\d+)", prefix)
        total = int(totals[-1]) if totals else numbers[0]
        lines = []
        for number in numbers[1 + len(totals) :]:
            new = total + number + (rng.randint(1, 9) if rng.random() < self.noise else 0)
            lines.append(f"{total} + {number} = {new}.\n")
            total = new
        text = "".join(lines) + f"The answer is {total}."
        return Completion(text=text, token_ids=tuple(range(len(text.split()))), finish_reason="stop")


def solution_of(rng: random.Random, number: int) -> tuple[Problem, list[str], int]:
    """A problem, the steps of a solution, and its first error (-1: none); an error is carried on consistently."""
    numbers = [rng.randint(10, 89) for _ in range(5)]
    problem = Problem(id=f"p{number}", problem="Sum: " + ", ".join(map(str, numbers)) + "?", answer=str(sum(numbers)))
    wrong = rng.randrange(-1, 4)
    total, steps = numbers[0], []
    for place, other in enumerate(numbers[1:]):
        new = total + other + (rng.randint(1, 9) if place == wrong else 0)
        steps.append(f"{total} + {other} = {new}.\n")
        total = new
    return problem, [*steps, f"The answer is {total}."], wrong


def right_sum(problem: str, solution: str) -> float:
    """1 if the last number of a solution is the sum of the problem's."""
    return float(int(re.findall(r"\d+", solution)[-1]) == sum(int(one) for one in re.findall(r"\d+", problem)))
