"""Scores steps without any label: the least likely token of a step, under a language model that solves such problems.

One decision: a step's score is the probability of its least likely token, blanks left out. A mean would hide one wrong
digit among many sure ones; and unlike a trained head this finds kinds of errors that no training ever showed.

    >>> LikelihoodScorer(backend).score_steps(["What is 3 + 4?"], [["3 + 4 = 7.\\n", "So it is 8."]])
    [[0.91, 0.02]]

It is no probability that the step is right until it is calibrated (`calibration.Calibration`).
"""

import math
from collections.abc import Sequence

from verl.reasoning.backends import GenBackend


class LikelihoodScorer:
    """A `StepScorer`; for a model in memory give `HFBackend(model, tokenizer)`."""

    def __init__(self, backend: GenBackend, *, opening: str = "", joiner: str = "\n\n") -> None:
        """Asks nothing yet.

        Args:
            backend: the model that reads the steps.
            opening: what its answers begin with before the first step, for instance "<think>\\n"; it is not scored.
            joiner: put between steps that come without the blanks behind them.
        """
        self._backend, self._opening, self._joiner = backend, opening, joiner
        self.tokens = 0
        """Read so far, without prompts."""

    def score_steps(self, problems: Sequence[str], steps: Sequence[Sequence[str]]) -> list[list[float | None]]:
        """As `StepScorer.score_steps`. A blank step, and one the engine could not read, has no score."""
        joined = [self._joined(one) for one in steps]
        asked = [place for place, one in enumerate(joined) if one]
        texts = [self._opening + "".join(joined[place]) for place in asked]
        told = self._backend.log_probs([problems[place] for place in asked], texts)
        found: list[list[float | None]] = [[None] * len(one) for one in steps]
        for place, tokens in zip(asked, told, strict=True):
            self.tokens += len(tokens)
            lowest = least_likely(tokens, len(self._opening), joined[place])
            found[place] = [None if low is None else math.exp(min(0.0, low)) for low in lowest]
        return found

    def _joined(self, steps: Sequence[str]) -> list[str]:
        """The steps, with something between any two that would run into each other."""
        pieces = [step if step[-1:].isspace() else step + self._joiner for step in steps[:-1]]
        return [*pieces, *steps[-1:]]


def least_likely(tokens: Sequence[tuple[str, float]], begin: int, steps: Sequence[str]) -> list[float | None]:
    """The lowest log-probability in each step; None for a step without a token of its own.

    A token that reaches over an edge belongs to the step of its first sign that is no blank.

    Args:
        tokens: their texts and log-probabilities; joined, the texts are what stands before the steps, and the steps.
        begin: letters before the first step.
        steps: with all blanks between them.
    """
    found: list[float | None] = [None] * len(steps)
    ends, at = [], begin
    for step in steps:
        at += len(step)
        ends.append(at)
    at = place = 0
    for text, log_prob in tokens:
        sign = at + len(text) - len(text.lstrip())
        at += len(text)
        if not text.strip() or sign < begin:
            continue
        while place < len(steps) and sign >= ends[place]:
            place += 1
        if place == len(steps):
            break
        low = found[place]
        found[place] = log_prob if low is None else min(low, log_prob)
    return found
