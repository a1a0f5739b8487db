"""Makes training rows of a process reward model from solved problems: by completions, planted errors, or both.

One decision: solutions that are wrong are as welcome as right ones; what is known of each step says so, never the
answer alone.

    >>> generator = PRMDataGenerator(outcome_reward_fn, PRMConfig(label_mode="mixed"), generator=backend)
    >>> data = generator.generate_prm_dataset([{"problem": ..., "solution": ...}], resume=Path("prm.jsonl"))
    >>> PRMTrainer(config).train(data)
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from tqdm import tqdm

from verl.classmate.errors import ConfigError
from verl.reasoning.backends import GenBackend
from verl.reasoning.prm.config import PRMConfig
from verl.reasoning.prm.consensus import keep_agreed
from verl.reasoning.prm.judge import StepJudge
from verl.reasoning.prm.leak import leaking_kinds
from verl.reasoning.prm.monte_carlo import MonteCarloLabeler, Spent
from verl.reasoning.prm.outcomes import are_right
from verl.reasoning.prm.perturb import kinds_of
from verl.reasoning.prm.planting import Planter
from verl.reasoning.prm.rows import LabelledSolution, PRMDataset, solution_rows
from verl.reasoning.reading import parted
from verl.reasoning.records import Problem, Solution, as_problem, lines_of
from verl.reasoning.rewards import as_reward
from verl.stepwise.steps import split_steps
from verl.trainer.run.state import write_atomically

_CHUNK = 16
"""Problems that are labelled together, and written together where a run can be resumed."""


@dataclass(frozen=True)
class _Solved:
    """A solution with its problem, cut into steps: those of its thought, if it has one."""

    problem: Problem
    steps: tuple[str, ...]
    correct: bool | None
    around: tuple[str, str] = ("", "")
    """What stands before and behind the steps: the marks of a thought, the answer."""

    @property
    def text(self) -> str:
        """All of it."""
        return "".join((self.around[0], *self.steps, self.around[1]))


class PRMDataGenerator:
    """Labels the steps of solutions."""

    def __init__(
        self,
        outcome_reward_fn: Callable[..., Any],
        config: PRMConfig,
        generator: GenBackend | None = None,
        judge: StepJudge | None = None,
    ) -> None:
        """Asks nothing yet.

        Args:
            outcome_reward_fn: says whether a whole solution is right (`rewards.as_reward`).
            config: `label_mode`, `mc_*`, `perturbation_types`, `num_workers` and their like.
            generator: completes prefixes; needed by every mode but `perturb`, where without it only planted errors that
                arithmetic shows to be wrong are kept.
            judge: for `consensus`.

        Raises:
            ConfigError: the mode needs a generator or a judge that is not given, or a kind of error is unknown.
        """
        if generator is None and config.label_mode != "perturb":
            raise ConfigError(f"label_mode={config.label_mode!r} completes prefixes; give generator=, or use 'perturb'")
        if judge is None and config.label_mode == "consensus":
            raise ConfigError("label_mode='consensus' needs judge=; RuleJudge() or LLMJudge(backend)")
        self.config = config
        self._reward = as_reward(outcome_reward_fn)
        self._judge = judge
        self._labeler = None if generator is None else MonteCarloLabeler(generator, self._reward, config)
        self._kinds = kinds_of(config.perturbation_types)
        self._revision = "" if generator is None else f"{generator.model}@{generator.revision}"

    @property
    def spent(self) -> Spent:
        """What completions have cost."""
        return Spent() if self._labeler is None else self._labeler.spent

    def generate_prm_dataset(
        self, problems_with_solutions: Sequence[Any], resume: Path | str | None = None
    ) -> PRMDataset:
        """Rows of labelled steps; with their solutions in `.solutions` and counts in `.stats`.

        Args:
            problems_with_solutions: mappings with `problem` and `solution` (and `answer`, `correct`), or pairs of
                `Problem` and `Solution`.
            resume: a file that gets every labelled problem at once; a rerun with the same config, problems and
                generator takes from it what is there.

        Raises:
            ValueError: an item has no problem or no solution.
        """
        solved = self._solved(problems_with_solutions)
        chunks = _chunks(solved)
        donors = [(one.problem.id, step) for one in solved if one.correct for step in one.steps]
        kept = _Kept.open(resume, {"config": self._identity(), "generator": self._revision})
        found: dict[int, tuple[list[LabelledSolution], Counter[str]]] = {}
        bar = tqdm(total=len(solved), desc="label steps", unit="solution", disable=not self.config.progress)
        with bar, ThreadPoolExecutor(self.config.num_workers) as pool:
            waiting = {}
            for number, chunk in enumerate(chunks):
                known = kept.get(_key(chunk))
                if known is not None:
                    found[number] = known
                    bar.update(len(chunk))
                else:
                    waiting[pool.submit(self._label, chunk, donors)] = number
            try:
                for done in as_completed(waiting):
                    number = waiting[done]
                    found[number] = done.result()
                    kept.put(_key(chunks[number]), *found[number])
                    bar.update(len(chunks[number]))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        rows = [row for number in sorted(found) for row in found[number][0]]
        counts = sum((found[number][1] for number in sorted(found)), Counter())
        return self._guarded(rows, counts, len(solved))

    def _solved(self, items: Sequence[Any]) -> list[_Solved]:
        found = []
        for number, item in enumerate(items):
            problem, text, correct = _read(item, number)
            before, thought, behind = parted(text)
            cut = split_steps(
                thought, min_step_words=self.config.min_step_length, max_step_words=self.config.max_step_length
            )
            found.append(_Solved(problem, tuple(step.text for step in cut), correct, (before, behind)))
        asked = [place for place, one in enumerate(found) if one.correct is None and one.steps]
        told = are_right(self._reward, [(found[place].problem, found[place].text) for place in asked])
        for place, right in zip(asked, told, strict=True):
            found[place] = replace(found[place], correct=right)
        return found

    def _label(
        self, chunk: Sequence[_Solved], donors: Sequence[tuple[str, str]]
    ) -> tuple[list[LabelledSolution], Counter[str]]:
        rows: list[LabelledSolution] = []
        counts: Counter[str] = Counter(no_steps=sum(1 for one in chunk if not one.steps))
        counts["outcome_unknown"] = sum(1 for one in chunk if one.steps and one.correct is None)
        usable = [one for one in chunk if one.steps]
        if self.config.label_mode != "perturb":
            assert self._labeler is not None
            labels = self._labeler.label(
                [one.problem for one in usable],
                [one.steps for one in usable],
                [one.correct for one in usable],
                [one.around for one in usable],
            )
            rows += [_natural(one, told) for one, told in zip(usable, labels, strict=True)]
        else:
            rows += [_right(one) for one in usable if one.correct]
        if self.config.label_mode in ("perturb", "mixed"):
            planter = Planter(self.config, self._kinds, self._labeler)
            for one in usable:
                if one.correct:
                    rng = random.Random(f"{self.config.seed}/{one.problem.id}/{''.join(one.steps)}")
                    others = [step for name, step in donors if name != one.problem.id]
                    chosen = rng.sample(others, min(64, len(others)))
                    rows += planter.rows(one.problem, one.steps, rng, chosen, one.around[0])
            counts += planter.counts
        return rows, counts

    def _guarded(self, rows: list[LabelledSolution], counts: Counter[str], n_solutions: int) -> PRMDataset:
        """Without kinds whose words give them away, without too many planted errors, and where two sources agree."""
        config = self.config
        stats: dict[str, Any] = {"n_solutions": n_solutions, **counts}
        needless = [row for row in rows if row.meta.get("channel")]
        rows = [row for row in rows if not row.meta.get("channel")]
        planted = [row for row in rows if row.perturbation_type]
        natural = [row for row in rows if not row.perturbation_type]
        leaking, before, after = leaking_kinds(
            [(str(row.perturbation_type), row.completions[row.first_error], row.problem_id) for row in planted],
            [(step, row.problem_id) for row in natural for step in row.completions],
            config.max_leak,
        )
        stats |= {"leak_auc": before, "leak_auc_kept": after, "leaking_kinds": sorted(leaking)}
        planted = [row for row in planted if row.perturbation_type not in leaking]
        if config.label_mode == "consensus":
            assert self._judge is not None
            natural, agreement = keep_agreed(natural, self._judge)
            stats["consensus"] = {**asdict(agreement), "share": agreement.share}
        wrong = sum(row.first_error >= 0 for row in natural)
        if wrong and config.max_synthetic < 1:
            most = int(wrong * config.max_synthetic / (1 - config.max_synthetic))
            stats["planted_left_out"] = max(0, len(planted) - most)
            planted = sorted(planted, key=_draw)[:most]
        chosen = {id(row) for row in (*natural, *planted)}
        data = PRMDataset([row for row in rows if id(row) in chosen], stats, needless)
        data.stats |= _counted(data.solutions)
        spent = {name: value for name, value in vars(self.spent).items() if name != "lock"}
        data.stats["spent"] = spent
        return data

    def _identity(self) -> str:
        """Of the options that change a label of a single solution."""
        names = {"seed", "min_step_length", "max_step_length", "label_mode", "label_kind", "search"}
        names |= {"num_perturbations", "perturbation_types"}
        options = {key: str(value) for key, value in asdict(self.config).items() if key in names or key[:3] == "mc_"}
        return json.dumps(options, sort_keys=True)


class _Kept:
    """Labelled chunks in a file of JSON lines, or nowhere."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, tuple[list[LabelledSolution], Counter[str]]] = {}

    @classmethod
    def open(cls, path: Path | str | None, identity: Mapping[str, str]) -> "_Kept":
        kept = cls(None if path is None else Path(path))
        if kept._path is None:
            return kept
        kept._path.parent.mkdir(parents=True, exist_ok=True)
        head = json.dumps({"made_by": dict(identity)}, sort_keys=True)
        lines = lines_of(kept._path.read_text()) if kept._path.exists() else []
        if lines and lines[0] != head:
            raise ConfigError(f"{kept._path} holds labels of other options or another generator; name another file")
        if not lines:
            write_atomically(kept._path, head + "\n")
        for line in lines[1:]:
            try:
                said = json.loads(line)
                kept._known[said["key"]] = (solution_rows(said["rows"]), Counter(said["counts"]))
            except (ValueError, KeyError):
                # The last line of a run that was killed while it wrote; its problems are labelled again.
                continue
        if lines and not kept._path.read_text().endswith("\n"):
            with kept._path.open("a") as file:
                file.write("\n")
        return kept

    def get(self, key: str) -> tuple[list[LabelledSolution], "Counter[str]"] | None:
        return self._known.get(key)

    def put(self, key: str, rows: list[LabelledSolution], counts: "Counter[str]") -> None:
        if self._path is not None:
            line = json.dumps({"key": key, "rows": [row.as_row() for row in rows], "counts": counts})
            with self._path.open("a") as file:
                file.write(line + "\n")


