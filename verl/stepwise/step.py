"""One step of a solution: a piece of its text, and what is known of it (docs/reasoning.md).

>>> Step(index=0, text="3 + 4 = 7.", char_start=0, char_end=10, kind="compute")
>>> StepLabel(hard=0, source="mc", n_success=0, n_rollouts=8)
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

StepKind = Literal["reason", "compute", "verify", "backtrack", "answer", "other"]
LabelSource = Literal["mc", "perturb", "judge", "human", "propagated"]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A piece of a text; the pieces of a text, joined, are the text."""

    index: int
    """Place among the steps, from 0."""
    text: str
    """With the blanks behind it, up to the next step."""
    char_start: int
    """Where it begins in the text."""
    char_end: int
    """Where it ends; the next step begins there."""
    kind: StepKind = "other"
    """What is done in it."""


class StepScore(NamedTuple):
    """What a process reward model makes of a step."""

    score: float
    """How likely it is right, 0 to 1."""
    reward: float
    """What it earns: the score, or of an implicit model beta times the log-ratio of the step's tokens."""


@dataclass(frozen=True, kw_only=True)
class StepLabel:
    """Whether a step is right, as far as is known; a step without `value` and `hard` is not trained on."""

    value: float | None = None
    """Probability that it is right, 0 to 1 (a soft label)."""
    hard: Literal[0, 1] | None = None
    """1: right, 0: wrong."""
    source: LabelSource = "mc"
    """Who says so."""
    n_success: int = 0
    """Completions from this step on that ended right."""
    n_rollouts: int = 0
    """Completions that were scored."""
    note: str = ""
    """For a person: the kind of error, a judge's words."""

    def __post_init__(self) -> None:
        if self.value is not None and not 0.0 <= self.value <= 1.0:
            raise ValueError(f"a label of {self.value} is no probability; write one between 0 and 1, or None")
