"""The numbers of an evaluation, against values worked out by hand; and what is not defined has none."""

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl.teaching.evaluation_metrics import Response, Trial, evaluate


def responses(scores: Sequence[float], tokens: int = 100, **options: Any) -> tuple[Response, ...]:
    usual = {"parsed": True, "stopped": True}
    return tuple(Response(score=score, tokens=tokens, **{**usual, **options}) for score in scores)


def trial(item: str, before: Sequence[float], after: Sequence[float] | None, **options: Any) -> Trial:
    told = {
        "seed": 0,
        "baseline": responses(before),
        "guided": None if after is None else responses(after, tokens=80),
        "teaching_tokens": 0 if after is None else 100,
        "teacher_tokens": 150,
        "probe_tokens": 50,
    }
    return Trial(item=item, **{**told, **options})


FIXTURE = [
    # b = 1/4, w = 1, D = 3/4.
    trial("a", [1, 0, 0, 0], [1, 1]),
    # b = 1, w = 1/2, D = -1/2; one of the two guided responses was cut off.
    trial("b", [1, 1, 1, 1], [1, 0], guided=responses([1], 80) + responses([0], 80, parsed=False, stopped=False)),
    # b = 1/2, w = 1/2, D = 0, and it costs 300 tokens.
    trial("c", [1, 0, 1, 0], [0, 1], teaching_tokens=300, teacher_tokens=400),
    # Abstained: b = w = 3/4, D = 0.
    trial("d", [1, 1, 1, 0], None),
]


@pytest.mark.acceptance("T12")
def test_the_numbers_of_a_fixture() -> None:
    """T12, worked out by hand."""
    report = evaluate(FIXTURE)
    assert (report.items, report.trials, report.baseline_samples, report.guided_samples) == (4, 4, 4, 2.5)
    # b = (1/4 + 1 + 1/2 + 3/4) / 4, w = (1 + 1/2 + 1/2 + 3/4) / 4.
    assert (report.b, report.w) == (0.625, 0.6875)
    assert report.APG.value == 0.0625
    assert report.NGain.value == pytest.approx(0.0625 / 0.375)
    assert report.NDR.value == 0.75
    # (1/4 * 1 + 1 * 1/2 + 1/2 * 1/2 + 3/4, as the same responses stand on both sides) / (5/2).
    assert report.NDR_c.value == pytest.approx(1.75 / 2.5)
    assert report.Sev == 0.5
    # (1 + 1/2 + 1 + 1) / 4.
    assert report.CR == 0.875
    # L: (100 + 100 + 300 + 0) / 4 = 125; with all else (200 + 200 + 450 + 200) / 4 = 262.5.
    assert report.TES.value == pytest.approx(0.0625 * 0.875 / 0.125)
    assert report.TES_total.value == pytest.approx(0.0625 * 0.875 / 0.2625)
    # Guided: (80 + 80 + 80 + 100) / 4 = 85 of 100.
    assert report.TokRed == pytest.approx(0.15)
    assert report.TokRed_total == pytest.approx(1 - (85 + 262.5) / 100)
    # Item b: of four right and of one right and one wrong, 2 of 6 ways to draw so; none is significant, and with two
    # guided samples a loss of both, of 4 + 2, has 1 of 15 ways.
    assert report.NDR_strict is None
    assert report.mcnemar_p is None
    assert (report.parse_failures_baseline, report.parse_failures_guided) == (0, 0.125)
    assert report.leak_rate is None


