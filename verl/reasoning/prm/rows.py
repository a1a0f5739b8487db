"""Labelled solutions as rows, in the formats that people exchange: TRL's stepwise one, and one row a step.

One decision: inside, a solution is one `LabelledSolution`; both formats are read into it, and both can be written.

    >>> row = LabelledSolution(prompt="3 + 4?", completions=("3 + 4 = 8.",), labels=(False,), problem_id="a")
    >>> solution_rows([row.as_row()]) == [row]
    True
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from verl.reasoning.records import problem_id
from verl.stepwise.first_error import NONE, first_wrong


@dataclass(frozen=True, kw_only=True)
class LabelledSolution:
    """A solution, cut into steps, with what is known of each."""

    prompt: str
    """The problem."""
    completions: tuple[str, ...]
    """The steps."""
    labels: tuple[bool | None, ...]
    """Whether each is right; None: not known, and not trained on."""
    values: tuple[float | None, ...] = ()
    """Probability that each is right, where labels are soft; (): they are hard."""
    sources: tuple[str | None, ...] = ()
    """Who says so, of each step: mc, perturb, judge, human, propagated."""
    problem_id: str = ""
    """Of its problem: rows of one problem are never split between training and validation."""
    correct: bool | None = None
    """Whether the final answer is right."""
    perturbation_type: str | None = None
    """Kind of the planted error; None: it is natural."""
    n_success: tuple[int, ...] = ()
    """Of completions from each step."""
    n_rollouts: tuple[int, ...] = ()
    """Completions from each step that could be judged."""
    meta: dict[str, Any] = field(default_factory=dict)
    """Whatever else is known."""

    def __post_init__(self) -> None:
        count = len(self.completions)
        for name in ("labels", "values", "sources", "n_success", "n_rollouts"):
            got = len(getattr(self, name))
            if got != count and not (got == 0 and name != "labels"):
                raise ValueError(f"{got} {name} for the {count} steps of {self.prompt[:40]!r}; give one for each step")
        for value in self.values:
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"a label of {value} is no probability; write one between 0 and 1, or None")

    @property
    def targets(self) -> tuple[float | None, ...]:
        """What a model learns for each step: a probability, or None."""
        hard = tuple(None if label is None else float(label) for label in self.labels)
        return self.values or hard

    @property
    def first_error(self) -> int:
        """Earliest step that is labelled wrong; -1: none."""
        return first_wrong(self.labels)

    @property
    def first_error_known(self) -> bool:
        """Whether a step is labelled wrong behind right ones, or all are labelled right."""
        end = len(self.labels) if self.first_error == NONE else self.first_error
        return bool(self.labels) and None not in self.labels[:end]

    def as_row(self) -> dict[str, Any]:
        """TRL's stepwise format, with further columns; plain JSON."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    def step_rows(self) -> list[dict[str, Any]]:
        """One row for each labelled step; what is not labelled has none."""
        rows = []
        for place, target in enumerate(self.targets):
            if target is None:
                continue
            rows.append(
                {
                    "problem": self.prompt,
                    "context": list(self.completions[:place]),
                    "step": self.completions[place],
                    "label": target,
                    "step_index": place,
                    "total_steps": len(self.completions),
                    "is_correct": self.correct,
                    "perturbation_type": self.perturbation_type if place == self.first_error else None,
                    "problem_id": self.problem_id,
                }
            )
        return rows


class PRMDataset(list[dict[str, Any]]):
    """Rows of steps, as a list; the solutions that they are of are in `solutions`, and what was counted in `stats`.

    `needless` holds solutions with a planted step that repeats or explains nothing: a channel of its own.
    """

    def __init__(
        self,
        solutions: Iterable[LabelledSolution],
        stats: Mapping[str, Any] | None = None,
        needless: Iterable[LabelledSolution] = (),
    ) -> None:
        self.solutions, self.needless = list(solutions), list(needless)
        self.stats = dict(stats or {})
        super().__init__(row for solution in self.solutions for row in solution.step_rows())

    @property
    def solution_rows(self) -> list[dict[str, Any]]:
        """In TRL's stepwise format."""
        return [solution.as_row() for solution in self.solutions]


