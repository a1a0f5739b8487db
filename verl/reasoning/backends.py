"""What every sampler of the pipeline asks: a model that writes texts, whichever engine runs it.

One decision: prompts are texts in the model's chat template, with what the assistant has written so far behind them;
so a completion, a continuation of a prefix and a search's next step are one call.

    >>> backend.generate([problem.problem], n=4, sampling=SamplingParams(max_tokens=256))     # 1 list of 4 completions
    >>> backend.continue_from([problem.problem], ["3 + 4 = 7."], n=2, sampling=SamplingParams(stop=("\\n",)))
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How a text is drawn."""

    temperature: float = 0.8
    """0: greedy."""
    top_p: float = 0.95
    """Nucleus sampling (A. Holtzman et al., 2020)."""
    top_k: int = -1
    """-1: all tokens."""
    max_tokens: int = 1024
    """Most new tokens."""
    stop: tuple[str, ...] = ()
    """Texts that end a completion; the one that did is kept as its last part."""
    seed: int = 0
    """Each completion draws from (seed, problem, prefix, index)."""
    first_index: int = 0
    """Index of the first completion: who has drawn k and wants more, and other ones, says k."""


@dataclass(frozen=True, kw_only=True)
class Completion:
    """What a model wrote behind a prompt and a prefix, or why it did not."""

    text: str
    """Without the prefix, special tokens left out."""
    token_ids: tuple[int, ...] = ()
    """In the model's own tokens."""
    log_probs: tuple[float, ...] = ()
    """Of these tokens, natural logarithm at temperature 1; empty where the engine does not tell."""
    finish_reason: str | None = None
    """`stop` (its end, or one of the stop texts), `length`, or None where it failed."""
    seed: int | None = None
    """It was drawn from."""
    error: str | None = None
    """Why there is no text; such a completion is counted and left out, never scored."""

    @property
    def ok(self) -> bool:
        """Whether there is a text."""
        return self.error is None


class GenBackend(Protocol):
    """A model that writes. `HFBackend`, `EngineBackend` (vLLM and others) and `ReplayBackend` are ones."""

    @property
    def model(self) -> str:
        """Path or hub name."""

    @property
    def revision(self) -> str:
        """Which weights these are: a hash of the files, or the hub's revision; part of every cache key."""

    def generate(
        self, prompts: Sequence[str], *, n: int = 1, sampling: SamplingParams | None = None
    ) -> list[list[Completion]]:
        """`n` completions of each prompt; a prompt is what the user says."""

    def continue_from(
        self,
        prompts: Sequence[str],
        prefixes: Sequence[str],
        *,
        n: int = 1,
        sampling: SamplingParams | None = None,
    ) -> list[list[Completion]]:
        """`n` completions of each pair of a prompt and the beginning of its answer.

        The same pair with the same index draws the same: who wants one prefix continued twice asks with n=2.
        """

    def log_probs(self, prompts: Sequence[str], texts: Sequence[str]) -> list[list[tuple[str, float]]]:
        """Each answer's tokens as pairs (text of the token, log-probability behind prompt and earlier tokens), T = 1.

        The texts of the tokens, joined, are the answer. One that could not be read has an empty list.
        """

    def count_tokens(self, text: str) -> int:
        """In the model's own tokens, without special ones."""

    def close(self) -> None:
        """Ends the engine."""