@pytest.mark.acceptance("T12")
def test_the_intervals_of_a_fixture() -> None:
    """T12: Wilson's by hand; the bootstrap's where the outcomes of two items can be counted."""
    report = evaluate(FIXTURE)
    z2 = 1.959963984540054**2
    # 3 of 4.
    middle, half = (3 + z2 / 2) / (4 + z2), math.sqrt(z2 * (3 * 1 / 4 + z2 / 4)) / (4 + z2)
    assert report.NDR.interval == pytest.approx((middle - half, middle + half))
    # 1.75 of 2.5.
    middle, half = (1.75 + z2 / 2) / (2.5 + z2), math.sqrt(z2 * (1.75 * 0.75 / 2.5 + z2 / 4)) / (2.5 + z2)
    assert report.NDR_c.interval == pytest.approx((middle - half, middle + half))
    # Two items with D = 0 and 1/2 make means of 0, 1/4 and 1/2 in 1, 2 and 1 of four cases: far more than 2.5 % each.
    two = evaluate([trial("a", [0], [0]), trial("b", [0, 1], [1])])
    assert two.APG.interval == (0, 0.5)
    # TES: L is 100 in any case.
    assert two.TES.interval == pytest.approx((0, 5))
    # NGain: with b = 0, 1/4, 1/2 the gain is 0, 1/3 and 1.
    assert two.NGain.interval == pytest.approx((0, 1))


def test_seeds_are_drawn_within_items() -> None:
    """One more level of chance: two items, of which each gains at one seed of two."""
    trials = [trial(item, [0], [seed], seed=seed) for item in "ab" for seed in (0, 1)]
    report = evaluate(trials)
    assert (report.items, report.trials, report.APG.value) == (2, 4, 0.5)
    # Without the seeds both items have D = 1/2 always; with them 0 and 1 come in 1 of 16 cases each.
    assert report.APG.interval == (0, 1)
    # An item's seeds are one observation: four times the seeds make no item more.
    many = [trial(item, [0], [1], seed=seed) for item in "ab" for seed in range(8)]
    assert evaluate(many).NDR.interval == evaluate(many[::8]).NDR.interval


def test_both_sides_are_drawn_together() -> None:
    """Items of very different difficulty that all gain the same have a gain without any spread."""
    trials = [trial(str(i), [1] * i + [0] * (10 - i), [1] * (i + 2) + [0] * (8 - i)) for i in range(9)]
    assert evaluate(trials).APG.interval == pytest.approx((0.2, 0.2))


def test_the_same_seed_gives_the_same_intervals() -> None:
    assert evaluate(FIXTURE, seed=3) == evaluate(FIXTURE, seed=3)
    trials = [trial(str(i), [i % 3 == 0, 0], [1, i % 2, 0]) for i in range(20)]
    assert evaluate(trials, seed=3).APG.interval != evaluate(trials, seed=4).APG.interval
    # Whichever ended first.
    seeds = [trial(str(i), [i % 3 == 0, 0], [1, i % 2, 0], seed=seed) for i in range(9) for seed in range(1 + i % 3)]
    assert evaluate(seeds) == evaluate(seeds[::-1])


def test_mcnemar() -> None:
    # Discordant: 5 gained, 0 lost: 2 / 2^5.
    gained = [trial(str(i), [0], [1]) for i in range(5)] + [trial(str(i), [1], [1]) for i in range(5, 9)]
    assert evaluate(gained).mcnemar_p == 0.0625
    assert evaluate([trial("a", [1], [1]), trial("b", [0], None)]).mcnemar_p == 1
    # Two seeds of an item are no two observations, and half a point is no side.
    assert evaluate([*gained, trial("0", [0], [1], seed=1)]).mcnemar_p is None
    assert evaluate([trial("a", [0.5], [1])]).mcnemar_p is None


def test_strict_degradation_is_more_than_chance() -> None:
    # 8 of 8 against 0 of 4: 1 of C(12, 4) = 495 ways.
    harmed, lucky = trial("a", [1] * 8, [0] * 4), trial("b", [1] * 8, [1, 1, 1, 0])
    report = evaluate([harmed, lucky, trial("c", [0] * 8, [1] * 4), trial("d", [1] * 8, None)])
    assert report.NDR.value == 0.5
    assert report.NDR_strict == 0.75
    # With one sample of each nothing could ever be shown.
    assert evaluate([trial("a", [1], [0])]).NDR_strict is None
    assert evaluate([harmed, trial("b", [0.5] * 8, [0.5] * 4)]).NDR_strict is None
    # Samples of all seeds count.
    seeds = [trial("a", [1, 1], [0], seed=seed) for seed in range(4)]
    assert evaluate(seeds).NDR_strict == 0


