"""What a kind of planted error is given, and what it makes: the types that `perturb` and its kinds share."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Certainty = Literal["exact", "uncertain", "own"]
"""`exact`: what was a true equality is a false one now. `uncertain`: completions must show that nothing can be reached
any more. `own`: the step is not false but needless, which has a channel of its own and is never a wrong step."""


@dataclass(frozen=True, kw_only=True)
class Spot:
    """A step of a right solution, and what it may be changed with."""

    problem: str
    """The question."""
    steps: tuple[str, ...]
    """Of the right solution."""
    place: int
    """Of the step that is to be wrong."""
    rng: random.Random
    """All chance comes from here."""
    donors: Sequence[str] = ()
    """Steps of solutions to other problems."""

    @property
    def body(self) -> str:
        """The step without the blanks behind it."""
        return self.steps[self.place].rstrip()

    @property
    def tail(self) -> str:
        """The blanks behind the step; a planted one keeps them."""
        return self.steps[self.place][len(self.body) :]


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A step in place of the right one."""

    text: str
    """With the blanks of the step that it replaces."""
    certainty: Certainty
    """Whether it is known to be wrong."""
    meta: dict[str, Any] = field(default_factory=dict)
    """What was changed, for a person."""
    kind: str = ""
    """Name of the kind; `perturb.plant` fills it in."""
    place: int = 0
    """Of the step; `perturb.plant` fills it in."""
    drops_next: bool = False
    """Whether the step behind it goes: it has moved here."""


Kind = Callable[[Spot], Planted | None]
"""None: the step offers nothing to change in this way."""


def replaced(text: str, span: tuple[int, int], by: str) -> str:
    """The text with a part of it replaced."""
    return text[: span[0]] + by + text[span[1] :]
