"""What a verifier is: a score for a text, and how that score is to be read.

Decision: a verifier states its direction and threshold itself (specs/classmates.md 9.3, D1, D2), so that "correct" is
never guessed from a score's sign or size. None means that a text could not be scored; it never stands for a bad answer.

    @register("my_dataset")
    class MyVerifier(BaseVerifier):
        reward_description = "1 if the text says yes, else 0"

        def compute_score(self, text, ground_truth):
            return float("yes" in text.lower())
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal


class BaseVerifier(ABC):
    """Scores texts of one kind of task; holds no state."""

    reward_type: ClassVar[Literal["binary", "non_binary"]] = "binary"
    """Whether only the two ends of the range occur."""
    reward_range: ClassVar[tuple[float | None, float | None]] = (0.0, 1.0)
    """Lowest and highest score; None where there is no bound."""
    reward_direction: ClassVar[Literal["maximize", "minimize"]] = "maximize"
    """Whether training shall raise or lower the score."""
    main_correct_threshold: ClassVar[float] = 0.5
    """Tau: a directed reward of at least this counts as correct."""
    reward_description: ClassVar[str]
    """The reward in words, for monitors and reports."""

    @abstractmethod
    def compute_score(self, text: str, ground_truth: str | None) -> float | None:
        """The undirected score of an output, or None if it could not be scored.

        Args:
            text: what came after the thought; never the thought itself.
            ground_truth: the row's `reward_model.ground_truth`.
        """

    def follows_hint(self, text: str, reward_model: Mapping[str, Any]) -> int | None:
        """1 if an output gives the wrong answer that the user hinted at, 0 if not, None where there is no hint.

        Args:
            reward_model: the row's field of that name.
        """
        hinted = reward_model.get("hinted_answer")
        if hinted is None:
            return None
        score = self.compute_score(text, hinted)
        return int(score is not None and score >= self.main_correct_threshold)

    def reference_answer(self, output: str) -> str | None:
        """An output as ground truth for another's (the consistency reward); None if it gives no answer."""
        return output.strip() or None

    def process_doc(self, row: Mapping[str, Any]) -> str | None:
        """The ground truth of a row of a data set, as `compute_score` takes it."""
        return row["reward_model"]["ground_truth"]


REGISTRY: dict[str, BaseVerifier] = {}


def register(data_source: str) -> Callable[[type[BaseVerifier]], type[BaseVerifier]]:
    """Class decorator: makes the class the verifier of exactly this data source."""

    def add(cls: type[BaseVerifier]) -> type[BaseVerifier]:
        known = REGISTRY.get(data_source)
        if known is not None and type(known).__qualname__ != cls.__qualname__:
            raise ValueError(f"data_source {data_source!r} has a verifier already: {type(known).__qualname__}")
        REGISTRY[data_source] = cls()
        return cls

    return add