@pytest.mark.parametrize(
    ("trials", "undefined"),
    [
        # Nothing to gain.
        ([trial("a", [1], [1]), trial("b", [1], [1])], {"NGain", "Sev"}),
        # Nothing to lose.
        ([trial("a", [0], [1]), trial("b", [0], [0])], {"NDR_c", "Sev"}),
        # Nothing was taught, and nothing was written at all.
        ([trial("a", [0], None, teacher_tokens=0, probe_tokens=0)], {"NDR_c", "Sev", "TES", "TES_total"}),
        # Harm alone.
        ([trial("a", [1], [0])], {"NGain"}),
        # Students that wrote nothing.
        ([trial("a", [0], [0], baseline=responses([0], 0))], {"NDR_c", "Sev", "TokRed", "TokRed_total"}),
        ([trial("a", [0], [0], teaching_tokens=1), trial("b", [0], None)], {"NDR_c", "Sev", "TES"}),
    ],
)
def test_what_is_not_defined_has_no_number(trials: list[Trial], undefined: set[str]) -> None:
    report = evaluate(trials).as_json()
    values = {name: value["value"] if isinstance(value, dict) else value for name, value in report.items()}
    named = {"APG", "NGain", "NDR", "NDR_c", "Sev", "CR", "TES", "TES_total", "TokRed", "TokRed_total"}
    assert {name for name in named if values[name] is None} == undefined
    assert "NaN" not in json.dumps(report)


def test_an_interval_that_some_resamples_have_not_is_none() -> None:
    """One item that can gain and one that cannot: a quarter of the resamples has nothing to gain."""
    report = evaluate([trial("a", [0], [1]), trial("b", [1], [1])])
    assert (report.NGain.value, report.NGain.interval) == (1, None)
    assert report.APG.interval == (0, 1)
    one = evaluate([trial("a", [0, 1], [1])])
    assert one.APG.value == 0.5
    assert one.APG.interval is one.TES.interval is one.NGain.interval is None
    assert one.NDR.interval is not None


def test_the_target_and_its_gates() -> None:
    """The interval of NDR begins at 0.99 only from 381 items on: n / (n + z^2) with z = 1.96."""
    gains = [trial(str(i), [0], [1]) for i in range(381)]
    met = evaluate(gains)
    assert (met.target_met, met.failed_gates) == (True, ())
    assert evaluate(gains[:380]).failed_gates == ("NDR: the interval begins at 0.98999, not at 0.99 or above",)
    kept = [trial(str(i), [1], [1]) for i in range(381)]
    assert evaluate(kept).failed_gates == ("APG: the interval begins at 0, not above 0.1",)
    harmed = [trial("x", [1], [0]), *kept]
    (NDR, APG) = evaluate(harmed).failed_gates
    assert NDR.startswith("NDR: the interval begins at 0.985")
    assert APG.startswith("APG: the interval begins at -0.0")
    assert evaluate(gains[:1]).failed_gates[1] == "APG: it has no 95% interval, which must begin above 0.1"


def test_a_gain_of_a_tenth_is_not_above_a_tenth() -> None:
    """0.4 - 0.3 is more than 0.1 in floats; and a share that was kept is not lost in its last digits."""
    tenth = [trial(str(i), [0.3], [0.4]) for i in range(381)]
    assert evaluate(tenth).failed_gates == ("APG: the interval begins at 0.1, not above 0.1",)
    thirds = trial("a", [0.1, 0.2, 0.3], [0.3, 0.1, 0.2])
    assert evaluate([thirds]).NDR.value == 1


def test_leaks_are_a_share_of_what_was_looked_at() -> None:
    trials = [trial("a", [0], [1], leaked=True), trial("b", [0], [1], leaked=False), trial("c", [0], [1])]
    assert evaluate(trials).leak_rate == 0.5


