"""What is kept of a study: one small JSON file a run, from which alone tables, figures and verdicts are made.

One decision: a number that was not measured is not in the file. Nothing is filled in, neither by 0 nor by NaN.

    >>> write_result(result, Path("docs/claim"))
    PosixPath('docs/claim/cot_transfer/two_seed11.json')
    >>> load_results(Path("docs/claim"))[0].numbers["unseen"]
    0.41
"""

import dataclasses
import json
import math
import re
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, get_args, get_origin

from verl.data_preprocessing.worlds.spec import Role
from verl.trainer.run.state import write_atomically

SCHEMA = 1
"""Of the files that are written now."""
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Parts of the stripped thought at which a curve has its points."""
EXAMPLE_KEYS = ("question", "before", "after")
"""What an example says: the problem, the start policy's thought, the trained policy's."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What one run, an arm with a seed, came to.

    Raises:
        ValueError: a number that is not finite, a curve without its five points, an example without its three texts, a
            role that is none, a curve of a reader without a role, or a name that cannot be a file's; in one line.
    """

    schema: int = SCHEMA
    """Which keys the file has."""
    study: str
    """Name of the study; letters, digits and `_`."""
    arm: str
    """Name of the arm; letters, digits and `_`."""
    seed: int
    """Seed of the world and of the training."""
    steps: int
    """Training steps that were taken."""
    key: str
    """Hash of everything that the run follows from; under another key the run is stale."""
    commit: str
    """Git commit of the code, or `unknown`."""
    seconds: dict[str, float]
    """How long `world`, `training` and `measuring` took."""
    readers: dict[str, str]
    """Role of each reader that was asked: `classmate`, `unseen` or `insider`."""
    numbers: dict[str, float]
    """Shares in 0..1 and tokens, by name; what was not measured is missing.

    `accuracy`, `tokens`, `style_STYLE`; for each reader `reads_READER`, `reads_full_READER`, `alone_READER`; `unseen`,
    `unseen_raw`, `classmates`, `insider_gap`, `learner_N`, `samples_to_learn`; those of the start policy with `start_`
    before them."""
    curves: dict[str, list[float]]
    """Accuracy of each reader with 0, 25, 50, 75 and 100 % of the stripped thought."""
    day: str = field(default_factory=lambda: date.today().isoformat())
    """When the result was made, YYYY-MM-DD."""
    examples: list[dict[str, str]] = field(default_factory=list)
    """Held-out problems with the thoughts of the start policy (`before`) and of the trained one (`after`)."""

    def __post_init__(self) -> None:
        where = f"{self.study}/{self.arm}_seed{self.seed}"
        if self.schema != SCHEMA:
            raise ValueError(f"{where}: schema {self.schema} is not read, only {SCHEMA}; run the study again")
        for name in (self.study, self.arm):
            if not re.fullmatch(r"\w+", name):
                raise ValueError(f"{where}: {name!r} cannot be a file's name; write letters, digits and _")
        lists = {f"curves.{name}": values for name, values in self.curves.items()}
        single = {f"seconds.{name}": [value] for name, value in self.seconds.items()}
        single |= {f"numbers.{name}": [value] for name, value in self.numbers.items()}
        for name, values in (lists | single).items():
            if not all(map(math.isfinite, values)):
                raise ValueError(f"{where}: {name} is {values}; leave out what was not measured")
        for name, values in self.curves.items():
            if len(values) != len(SHARES):
                raise ValueError(f"{where}: curves.{name} has {len(values)} points; write {len(SHARES)}")
            if name not in self.readers:
                raise ValueError(f"{where}: curves.{name} is of no reader; write its role into readers")
        for name, role in self.readers.items():
            if role not in get_args(Role):
                raise ValueError(f"{where}: {role!r} of {name} is no role; write one of: {', '.join(get_args(Role))}")
        for example in self.examples:
            if set(example) != set(EXAMPLE_KEYS):
                raise ValueError(f"{where}: an example has {sorted(example)}; write {', '.join(EXAMPLE_KEYS)}")

    def readers_with(self, role: Role) -> tuple[str, ...]:
        """Names of the readers of a role, in the order of the file."""
        return tuple(name for name, has in self.readers.items() if has == role)

    def path(self, results_dir: Path) -> Path:
        """Where the result lies below the folder of all studies' results."""
        return results_dir / self.study / f"{self.arm}_seed{self.seed}.json"

    def to_json(self) -> str:
        """The text of the file."""
        return json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def from_json(text: str | bytes, where: str = "result") -> RunResult:
    """The run of a file's text; `where` names it in messages.

    Raises:
        ValueError: the text is no result; in one line.
    """
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{where}: no JSON ({error}); remove the file and run the study again") from None
    fields = {one.name: one for one in dataclasses.fields(RunResult)}
    if not isinstance(content, dict):
        raise ValueError(f"{where}: expected keys and values; remove the file and run the study again")
    wrong = [name for name in content if name not in fields]
    if wrong:
        raise ValueError(f"{where}: unknown key {wrong[0]}; known keys: {', '.join(fields)}")
    missing = [name for name in fields if name not in content and name != "examples"]
    if missing:
        raise ValueError(f"{where}: {missing[0]} is missing; run the study again")
    for name, value in content.items():
        if not _fits(value, fields[name].type):
            raise ValueError(f"{where}: {name} cannot be {value!r}; run the study again")
    return RunResult(**content)


def write_result(result: RunResult, results_dir: Path) -> Path:
    """Writes a run's file below the folder of all studies' results, in one step, and says where."""
    path = result.path(results_dir)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, result.to_json())
    return path


def read_result(path: Path) -> RunResult:
    """The run of a file.

    Raises:
        ValueError: the file is no result, or that of another run than its name says; in one line.
    """
    result = from_json(path.read_bytes(), str(path))
    if result.path(path.parent.parent) != path:
        raise ValueError(f"{path}: holds {result.study}/{result.arm}_seed{result.seed}; rename or remove it")
    return result


def load_results(results_dir: Path, study: str | None = None) -> tuple[RunResult, ...]:
    """All runs below the folder of all studies' results, or those of one study; by study, arm and seed.

    Raises:
        ValueError: a file is no result, or runs of one study took different numbers of steps; in one line.
    """
    paths = results_dir.glob(f"{study or '*'}/*_seed*.json")
    results = sorted(map(read_result, paths), key=lambda one: (one.study, one.arm, one.seed))
    steps: dict[str, RunResult] = {}
    for one in results:
        other = steps.setdefault(one.study, one)
        if other.steps != one.steps:
            told = f"{other.path(results_dir)} took {other.steps} steps and {one.path(results_dir)} {one.steps}"
            raise ValueError(f"{told}; remove those that do not belong together")
    return tuple(results)


def key_in(file: Path) -> str | None:
    """The key that a file of ours names; None if it cannot be read."""
    try:
        found = json.loads(file.read_text())["key"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(found)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a field of this type can hold the value; integers are numbers, true and false are not."""
    inner = get_args(hint)
    if get_origin(hint) is dict:
        return isinstance(value, dict) and all(_fits(one, inner[1]) for one in value.values())
    if get_origin(hint) is list:
        return isinstance(value, list) and all(_fits(one, inner[0]) for one in value)
    return type(value) in ((int, float) if hint is float else (hint,))
