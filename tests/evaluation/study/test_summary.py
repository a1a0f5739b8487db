"""What tables, figures and verdicts are told of a study's runs."""

import pytest

from tests.evaluation.study.made_up import ARMS, READERS, SEEDS, all_results, result
from verl.evaluation.study.statistics import Mean
from verl.evaluation.study.summary import Summary


def test_an_arm_is_compared_with_the_baseline_of_its_kind() -> None:
    names = ("two", "baseline", "two_cost", "baseline_cost", "length_bonus", "insider_and_one")
    summary = Summary.of("transfer", [result(name) for name in names])
    assert summary.arms[0] == "baseline"
    compared = {arm: summary.compared_with(arm) for arm in names}
    assert compared == {
        "two": "baseline",
        "baseline": None,
        "two_cost": "baseline_cost",
        "baseline_cost": "baseline",
        "length_bonus": "baseline",
        "insider_and_one": "baseline",
    }
    assert Summary.of("transfer", [result("two")]).compared_with("two") is None


def test_a_style_that_nobody_wrote_at_a_seed_has_share_zero() -> None:
    runs = [
        result(seed=11, style_plain=0.5, style_shorthand=0.5),
        result(seed=12, style_plain=1.0, style_shorthand=None),
    ]
    summary = Summary.of("transfer", runs)
    assert summary.values("two", "style_shorthand") == {11: 0.5, 12: 0.0}
    assert summary.mean("two", "style_shorthand").value == 0.25
    # Styles of the start policies were not measured, so that there is nothing to complete.
    assert summary.start("style_plain") == Mean(0, None, None)


def test_other_numbers_that_are_missing_stay_missing() -> None:
    summary = Summary.of("transfer", [result(seed=11), result(seed=12, unseen=None)])
    assert summary.values("two", "unseen").keys() == {11}
    assert summary.missing("two", "unseen") == (12,)
    assert summary.missing("two") == ()


def test_the_start_counts_once_a_seed() -> None:
    summary = Summary.of("transfer", [*all_results(), result("placebo", 15, start_unseen=0.5)])
    assert summary.start("unseen").n == len(SEEDS) + 1
    assert summary.start("unseen").value == pytest.approx((4 * 0.2 + 0.5) / 5)


def test_a_curve_of_several_readers_is_their_mean_in_each_run() -> None:
    curves = {name: [k / 10 + point / 4 for point in range(5)] for k, name in enumerate(READERS)}
    summary = Summary.of("transfer", [result(seed=seed, curves=curves) for seed in SEEDS])
    points = summary.curve("two", ["unseen_llama", "unseen_dialect"])
    assert points is not None
    assert [point.value for point in points] == pytest.approx([0.15 + point / 4 for point in range(5)])
    assert points[0].n == len(SEEDS)
    assert summary.curve("two", ["unseen_llama", "nobody"]) is None
    assert summary.values("two", "curves.insider.25")[11] == pytest.approx(0.55)


def test_readers_come_by_role_and_keep_it() -> None:
    summary = Summary.of("transfer", all_results())
    assert summary.arms == ARMS
    assert summary.readers() == ("classmate_a", "unseen_dialect", "unseen_llama", "insider")
    changed = result("placebo", 11, readers=READERS | {"insider": "unseen"})
    with pytest.raises(ValueError, match="insider is unseen here and insider elsewhere; run it again"):
        Summary.of("transfer", [result("baseline"), changed])


def test_any_change_of_what_is_drawn_changes_the_digest() -> None:
    runs = all_results()
    digest = Summary.of("transfer", runs).digest()
    assert Summary.of("transfer", list(reversed(runs))).digest() == digest
    changed = [*runs[1:], result("baseline", 11, unseen=0.31)]
    assert Summary.of("transfer", changed).digest() != digest
    assert Summary.of("transfer", runs, dict.fromkeys(ARMS, "an arm"), SEEDS).digest() != digest
