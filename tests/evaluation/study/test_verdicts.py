"""Verdicts follow from numbers by written rules, and a mistake in the predictions is refused before anything is run."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.evaluation.study.made_up import PREDICTIONS, SEEDS, STUDY, all_results, result
from verl.classmate.errors import ConfigError
from verl.evaluation.study.results import RunResult
from verl.evaluation.study.statistics import mean_of
from verl.evaluation.study.verdicts import Prediction, Verdict, judge, load_predictions, summarise

STUDIES = {"transfer": STUDY}
GAIN = Prediction(name="gain", text="", study="transfer", kind="exceeds", left="two", right="baseline", by=0.2)


def verdict(prediction: Prediction, results: list[RunResult]) -> Verdict:
    return judge(prediction, summarise("transfer", results, STUDIES))


def with_differences(differences: list[float], apart: float = 0.0) -> list[RunResult]:
    """Runs of two arms of which the unseen readers differ by these, and the accuracies by `apart`."""
    pairs = list(zip(SEEDS, differences, strict=True))
    left = [result("two", seed, unseen=0.25 + one, accuracy=0.8 + apart) for seed, one in pairs]
    return left + [result("baseline", seed, unseen=0.25, accuracy=0.8) for seed, _ in pairs]


@pytest.mark.parametrize(
    ("kind", "by", "differences", "outcome", "why"),
    [
        ("exceeds", 0.2, [0.2, 0.3, 0.2, 0.3], "held", ""),
        ("exceeds", 0.25, [0.25] * 4, "held", ""),
        ("exceeds", 0.3, [0.2, 0.3, 0.2, 0.3], "refuted", "the mean is below 0.3"),
        ("exceeds", 0.2, [0.0, 0.9, 0.1, 0.2], "refuted", "the interval is not all above 0"),
        ("exceeds", 0.0, [0.0] * 4, "refuted", "the interval is not all above 0"),
        ("does_not_exceed", 0.1, [0.0, 0.01, -0.01, 0.0], "held", ""),
        ("does_not_exceed", 0.1, [0.0, 0.2, -0.1, 0.1], "refuted", "the interval is not all below 0.1"),
        ("does_not_exceed", 0.25, [0.25] * 4, "refuted", "the interval is not all below 0.25"),
        ("does_not_exceed", 0.0, [-0.5, -0.4, -0.5, -0.4], "held", ""),
        ("within", 0.25, [0.25] * 4, "held", ""),
        ("within", 0.02, [0.5, -0.5, 0.01, 0.01], "held", ""),
        ("within", 0.02, [-0.03] * 4, "refuted", "the mean is more than 0.02 away from 0"),
    ],
)
def test_the_rules(kind, by, differences, outcome, why):
    found = verdict(replace(GAIN, kind=kind, by=by), with_differences(differences))
    assert (found.outcome, found.why) == (outcome, why)
    assert found.difference.mean.value == pytest.approx(sum(differences) / 4)


def test_a_condition_refutes_and_without_one_it_is_only_shown() -> None:
    runs = with_differences([0.4] * 4, apart=0.05)
    assert verdict(GAIN, runs).outcome == "held"
    assert verdict(GAIN, runs).accuracy.mean.value == pytest.approx(0.05)
    found = verdict(replace(GAIN, accuracy_within=0.02), runs)
    assert (found.outcome, found.why) == ("refuted", "the arms' accuracies are more than 0.02 apart")
    assert verdict(replace(GAIN, accuracy_within=0.05), runs).outcome == "held"


def test_it_is_open_until_every_seed_has_what_the_rule_needs() -> None:
    runs = with_differences([0.4] * 4)
    found = verdict(GAIN, [run for run in runs if (run.arm, run.seed) not in {("two", 14), ("two", 12)}])
    assert (found.outcome, found.why, found.difference.n) == ("open", "two lacks unseen at seeds 12, 14", 2)
    without = [run for run in runs if run != result("baseline", 13, unseen=0.25, accuracy=0.8)]
    without.append(result("baseline", 13, unseen=None))
    assert verdict(GAIN, without).why == "baseline lacks unseen at seed 13"
    assert verdict(GAIN, []).outcome == "open"


def test_other_measures_of_one_arm_and_points_of_curves() -> None:
    grown = replace(GAIN, left="baseline", right="baseline", right_measure="start_unseen", by=0.05)
    found = verdict(grown, all_results())
    assert found.difference.mean.value == pytest.approx(0.105)
    point = verdict(replace(GAIN, measure="curves.insider.100"), all_results())
    assert point.difference.mean.value == pytest.approx(0.4)


def test_runs_that_the_study_has_not_are_never_mixed_in() -> None:
    with pytest.raises(ValueError, match="transfer/two_seed3: the study has no seed 3; remove the file"):
        summarise("transfer", [result(seed=3)], STUDIES)
    with pytest.raises(ValueError, match="transfer/three_seed11: the study has no arm three; remove the file"):
        summarise("transfer", [result("three")], STUDIES)


@given(
    differences=st.lists(st.floats(-0.2, 0.7), min_size=4, max_size=4),
    by=st.floats(0, 0.5),
)
def test_exceeding_and_not_exceeding_never_both_hold(differences, by):
    runs = with_differences(differences)
    exceeds = verdict(replace(GAIN, by=by), runs)
    below = verdict(replace(GAIN, kind="does_not_exceed", by=by), runs)
    assert "open" not in (exceeds.outcome, below.outcome)
    assert (exceeds.outcome, below.outcome) != ("held", "held")
    low, high = mean_of([(0.25 + one) - 0.25 for one in differences]).interval
    if low <= by <= high:
        assert below.outcome == "refuted"


def test_a_file_of_predictions(tmp_path: Path) -> None:
    path = tmp_path / "predictions.yaml"
    path.write_text(PREDICTIONS)
    first, second = load_predictions(path, STUDIES)
    assert (first.kind, first.measure, first.by, first.accuracy_within) == ("exceeds", "unseen", 0.2, 0.02)
    assert (second.kind, second.left, second.accuracy_within) == ("does_not_exceed", "placebo", None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"treshold": 0.1}, "treshold: unknown key; known keys: name, text"),
        ({"by": -0.1}, "predictions.yaml.predictions[0].by: -0.1 is negative; write 0 or more, or swap left and right"),
        ({"by": "much"}, "by: expected a number, got 'much'"),
        ({"kind": "equals"}, "kind: 'equals' is not possible; write one of: exceeds, does_not_exceed, within"),
        ({"left": "tow"}, "'tow' is no arm of transfer; write one of: baseline, placebo, two"),
        ({"study": "transver"}, "'transver' is no study; write one of: transfer"),
        ({"measure": "unsen"}, "'unsen' is never measured in transfer"),
        ({"right_measure": "curves.unseen_llama.30"}, "'curves.unseen_llama.30' is never measured in transfer"),
        ({"left": "baseline"}, "compares baseline with itself; write another right or right_measure"),
        ({"name": "the placebo does nothing"}, "there are two of this name; rename one"),
        ({"by": None}, "by: expected a number, got None"),
    ],
)
def test_a_mistake_is_refused_in_one_line(change, said, tmp_path: Path) -> None:
    content = yaml.safe_load(PREDICTIONS)
    content["predictions"][0].update(change)
    path = tmp_path / "predictions.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError) as refused:
        load_predictions(path, STUDIES)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "- a", "a: [", "forecasts: []", "predictions: {}"])
def test_a_file_of_something_else_is_refused_in_one_line(text, tmp_path: Path) -> None:
    path = tmp_path / "predictions.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_predictions(path, STUDIES)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "measure",
    ["unseen", "start_unseen_raw", "style_plain", "reads_full_insider", "alone_unseen_llama", "learner_64", "tokens"],
)
def test_measures_that_runs_have_are_known(measure, tmp_path: Path) -> None:
    content = yaml.safe_load(PREDICTIONS)
    content["predictions"][0]["measure"] = measure
    path = tmp_path / "predictions.yaml"
    path.write_text(yaml.safe_dump(content))
    assert load_predictions(path, STUDIES)[0].measure == measure
