"""The tasks of the worlds behind one interface: problems, thoughts about them, and how such thoughts are read.

task = TASKS["arithmetic"]
problem = task.problem(seed=0, split="val", index=3)
text, number = task.thought(problem, "shorthand", random.Random(0), slip=False)
task.style_of(text, problem.question)         # 'shorthand'
"""

import random
from dataclasses import dataclass
from typing import Any, Protocol

from verl.data_preprocessing import arithmetic_problems
from verl.data_preprocessing.arithmetic_problems import Split
from verl.data_preprocessing.worlds import columns
from verl.data_preprocessing.worlds.programs import Programs
from verl.data_preprocessing.worlds.spec import TaskName


class Problem(Protocol):
    """What the lessons need of a problem."""

    @property
    def question(self) -> str:
        """The problem in words, without a hint."""

    @property
    def prompt(self) -> str:
        """What the user writes."""

    @property
    def answer(self) -> int:
        """The true answer."""

    @property
    def hint(self) -> str | None:
        """The user's sentence with a wrong answer, or None."""


class Task(Protocol):
    """Problems of one kind; holds no state."""

    @property
    def data_source(self) -> str:
        """Name of the verifier."""

    @property
    def styles(self) -> tuple[str, ...]:
        """All styles in which thoughts can be written."""

    def problem(self, *, seed: int, split: Split, index: int, hint_share: float = 0.0, short: bool = False) -> Any:
        """A problem, drawn from these numbers alone."""

    def thought(self, problem: Any, style: str, rng: random.Random, *, slip: bool) -> tuple[str, int]:
        """A thought, and the number that it leads to: the answer unless there is a slip."""

    def following(self, problem: Any) -> tuple[str, int]:
        """A thought that takes over the user's wrong answer, and that."""

    def any_result(self, rng: random.Random) -> int:
        """A number that may be an answer."""

    def with_result(self, text: str, old: int, new: int) -> str:
        """A thought that leads to `old`, changed so that it states `new`."""

    def style_of(self, text: str, question: str) -> str:
        """The style that a thought is written in; "other" if it is none of them."""

    def without_answer(self, text: str, question: str) -> str:
        """A thought without the statement of its result."""

    def row(self, problem: Any, *, split: Split, index: int) -> dict[str, Any]:
        """The row of a parquet file."""


@dataclass(frozen=True)
class Arithmetic:
    """Word problems with carries."""

    data_source: str
    styles: tuple[str, ...] = columns.STYLES

    def problem(
        self, *, seed: int, split: Split, index: int, hint_share: float = 0.0, short: bool = False
    ) -> arithmetic_problems.Problem:
        """All problems are of one length, so `short` changes nothing."""
        return arithmetic_problems.make_problem(seed=seed, split=split, index=index, hint_share=hint_share)

    def thought(
        self, problem: arithmetic_problems.Problem, style: str, rng: random.Random, *, slip: bool
    ) -> tuple[str, int]:
        """Nothing is drawn."""
        return columns.thought(problem, style, slip=slip), columns.result(problem, slip=slip)

    def following(self, problem: arithmetic_problems.Problem) -> tuple[str, int]:
        """Says what the user says."""
        assert problem.hinted_answer is not None
        return arithmetic_problems.following_cot(problem), problem.hinted_answer

    def any_result(self, rng: random.Random) -> int:
        """Up to three digits."""
        return rng.randint(1, 299)

    def with_result(self, text: str, old: int, new: int) -> str:
        """Changes the last sentence, or the shorthand's digits."""
        return columns.with_result(text, old, new)

    def style_of(self, text: str, question: str) -> str:
        """Seen in the text alone."""
        return columns.style_of(text)

    def without_answer(self, text: str, question: str) -> str:
        """Cuts the last sentence."""
        return columns.without_answer(text)

    def row(self, problem: arithmetic_problems.Problem, *, split: Split, index: int) -> dict[str, Any]:
        """With the plain thought beside the problem."""
        return arithmetic_problems.make_dataset_row(problem, split=split, index=index, data_source=self.data_source)


TASKS: dict[TaskName, Task] = {
    "hinted_arithmetic": Arithmetic(arithmetic_problems.DATA_SOURCE),
    "arithmetic": Arithmetic("thought_styles"),
    "programs": Programs(),
}


def task_of(data_source: str) -> Task:
    """The task whose rows have a data source. Raises ValueError if no world makes such rows."""
    for task in TASKS.values():
        if task.data_source == data_source:
            return task
    known = ", ".join(task.data_source for task in TASKS.values())
    raise ValueError(f"no world makes rows of data_source {data_source!r}: use one of {known}")
