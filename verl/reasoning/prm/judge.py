"""Judges that name the first wrong step of a solution: by exact arithmetic, or a language model in its own words.

One decision: a judge says of each step right, wrong or nothing; what cannot be read is nothing, never a verdict.

    >>> RuleJudge().judge(["What is 3 + 4?"], [["3 + 4 = 8.", "So it is 8."]])[0].first_error
    0
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from verl.reasoning.backends import GenBackend, SamplingParams
from verl.reasoning.prm.equations import equations
from verl.stepwise.first_error import NONE


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a judge says of a solution."""

    first_error: int | None
    """Earliest wrong step; -1: none is known to be wrong; None: the judge gave no answer that could be read."""
    labels: tuple[bool | None, ...]
    """Of each step; None: nothing is said."""
    note: str = ""
    """The judge's words, for a person."""


class StepJudge(Protocol):
    """Names first errors."""

    def judge(self, problems: Sequence[str], steps: Sequence[Sequence[str]]) -> list[Verdict]:
        """One verdict for each solution."""


class RuleJudge:
    """Calculates every equation: a step with a false one is wrong, one with true ones only is right.

    It finds no error that is not false arithmetic: a wrongly copied number, a wrong plan. `first_error` is -1 then.
    """

    def judge(self, problems: Sequence[str], steps: Sequence[Sequence[str]]) -> list[Verdict]:
        """As `StepJudge.judge`; a model is not asked."""
        return [self._one(one) for one in steps]

    def score_steps(self, problems: Sequence[str], steps: Sequence[Sequence[str]]) -> list[list[float | None]]:
        """As `StepScorer.score_steps`: 0 for a wrong step, 1 for a right one, and 0.5 where nothing can be said."""
        known = {True: 1.0, False: 0.0, None: 0.5}
        return [[known[label] for label in verdict.labels] for verdict in self.judge(problems, steps)]

    def _one(self, steps: Sequence[str]) -> Verdict:
        labels: list[bool | None] = []
        note = ""
        for step in steps:
            found = equations(step)
            false = next((one for one in found if one.status == "false"), None)
            if false is not None:
                note = note or f"{step[false.start : false.end]} is false"
            checked = any(one.computes and one.status in ("true", "rounded") for one in found)
            labels.append(False if false is not None else (True if checked else None))
        first = next((place for place, label in enumerate(labels) if label is False), NONE)
        return Verdict(first_error=first, labels=tuple(labels), note=note)


QUESTION = """\
Below are a problem and a solution that is cut into steps. Check the steps one after the other. A step is wrong if
what it says does not follow from the problem and the steps before it.

Problem:
{problem}

Solution:
{steps}

Think first. Then write in the last line `First wrong step: k`, with the number of the earliest wrong step, or
`First wrong step: none` if all are right."""

_SAID = re.compile(r"first wrong step\W{0,8}(none|\d{1,4})", re.IGNORECASE)


class LLMJudge:
    """A language model reads the whole solution and names its first wrong step."""

    def __init__(
        self,
        backend: GenBackend,
        *,
        n: int = 1,
        sampling: SamplingParams | None = None,
        question: str = QUESTION,
    ) -> None:
        """Asks nothing yet.

        Args:
            backend: the model.
            n: answers of which the most frequent one counts; of several, the earliest step.
            sampling: how they are drawn; None: greedy for one, temperature 0.7 for more.
            question: with the slots `{problem}` and `{steps}`.
        """
        self._backend, self._n, self._question = backend, n, question
        self._sampling = sampling or SamplingParams(temperature=0.0 if n == 1 else 0.7)
        self.tokens = 0
        """Generated so far."""

    def judge(self, problems: Sequence[str], steps: Sequence[Sequence[str]]) -> list[Verdict]:
        """As `StepJudge.judge`; steps behind the first wrong one have no label."""
        prompts = [self._prompt(problem, one) for problem, one in zip(problems, steps, strict=True)]
        drawn = self._backend.generate(prompts, n=self._n, sampling=self._sampling)
        self.tokens += sum(len(one.token_ids) for completions in drawn for one in completions)
        verdicts = []
        for one, completions in zip(steps, drawn, strict=True):
            texts = [completion.text for completion in completions if completion.ok]
            said = Counter(place for place in (_said(text, len(one)) for text in texts) if place is not None)
            first = max(said, key=lambda place: (said[place], -place)) if said else None
            verdicts.append(
                Verdict(first_error=first, labels=_labels(first, len(one)), note=texts[0][-400:] if texts else "")
            )
        return verdicts

    def _prompt(self, problem: str, steps: Sequence[str]) -> str:
        numbered = "\n".join(f"[{number}] {step.strip()}" for number, step in enumerate(steps, 1))
        # Not `format`: a problem may hold braces.
        return self._question.replace("{problem}", problem.strip(), 1).replace("{steps}", numbered, 1)


def _said(text: str, n_steps: int) -> int | None:
    """What the last line of that form says; a step that is not there is no answer."""
    found = _SAID.findall(text)
    if not found:
        return None
    if found[-1].lower() == "none":
        return NONE
    number = int(found[-1])
    return number - 1 if 1 <= number <= n_steps else None


def _labels(first: int | None, n_steps: int) -> tuple[bool | None, ...]:
    if first is None:
        return (None,) * n_steps
    end = n_steps if first == NONE else first
    return tuple(True if place < end else (False if place == end else None) for place in range(n_steps))