def solution_rows(data: Sequence[Any] | PRMDataset) -> list[LabelledSolution]:
    """Labelled solutions from a `PRMDataset`, from rows of solutions, or from rows of steps.

    Rows of steps are joined where they have the same problem and each one's context is what came before.

    Raises:
        ValueError: a row is none of these.
    """
    if isinstance(data, PRMDataset):
        return list(data.solutions)
    found: list[LabelledSolution] = []
    steps: list[Mapping[str, Any]] = []
    for number, row in enumerate(data):
        if isinstance(row, LabelledSolution):
            found.append(row)
        elif isinstance(row, Mapping) and {"prompt", "completions", "labels"} <= row.keys():
            found.append(_solution(row))
        elif isinstance(row, Mapping) and {"problem", "context", "step", "label"} <= row.keys():
            if steps and not _goes_on(steps[-1], row):
                found.append(_joined(steps))
                steps = []
            steps.append(row)
        else:
            raise ValueError(
                f"row {number} has neither prompt, completions and labels nor problem, context, step and label"
            )
    if steps:
        found.append(_joined(steps))
    return found


def split_by_problem(
    rows: Sequence[LabelledSolution], share: float, seed: int = 0
) -> tuple[list[LabelledSolution], list[LabelledSolution]]:
    """Training and validation rows; all rows of a problem are on one side, whatever their order.

    Raises:
        ValueError: there are fewer than two problems, so that one side would be empty.
    """
    from hashlib import blake2b

    def draw(name: str) -> bytes:
        return blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()

    names = sorted({_name(row) for row in rows}, key=lambda name: (draw(name), name))
    if len(names) < 2:
        raise ValueError(f"{len(names)} problem cannot be split into training and validation; give val_data")
    held = set(names[: min(len(names) - 1, max(1, math.floor(share * len(names) + 0.5)))])
    return [row for row in rows if _name(row) not in held], [row for row in rows if _name(row) in held]


def _name(row: LabelledSolution) -> str:
    return row.problem_id or problem_id(row.prompt)


def _solution(row: Mapping[str, Any]) -> LabelledSolution:
    given: dict[str, Any] = {"prompt": row["prompt"], "completions": tuple(row["completions"])}
    for name in ("values", "sources", "n_success", "n_rollouts"):
        given[name] = tuple(row.get(name) or ())
    for name in ("correct", "perturbation_type"):
        given[name] = row.get(name)
    labels = tuple(row["labels"])
    if any(isinstance(label, float) and label not in (0.0, 1.0) for label in labels):
        given["values"] = labels
        labels = tuple(None if label is None else label > 0 for label in labels)
    return LabelledSolution(
        **given,
        labels=tuple(None if label is None else bool(label) for label in labels),
        problem_id=str(row.get("problem_id") or problem_id(row["prompt"])),
        meta=dict(row.get("meta") or {}),
    )


def _goes_on(before: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    context = [*_context(before), before["step"]]
    return row["problem"] == before["problem"] and _context(row)[: len(context)] == context


def _context(row: Mapping[str, Any]) -> list[str]:
    if isinstance(row["context"], str):
        raise ValueError("the context of a step is one text; write the list of the steps before it")
    return list(row["context"])


def _joined(rows: Sequence[Mapping[str, Any]]) -> LabelledSolution:
    last = rows[-1]
    completions = [*_context(last), last["step"]]
    values: list[float | None] = [None] * len(completions)
    for row in rows:
        values[len(_context(row))] = None if row["label"] is None else float(row["label"])
    kinds = [row.get("perturbation_type") for row in rows if row.get("perturbation_type")]
    return _solution(
        {
            "prompt": last["problem"],
            "completions": completions,
            "labels": values,
            "problem_id": last.get("problem_id"),
            "correct": last.get("is_correct"),
            "perturbation_type": kinds[0] if kinds else None,
        }
    )