def _read(item: Any, number: int) -> tuple[Problem, str, bool | None]:
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], Solution):
        return as_problem(item[0]), item[1].text, item[1].correct
    if not isinstance(item, Mapping) or not isinstance(item.get("solution"), (str, Solution)):
        raise ValueError(f"item {number} of problems_with_solutions: write {{'problem': ..., 'solution': ...}}")
    given = item["solution"]
    text = given.text if isinstance(given, Solution) else given
    correct = item.get("correct", given.correct if isinstance(given, Solution) else None)
    if isinstance(item.get("problem"), Problem):
        return item["problem"], text, correct
    return as_problem({key: item[key] for key in ("problem", "answer", "id", "source") if key in item}), text, correct


def _chunks(solved: Sequence[_Solved]) -> list[list[_Solved]]:
    """Solutions of a problem stay together, so that prefixes which they share are completed once."""
    groups: dict[str, list[_Solved]] = {}
    for one in solved:
        groups.setdefault(one.problem.id, []).append(one)
    names = list(groups)
    return [[one for name in names[at : at + _CHUNK] for one in groups[name]] for at in range(0, len(names), _CHUNK)]


def _key(chunk: Sequence[_Solved]) -> str:
    content = json.dumps(
        [[one.problem.id, one.problem.answer, list(one.steps), one.correct, *one.around] for one in chunk]
    )
    return blake2b(content.encode(), digest_size=16).hexdigest()


