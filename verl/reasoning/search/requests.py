"""What a search asks for and what it finds: the types that strategies and their driver exchange.

One decision: a strategy is a generator that yields what it wants (texts written, steps judged, texts read) and is sent
the answers. So one problem or a thousand go through the same strategy, and their requests share batches.

    >>> completions = yield Write(asks=(Ask(prefix="", n=4, sampling=sampling),))
    >>> scores = yield Judge(texts=tuple(one.text for one in completions[0]))
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from verl.reasoning.backends import SamplingParams
from verl.reasoning.records import Solution


@dataclass(frozen=True, kw_only=True)
class Ask:
    """`n` completions of a prefix."""

    prefix: str = ""
    """Beginning of the answer."""
    n: int = 1
    """How many."""
    sampling: SamplingParams
    """How they are drawn."""
    prompt: str | None = None
    """What the user says; None: the problem."""


@dataclass(frozen=True, kw_only=True)
class Write:
    """Texts are written; the answer is a list of completions for each ask."""

    asks: tuple[Ask, ...]
    """All at the same time."""


@dataclass(frozen=True, kw_only=True)
class Judge:
    """Step scores; the answer is a list of numbers (None: not scored) for each text."""

    texts: tuple[str, ...]
    """Solutions, or beginnings of them."""


@dataclass(frozen=True, kw_only=True)
class Read:
    """How likely the model finds texts; the answer is the mean log-probability of a token (None: not read) of each."""

    texts: tuple[str, ...]
    """Solutions, or beginnings of them."""


@dataclass(frozen=True, kw_only=True)
class Reward:
    """What the reward function says; the answer is a result for each solution. It may know the gold answer."""

    solutions: tuple[Solution, ...]
    """Whole ones."""


Request = Write | Judge | Read | Reward


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search found for one problem, and what it cost."""

    problem_id: str
    """Of its problem."""
    solution: Solution | None
    """The chosen one; None: nothing was written."""
    candidates: tuple[Solution, ...] = ()
    """All whole solutions that were chosen from, in their order."""
    tokens: int = 0
    """Generated, in the tokens of the model: every one, also of what was thrown away."""
    scored_tokens: int = 0
    """Read by the scorer, or by the model to tell how likely a text is."""
    failed: int = 0
    """Completions that were not written; they are in no count but this."""
    fallback: bool = False
    """Whether everything was rejected, so that the best of the rejected went on."""
    details: dict[str, Any] = field(default_factory=dict)
    """Whatever a strategy adds: votes, rounds, the history of a refinement."""


Strategy = Generator[Request, Any, Found]
"""A search under way."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a search may spend on one problem."""

    tokens: int
    """Most generated tokens. A strategy draws fewer or shorter texts, and never one token more."""

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise ValueError(f"a budget of {self.tokens} tokens; write 1 or more, or no budget")


@dataclass
class Spending:
    """What one search has spent so far."""

    budget: Budget | None = None
    """None: no limit."""
    tokens: int = 0
    """Generated."""
    scored_tokens: int = 0
    """Read by scorers."""
    failed: int = 0
    """Completions that were not written."""
    lengths: list[int] = field(default_factory=list)
    """Tokens of whole solutions that ended by themselves."""

    @property
    def left(self) -> int | None:
        """Tokens; None: no limit."""
        return None if self.budget is None else self.budget.tokens - self.tokens

    def fits(self, wanted: int, each: int) -> tuple[int, int]:
        """How many texts can be drawn at once, and of how many tokens at most, whatever their lengths turn out to be.

        Where not one text fits in full, it is one of what is left. (0, 0): there is nothing left.

        Args:
            wanted: texts.
            each: most tokens of one.
        """
        if self.left is None:
            return wanted, each
        if wanted < 1 or self.left < 1:
            return 0, 0
        return (min(wanted, self.left // each), each) if self.left >= each else (1, self.left)

    @property
    def worth_going_on(self) -> bool:
        """False where no solution so far was short enough to end within what is left."""
        if self.left is None:
            return True
        return self.left >= (min(self.lengths) if self.lengths else 1)
