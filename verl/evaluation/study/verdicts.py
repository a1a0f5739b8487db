"""What was predicted of a study before it was run, and what came of it.

One decision: predictions are data. `docs/claim/predictions.yaml` is committed before the first run, and a verdict
follows from it and from the result files by the rules below, without anybody's judgement:

* `exceeds`: left exceeds right by at least `by` in the mean, and the whole interval is above 0.
* `does_not_exceed`: the whole interval of left less right is below `by`.
* `within`: the mean of left less right is at most `by` away from 0.

A prediction is `held` if its rule is met, and its condition too where it has one (`accuracy_within`: the mean of the
two arms' policy accuracies differs by at most so much). Else it is `refuted`: an interval that includes the bound
refutes, there is no "nearly held". It is `open` while a seed of the study lacks the measure in one of the two arms; no
verdict is given on fewer seeds than the study has.

The file has one key, `predictions`, a list; the keys of each are the fields of `Prediction`. Which arms and seeds a
study has, its `Study` says (`presets.py`).

    predictions:
      - name: unseen readers gain
        text: With two classmates, readers that were never asked follow the thoughts better.
        study: cot_transfer
        kind: exceeds
        left: two
        right: baseline
        by: 0.2
        accuracy_within: 0.02
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import yaml

from verl.classmate.errors import ConfigError
from verl.classmate.typed import parse, require
from verl.evaluation.study.presets import STUDIES
from verl.evaluation.study.results import RunResult
from verl.evaluation.study.statistics import PairedDifference
from verl.evaluation.study.summary import PRIMARY, Summary

Kind = Literal["exceeds", "does_not_exceed", "within"]
Outcome = Literal["held", "refuted", "open"]
ROUNDING = 1e-9
"""Differences of shares that are smaller come from floating point."""


class AnyArm(Protocol):
    """One way to train."""

    @property
    def name(self) -> str:
        """In result files."""

    @property
    def title(self) -> str:
        """In tables."""


class AnyStudy(Protocol):
    """What a study must tell for verdicts on it."""

    @property
    def arms(self) -> Sequence[AnyArm]:
        """In the order of tables."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """Those that each arm should have."""

    def is_measured(self, measure: str) -> bool:
        """Whether its runs have a number of this name."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A statement about two arms of a study that the runs can refute."""

    name: str
    """Short, for tables."""
    text: str
    """The whole sentence."""
    study: str
    """Name of the study."""
    kind: Kind
    """The rule; see above."""
    measure: str = PRIMARY
    """One of `RunResult.numbers`, or `curves.READER.PERCENT`."""
    left: str
    """Name of an arm."""
    right: str
    """Name of the arm that it is compared with; the same if `right_measure` is another, such as `start_unseen`."""
    right_measure: str | None = None
    """Measure of the right arm; null for the same."""
    by: float = field(metadata={"at_least": 0, "write": "0 or more, or swap left and right"})
    """The bound, in the measure's unit: shares in 0..1, tokens."""
    accuracy_within: float | None = field(default=None, metadata={"at_least": 0, "write": "for instance 0.02"})
    """The condition: how far the arms' mean policy accuracies may be apart; null for none."""

    def __post_init__(self) -> None:
        same = self.left == self.right and self.right_measure in (None, self.measure)
        require(not same, f"{self.name}: compares {self.left} with itself; write another right or right_measure")


