"""What stages exchange: problems and solutions, as lines of JSON.

One decision: a record is a value that is never changed. Who learns more of a solution (a score, its steps) makes
another one with `dataclasses.replace`, so that a pool of samples can be scored twice and keep both scores.

    >>> problem = as_problem({"problem": "What is 3 + 4?", "answer": "7"})
    >>> write_jsonl(Path("problems.jsonl"), [problem])
    >>> read_jsonl(Path("problems.jsonl"), Problem)
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from verl.stepwise.step import Step
from verl.trainer.run.state import write_atomically

T = TypeVar("T", "Problem", "Solution")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A task with an answer that can be checked, if one is known."""

    id: str
    """Stable: the same text has the same id in every run."""
    problem: str
    """What the user asks."""
    answer: str | None = None
    """The gold answer; None: not known."""
    source: str = ""
    """Name of the verifier, as `data_source` of a data set; "": the reward function knows."""
    level: str | int | None = None
    """How hard it is said to be."""
    meta: dict[str, Any] = field(default_factory=dict)
    """Whatever else a data set says of it."""


@dataclass(frozen=True, kw_only=True)
class Solution:
    """One answer to a problem, and what became known of it."""

    problem_id: str
    """Of its problem."""
    text: str
    """All that the model wrote."""
    thinking: str = ""
    """The chain of thought in it."""
    answer_text: str = ""
    """What follows the chain of thought."""
    final_answer: str | None = None
    """The answer that was read out of it; None: there is none."""
    steps: tuple[Step, ...] = ()
    """Of `thinking`, or of `text` where no thought is marked."""
    n_tokens: int = 0
    """Generated, in the tokens of the model."""
    score: float | None = None
    """Its reward; None: not scored, or the reward failed, which is never a 0."""
    reward: dict[str, float] = field(default_factory=dict)
    """Components of the reward."""
    correct: bool | None = None
    """Whether the verifier accepts the answer; None: not known."""
    finish_reason: str | None = None
    """`stop`, or `length` for one that was cut off."""
    log_prob: float | None = None
    """Mean log-probability of a generated token, where the engine tells it."""
    seed: int | None = None
    """It was drawn from."""
    model: str = ""
    """Who wrote it: path or hub name, with its revision."""
    sampling: dict[str, Any] = field(default_factory=dict)
    """With which settings."""
    meta: dict[str, Any] = field(default_factory=dict)
    """Whatever a stage adds: `refined`, scores of its steps, what other readers made of it."""


def as_problem(given: "Problem | str | Mapping[str, Any]") -> Problem:
    """A problem from whatever a user has: a text, a mapping with `problem` (or `question`), or a problem.

    Raises:
        ValueError: there is no text in it.
    """
    if isinstance(given, Problem):
        return given
    if isinstance(given, str):
        given = {"problem": given}
    if not isinstance(given, Mapping):
        raise ValueError(f"{given!r:.80} is no problem; write a text, or {{'problem': ..., 'answer': ...}}")
    known = {one.name for one in dataclasses.fields(Problem)}
    values = {key: value for key, value in given.items() if key in known and key != "meta"}
    values.setdefault("problem", given.get("question"))
    text = values["problem"]
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"a problem without a text: {str(dict(given))[:80]}; write {{'problem': ..., 'answer': ...}}")
    if values.get("answer") is not None:
        values["answer"] = str(values["answer"])
    values["id"] = str(values.get("id") or problem_id(text))
    meta = {key: value for key, value in given.items() if key not in known and key != "question"}
    return Problem(**values, meta={**meta, **dict(given.get("meta") or {})})


def as_problems(given: Sequence["Problem | str | Mapping[str, Any]"]) -> list[Problem]:
    """Each as by `as_problem`.

    Raises:
        ValueError: one has no text, or two different problems have the same id.
    """
    problems, seen = [as_problem(one) for one in given], dict[str, str]()
    for one in problems:
        if seen.setdefault(one.id, one.problem) != one.problem:
            raise ValueError(f"two problems have the id {one.id!r}; give each its own, or none")
    return problems


def problem_id(text: str) -> str:
    """16 hexadecimal digits that follow from the text of a problem alone."""
    return blake2b(text.strip().encode(), digest_size=8).hexdigest()


def write_jsonl(path: Path, records: Iterable["Problem | Solution | Mapping[str, Any]"]) -> int:
    """Writes the records, one a line, all or none; returns how many there were."""
    lines = [
        json.dumps(dict(one) if isinstance(one, Mapping) else dataclasses.asdict(one), ensure_ascii=False)
        for one in records
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(line + "\n" for line in lines))
    return len(lines)


def lines_of(text: str) -> list[str]:
    """Lines of a JSONL file; a model's text may hold U+2028 and U+0085, which JSON leaves and `splitlines` cuts at."""
    return text.removesuffix("\n").split("\n") if text else []


def read_jsonl(path: Path, kind: type[T]) -> list[T]:
    """The records of a file.

    Raises:
        ValueError: a line is no such record; names the file and the line.
    """
    found: list[T] = []
    for number, line in enumerate(lines_of(path.read_text()), 1):
        try:
            values = json.loads(line)
            if kind is Solution:
                values["steps"] = tuple(Step(**step) for step in values.get("steps", ()))
            found.append(kind(**values))
        except (TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{path}, line {number}: no {kind.__name__.lower()} ({error}); write it again") from None
    return found