def _natural(one: _Solved, told: Sequence[Any]) -> LabelledSolution:
    soft = any(label is not None and label.value is not None for label in told)
    return LabelledSolution(
        prompt=one.problem.problem,
        completions=one.steps,
        labels=tuple(None if label is None or label.hard is None else bool(label.hard) for label in told),
        values=tuple(None if label is None else label.value for label in told) if soft else (),
        sources=tuple(None if label is None else label.source for label in told),
        problem_id=one.problem.id,
        correct=one.correct,
        n_success=tuple(0 if label is None else label.n_success for label in told),
        n_rollouts=tuple(0 if label is None else label.n_rollouts for label in told),
    )


def _right(one: _Solved) -> LabelledSolution:
    """A right solution as it is: its steps count as right."""
    return LabelledSolution(
        prompt=one.problem.problem,
        completions=one.steps,
        labels=(True,) * len(one.steps),
        sources=("propagated",) * len(one.steps),
        problem_id=one.problem.id,
        correct=True,
    )


def _draw(row: LabelledSolution) -> bytes:
    """An order that follows from the row alone."""
    return blake2b("".join((row.prompt, *row.completions)).encode(), digest_size=8).digest()


def _counted(rows: Sequence[LabelledSolution]) -> dict[str, Any]:
    wrong = [row for row in rows if row.first_error >= 0]
    planted = [row for row in wrong if row.perturbation_type]
    return {
        "rows": len(rows),
        "wrong_rows": len(wrong),
        "planted_rows": len(planted),
        "planted_share": len(planted) / len(wrong) if wrong else None,
        "kinds": dict(Counter(str(row.perturbation_type) for row in planted)),
    }


def read_rows(path: Path | str) -> Iterator[LabelledSolution]:
    """Labelled solutions of a JSONL file in TRL's stepwise format."""
    for number, line in enumerate(lines_of(Path(path).read_text()), 1):
        try:
            yield from solution_rows([json.loads(line)])
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