@dataclass(frozen=True, kw_only=True)
class _File:
    predictions: tuple[Prediction, ...]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What came of a prediction."""

    prediction: Prediction
    """What was predicted."""
    outcome: Outcome
    """Whether it held."""
    difference: PairedDifference
    """Left less right in the measure, over the seeds that both have so far."""
    accuracy: PairedDifference
    """Left less right in policy accuracy: always shown beside the measure, and a condition where one is set."""
    why: str
    """Which part of the rule was not met, or what is missing; empty if it held."""


def load_predictions(path: Path, studies: Mapping[str, AnyStudy] = STUDIES) -> tuple[Prediction, ...]:
    """Reads what was predicted; the first of a study is its main one.

    Raises:
        ConfigError: no YAML, an unknown or missing key, a study or an arm that there is not, a name twice; in one line.
        FileNotFoundError: there is no such file.
    """
    try:
        content = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, Mapping):
        raise ConfigError(f"{path}: expected the key predictions and a list")
    predictions = parse(_File, content, path.name).predictions
    names = [one.name for one in predictions]
    for one in predictions:
        where = f"{path.name}: {one.name}"
        require(names.count(one.name) == 1, f"{where}: there are two of this name; rename one")
        require(one.study in studies, f"{where}: {one.study!r} is no study; write one of: {', '.join(studies)}")
        for measure in (one.measure, one.right_measure or one.measure):
            told = f"{where}: {measure!r} is never measured in {one.study}; its docstring says what is"
            require(studies[one.study].is_measured(measure), told)
        arms = [arm.name for arm in studies[one.study].arms]
        for arm in (one.left, one.right):
            require(arm in arms, f"{where}: {arm!r} is no arm of {one.study}; write one of: {', '.join(arms)}")
    return predictions


def summarise(name: str, results: Iterable[RunResult], studies: Mapping[str, AnyStudy] = STUDIES) -> Summary:
    """The runs of a study with its arms and seeds; of a study that is not among `studies`, those that were run.

    Raises:
        ValueError: a run of an arm or a seed that the study has not; in one line.
    """
    if name not in studies:
        return Summary.of(name, results)
    study = studies[name]
    return Summary.of(name, results, {arm.name: arm.title for arm in study.arms}, study.seeds)


def judge(prediction: Prediction, summary: Summary) -> Verdict:
    """What came of a prediction, by the rules above. `summary` is of its study, with all seeds that it should have."""
    one = prediction
    difference = summary.difference(one.left, one.right, one.measure, one.right_measure)
    accuracy = summary.difference(one.left, one.right, "accuracy")
    lacking = _lacking(one, summary)
    why = lacking or _broken(one, difference) or _condition_broken(one, accuracy)
    outcome: Outcome = "open" if lacking else "refuted" if why else "held"
    return Verdict(prediction=one, outcome=outcome, difference=difference, accuracy=accuracy, why=why)


def _lacking(one: Prediction, summary: Summary) -> str:
    """Which seeds of the study lack a number that the rule needs."""
    needed = [(one.left, one.measure), (one.right, one.right_measure or one.measure)]
    if one.accuracy_within is not None:
        needed += [(one.left, "accuracy"), (one.right, "accuracy")]
    said = []
    for arm, measure in dict.fromkeys(needed):
        seeds = summary.missing(arm, measure)
        if seeds:
            said.append(f"{arm} lacks {measure} at seed{'s'[: len(seeds) - 1]} {', '.join(map(str, seeds))}")
    return "; ".join(said)


def _broken(one: Prediction, difference: PairedDifference) -> str:
    """Which part of the rule on the measure is not met; all seeds are there."""
    mean, interval = difference.mean.value, difference.interval
    if mean is None or interval is None:
        raise ValueError(f"{one.study}: fewer than two seeds give no interval; give the study more")
    if one.kind == "within":
        return "" if abs(mean) <= one.by + ROUNDING else f"the mean is more than {one.by:g} away from 0"
    if one.kind == "does_not_exceed":
        return "" if interval[1] < one.by - ROUNDING else f"the interval is not all below {one.by:g}"
    if mean < one.by - ROUNDING:
        return f"the mean is below {one.by:g}"
    return "" if interval[0] > ROUNDING else "the interval is not all above 0"


def _condition_broken(one: Prediction, accuracy: PairedDifference) -> str:
    mean = accuracy.mean.value
    if one.accuracy_within is None or mean is None or abs(mean) <= one.accuracy_within + ROUNDING:
        return ""
    return f"the arms' accuracies are more than {one.accuracy_within:g} apart"