@pytest.mark.guards("evaluation without student or baseline")
def test_both_sides_are_there() -> None:
    """A missing side is an error, and no score of 0."""
    with pytest.raises(ValueError, match="nothing to evaluate; give at least one trial, with a student and a baseline"):
        evaluate([])
    for sides in ({"baseline": ()}, {"guided": ()}):
        with pytest.raises(ValueError, match=r"item a: no \w+ response; leave the trial out and count it as excluded"):
            trial("a", [1], [1], **sides)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"baseline": responses([math.nan])}, "nan is no score; write a number from 0 to 1"),
        ({"guided": responses([2])}, "2 is no score"),
        ({"guided": responses([-1])}, "-1 is no score"),
        ({"guided": responses([1], parsed=False)}, "a response without an answer is scored"),
        ({"probe_tokens": -1}, "-1 tokens cannot be; write 0 or more"),
        ({"guided": None}, "it was taught and has no guided response"),
    ],
)
def test_numbers_that_are_none_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        trial("a", [1], [1], **options)


def test_a_trial_counts_once() -> None:
    with pytest.raises(ValueError, match="item a is there twice at seed 0; write one trial with all samples"):
        evaluate([trial("a", [1], [1]), trial("a", [0], [0])])
    with pytest.raises(ValueError, match="0 resamples give no interval; write 1 or more"):
        evaluate(FIXTURE, resamples=0)


SCORES = st.lists(st.sampled_from([0, 1]), min_size=1, max_size=3)
TRIALS = st.lists(st.tuples(SCORES, st.none() | SCORES), min_size=1, max_size=8)


@settings(deadline=None)
@given(scores=TRIALS)
def test_what_holds_for_any_scores(scores: list[tuple[list[int], list[int] | None]]) -> None:
    trials = [trial(str(i), before, after) for i, (before, after) in enumerate(scores)]
    report = evaluate(trials, resamples=20)
    assert report.APG.value == pytest.approx(report.w - report.b)
    assert report.NDR.value is not None
    assert (report.Sev is None) == (report.NDR.value == 1)
    for estimate in (report.NDR, report.NDR_c):
        if estimate.value is not None:
            assert estimate.interval is not None
            assert 0 <= estimate.interval[0] <= estimate.value <= estimate.interval[1] <= 1
    assert (report.NDR_c.value is None) == (report.b == 0)
    turned = evaluate(trials[::-1], resamples=20)
    assert turned.APG.value == pytest.approx(report.APG.value)
    assert turned.NDR == report.NDR
    # Abstaining everywhere is no effect at all.
    nothing = evaluate([trial(str(i), before, None) for i, (before, _) in enumerate(scores)], resamples=20)
    assert (nothing.APG.value, nothing.NDR.value, nothing.Sev, nothing.TokRed) == (0, 1, None, 0)
    assert nothing.NDR_c.value in (1, None)
    json.dumps(report.as_json(), allow_nan=False)


def test_items_of_one_question_are_resampled_together() -> None:
    """Two students who are helped by the same questions know no more than one: their interval is as wide."""
    helped = [1, 0, 1, 1, 0, 1, 0, 0]
    one = [trial(f"q{i}", [0], [after]) for i, after in enumerate(helped)]
    pairs = [(who, i, after) for who in "ab" for i, after in enumerate(helped)]
    both = evaluate([trial(f"{who}{i}", [0], [after], question=f"q{i}") for who, i, after in pairs]).APG
    apart = evaluate([trial(f"{who}{i}", [0], [after]) for who, i, after in pairs]).APG
    alone = evaluate(one).APG
    assert both.value == apart.value == alone.value == 0.5
    assert both.interval == alone.interval
    assert apart.interval is not None
    assert both.interval is not None
    assert apart.interval[1] - apart.interval[0] < both.interval[1] - both.interval[0]


def test_questions_with_uneven_numbers_of_items() -> None:
    trials = [
        trial("a1", [0], [1], question="a"),
        trial("a2", [0], [1], question="a"),
        trial("b1", [0], [0], question="b"),
    ]
    report = evaluate(trials)
    assert report.APG.value == pytest.approx(2 / 3)
    # Only a, only b, or both.
    assert report.APG.interval == (0, 1)
    assert evaluate(trials[:2]).APG.interval is None, "one question alone has none"
