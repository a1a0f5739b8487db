"""One study's runs as its tables, figures and verdicts see them: every number is worked out here, by one rule.

>>> summary = Summary.of("cot_transfer", load_results(Path("docs/claim"), "cot_transfer"))
>>> summary.mean("two", "unseen")
Mean(n=8, value=0.41, half=0.07)
>>> summary.difference("two", "baseline", "unseen").interval
(0.25, 0.41)
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from verl.data_preprocessing.worlds.spec import Role
from verl.evaluation.study.results import SHARES, RunResult
from verl.evaluation.study.statistics import Mean, PairedDifference, mean_of, paired

PRIMARY = "unseen"
"""The measure that a study is about."""
BASELINE = "baseline"
"""The arm that others are compared with."""
PERCENTS = tuple(round(100 * share) for share in SHARES)
"""Names of a curve's points."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Summary:
    """The runs of a study, by arm and seed."""

    name: str
    """Of the study."""
    labels: Mapping[str, str]
    """Arm -> what it is, in plain words; in the order in which arms are shown."""
    seeds: tuple[int, ...]
    """The seeds that each arm should have."""
    runs: Mapping[tuple[str, int], RunResult]
    """Arm and seed -> the run; those that are not there have not been run."""

    @classmethod
    def of(
        cls,
        name: str,
        results: Iterable[RunResult],
        labels: Mapping[str, str] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> "Summary":
        """The runs of study `name` among `results`.

        Args:
            labels: the arms; None for those that were run, the baseline first.
            seeds: the seeds; None for those that were run.

        Raises:
            ValueError: a run of an arm or a seed that is not listed, or the same reader in two roles; in one line.
        """
        runs = {(one.arm, one.seed): one for one in results if one.study == name}
        arms = sorted({arm for arm, _ in runs}, key=lambda arm: (arm != BASELINE, arm))
        roles: dict[str, str] = {}
        for (arm, seed), run in runs.items():
            where = f"{name}/{arm}_seed{seed}"
            if labels is not None and arm not in labels:
                raise ValueError(f"{where}: the study has no arm {arm}; remove the file")
            if seeds is not None and seed not in seeds:
                raise ValueError(f"{where}: the study has no seed {seed}; remove the file")
            for reader, role in run.readers.items():
                if roles.setdefault(reader, role) != role:
                    raise ValueError(f"{where}: {reader} is {role} here and {roles[reader]} elsewhere; run it again")
        return cls(
            name=name,
            labels=labels if labels is not None else {arm: arm.replace("_", " ") for arm in arms},
            seeds=tuple(seeds if seeds is not None else sorted({seed for _, seed in runs})),
            runs=runs,
        )

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that have a run, in the order in which they are shown."""
        there = {arm for arm, _ in self.runs}
        return tuple(arm for arm in self.labels if arm in there)

    def runs_of(self, arm: str) -> list[RunResult]:
        """The runs of an arm, by seed."""
        return [run for (its_arm, _), run in sorted(self.runs.items()) if its_arm == arm]

    def missing(self, arm: str, measure: str | None = None) -> tuple[int, ...]:
        """Seeds at which an arm has not been run, or a measure not been taken."""
        there = {run.seed for run in self.runs_of(arm)} if measure is None else self.values(arm, measure).keys()
        return tuple(seed for seed in self.seeds if seed not in there)

    def readers(self, role: Role | None = None) -> tuple[str, ...]:
        """Readers that were asked in any run, those of one role or all: classmates, unseen readers, insiders."""
        found = {name: its_role for run in self.runs.values() for name, its_role in run.readers.items()}
        roles = ("classmate", "unseen", "insider") if role is None else (role,)
        return tuple(name for one in roles for name in sorted(found) if found[name] == one)

    def role_of(self, reader: str) -> str:
        """The role of a reader that was asked."""
        return next(run.readers[reader] for run in self.runs.values() if reader in run.readers)

    def named(self, prefix: str) -> tuple[str, ...]:
        """What follows `prefix` in the names of numbers that any run has, in alphabetical order, numbers by size."""
        found = {name for run in self.runs.values() for name in run.numbers if name.startswith(prefix)}
        return tuple(
            sorted((name.removeprefix(prefix) for name in found), key=lambda name: (len(name) * name.isdigit(), name))
        )

    def styles(self) -> tuple[str, ...]:
        """Names of the styles that any run's policy wrote, `other` last."""
        return tuple(sorted(self.named("style_"), key=lambda name: (name == "other", name)))

    def values(self, arm: str, measure: str) -> dict[int, float]:
        """Seed -> number, where it was measured: one of `RunResult.numbers`, or a point `curves.READER.PERCENT`.

        The shares of styles make up all thoughts: where some were measured, a style without a number has share 0.
        """
        found = {}
        for run in self.runs_of(arm):
            value = _point(run, measure) if measure.startswith("curves.") else run.numbers.get(measure)
            prefix = measure[: measure.find("style_") + len("style_")] if "style_" in measure else None
            if value is None and prefix in ("style_", "start_style_"):
                value = 0.0 if any(name.startswith(prefix) for name in run.numbers) else None
            if value is not None:
                found[run.seed] = value
        return found

    def mean(self, arm: str, measure: str) -> Mean:
        """Mean of a measure over an arm's seeds."""
        return mean_of(self.values(arm, measure).values())

    def start(self, measure: str) -> Mean:
        """Mean of what the start policies had, which all arms of a seed share: the first arm that says it counts."""
        found: dict[int, float] = {}
        for arm in self.arms:
            found = self.values(arm, f"start_{measure}") | found
        return mean_of(found.values())

    def difference(self, left: str, right: str, measure: str, right_measure: str | None = None) -> PairedDifference:
        """A measure of the arm `left` less that of `right`, over the seeds that both have."""
        return paired(self.values(left, measure), self.values(right, right_measure or measure))

    def compared_with(self, arm: str) -> str | None:
        """The baseline of an arm: `baseline_cost` for `two_cost` if there is one, else `baseline`; None for itself."""
        ends = [arm[place:] for place, letter in enumerate(arm) if letter == "_"]
        possible = [*(f"{BASELINE}{end}" for end in ends), BASELINE]
        return next((other for other in possible if other in self.arms and other != arm), None)

    def curve(self, arm: str, readers: Sequence[str]) -> list[Mean] | None:
        """Accuracy at 0, 25, 50, 75 and 100 % of the thought, of these readers together.

        The mean over readers is taken within a run; only runs in which all of them were asked count. None without any.
        """
        runs = [run for run in self.runs_of(arm) if all(reader in run.curves for reader in readers)]
        if not runs or not readers:
            return None
        return [mean_of(fmean(run.curves[name][k] for name in readers) for run in runs) for k in range(len(SHARES))]

    def digest(self) -> str:
        """Hash of all that a figure of the study is drawn from."""
        texts = [run.to_json() for _, run in sorted(self.runs.items())]
        return hashlib.sha256("\n".join([*texts, repr(dict(self.labels)), repr(self.seeds)]).encode()).hexdigest()


def _point(run: RunResult, measure: str) -> float | None:
    """`curves.READER.PERCENT` of a run; None if the reader was not asked.

    Raises:
        ValueError: no such point.
    """
    reader, _, percent = measure.removeprefix("curves.").rpartition(".")
    if percent not in map(str, PERCENTS):
        raise ValueError(f"{measure}: no point of a curve; write curves.READER.PERCENT with one of {PERCENTS}")
    return run.curves[reader][PERCENTS.index(int(percent))] if reader in run.curves else None
