"""Metrics of a teacher's step, by hand-computed numbers."""

import math

import pytest

from tests.teaching.rows import Rate, rate, rlt_row, row
from verl.classmate.outcome import Outcome
from verl.teaching.metrics import METRICS, rlt_metrics, step_metrics
from verl.teaching.rcl import rcl_reward
from verl.teaching.reward_config import LeakConfig, RltConfig, TeachingRewardConfig
from verl.teaching.rlt import rlt_reward
from verl.teaching.row import TaughtRow
from verl.teaching.tags import TeachingState

RCL = TeachingRewardConfig(preset="rcl")
WHOLE = {"parsed": 1.0, "completed": 1.0}


def step(*rows: TaughtRow, config: TeachingRewardConfig = RCL) -> dict[str, float]:
    return step_metrics(rows, [rcl_reward(one, config) for one in rows])


def solved(base: Rate, guided: Rate, **more) -> TaughtRow:
    return row(base, guided, **{"length": 100} | more)


FOUR = (solved(0, 1, group="a"), solved(1, 1, group="b"), solved(0, 0, group="c"), solved(1, 0, group="d"))


def test_outcomes_of_advice() -> None:
    found = step(*FOUR)
    names = ("improve", "keep", "both_wrong", "degrade", "b", "w", "d", "abs_d", "apg", "ndr", "ndr_c", "severity")
    values = [found[f"rcl/{name}"] for name in names]
    assert values == [0.25, 0.25, 0.25, 0.25, 0.5, 0.5, 0, 0.5, 0, 0.75, 0.5, 1]
    assert found["rcl/ngain"] == 0


def test_rewards_by_term() -> None:
    found = step(*FOUR)
    assert found["rcl/reward/mean"] == pytest.approx((1.5 + 0.75 + 0 - 2) / 4)
    assert found["rcl/reward_degradation/mean"] == -0.5
    assert found["rcl/reward_efficiency/mean"] == pytest.approx((0.5 + 0.25) / 4)
    assert found["rcl/reward_degradation/std"] == pytest.approx(math.sqrt(0.75))


def test_fractional_rates() -> None:
    found = step(solved(0.5, 1.0), solved(0.5, 0.5), solved(0.5, 0.25))
    assert [found[f"rcl/{name}"] for name in ("improve", "keep", "both_wrong", "degrade")] == pytest.approx(
        [1 / 3, 1 / 3, 0, 1 / 3]
    )
    assert found["rcl/ndr_c"] == pytest.approx(1.75 / 3)
    assert found["rcl/ngain"] == pytest.approx((1.75 / 3 - 0.5) / 0.5)
    assert found["rcl/severity"] == 0.25


def test_who_says_nothing_keeps_all_that_was_right() -> None:
    silent = solved(0.5, 0.0, state=TeachingState.empty), solved(0.25, 0.0, state=TeachingState.missing, group="b")
    assert step(*silent)["rcl/ndr_c"] == 1
    half = solved(0.5, 0.5, state=TeachingState.empty), solved(0.5, 0.25, group="b")
    assert step(*half)["rcl/ndr_c"] == pytest.approx(0.625)


def test_teaching_efficiency() -> None:
    whole = rate(1.0, **WHOLE)
    found = step(solved(0, whole), solved(0, rate(1.0, parsed=0.5, completed=0.5), length=300))
    assert found["rcl/tes"] == pytest.approx(1.0 * 0.75 / 0.2)
    assert (found["rcl/length/mean"], found["rcl/length/p50"], found["rcl/length/p95"]) == (200, 200, 290)
    assert "rcl/tes" not in step(solved(0, whole, length=0))
    assert found["rcl/parse_failure/guided"] == 0.25
    assert "rcl/parse_failure/base" not in found


def test_response_tokens_are_compared_row_by_row() -> None:
    found = step(
        solved(0, 1, tokens=(100, 50)),
        solved(0, 1, tokens=(300, 250), group="b"),
        solved(0, Outcome.timeout, group="c"),
        row(1, 0, state=TeachingState.empty, tokens=(200, 0), group="d"),
    )
    assert found["rcl/response_tokens/saved"] == pytest.approx(1 - 500 / 600)


def test_states_and_other_shares() -> None:
    found = step(
        solved(0, 1, leak=True, probe_tokens=50.0, probe_cut=1.0, cache_hit=1.0, student_seconds=2.0),
        row(0, 0, state=TeachingState.empty, probe_tokens=20.0, probe_cut=0.0, cache_hit=0.0),
        row(0, 0, state=TeachingState.missing),
        row(0, 0, state=TeachingState.unclosed),
        *(row(0, 0, state=state) for state in (TeachingState.malformed, TeachingState.overlong)),
    )
    for name in ("abstain", "missing", "unclosed", "malformed", "leak", "overlong"):
        assert found[f"rcl/{name}"] == pytest.approx(1 / 6)
    assert (found["rcl/probe/tokens"], found["rcl/probe/truncated"], found["rcl/cache_hit"]) == (35, 0.5, 0.5)
    assert found["rcl/student_seconds"] == 2.0


def test_equal_rates_are_kept() -> None:
    found = step(solved(0.2, math.fsum([0.1, 0.2, 0.3]) / 3))
    assert (found["rcl/keep"], found["rcl/degrade"], found["rcl/ndr"]) == (1, 0, 1)


def test_what_is_not_shown_is_no_leak() -> None:
    assert step(solved(0, 1, leak=True), row(0, 1, state=TeachingState.missing, leak=True))["rcl/leak"] == 0.5


@pytest.mark.acceptance("T13")
def test_rows_that_failed_are_counted_and_in_no_mean() -> None:
    lost = [row(0, Outcome.timeout), row(Outcome.engine_error, 1), row(0, math.nan)]
    found, alone = step(solved(0, 1), solved(0, 0), *lost), step(solved(0, 1), solved(0, 0))
    for name in ("reward/mean", "reward/std", "improve", "both_wrong", "d", "ndr", "b"):
        assert found[f"rcl/{name}"] == alone[f"rcl/{name}"]
    assert (found["rcl/excluded_rows"], alone["rcl/excluded_rows"]) == (3, 0)
    outcomes = {name.rpartition("/")[2]: count for name, count in found.items() if "/outcome/" in name and count}
    assert outcomes == {"ok": 2, "timeout": 1, "engine_error": 1, "judge_error": 1}
    assert "rcl/reward/mean" not in step(*lost)
    assert step(*lost)["rcl/excluded_rows"] == 3


def test_change_is_told_as_it_is() -> None:
    config = TeachingRewardConfig(leak=LeakConfig(mode="zero_gain"))
    found = step(solved(0, 1, leak=True), config=config)
    assert (found["rcl/d"], found["rcl/improve"], found["rcl/reward/mean"]) == (1, 1, 0)


def test_groups_without_variance() -> None:
    rows = [solved(0, 1), solved(0, 1), solved(0, 0, group="b"), solved(0, 1, group="b"), solved(0, 1, group="c")]
    assert step(*rows)["rcl/zero_variance_groups"] == 1


@pytest.mark.guards("rank-local metrics")
def test_metrics_span_the_step() -> None:
    """A mean of the halves' would be another number, for ratios even where both are of one size."""
    right, wrong = (rate(value, **WHOLE) for value in (1.0, 0.0))
    short = [solved(1, right, length=10), solved(0, right, group="b")]
    long = [solved(1, wrong, length=900, group="c"), solved(0, 1, group="d")]
    whole, halves = step(*short, *long), [step(*short), step(*long)]
    for name in ("rcl/tes", "rcl/length/p95", "rcl/reward/std"):
        assert whole[name] != pytest.approx(sum(half[name] for half in halves) / 2)
    assert whole["rcl/tes"] == pytest.approx(0.25 / (1110 / 4 / 1000))


def test_each_student_has_its_own() -> None:
    found = step(solved(0, 1, student="x"), solved(1, 0, student="y", group="b"), solved(1, 1, student="y", group="c"))
    assert found["rcl/student/x/ndr"] == 1
    assert found["rcl/student/y/ndr"] == 0.5
    assert found["rcl/ndr"] == pytest.approx(2 / 3)
    assert not [name for name in step(solved(0, 1, student="")) if "/student/" in name]


@pytest.mark.guards("a documented metric that does not exist")
def test_every_metric_of_the_table_is_logged() -> None:
    told = {"probe_tokens": 1.0, "probe_cut": 0.0, "cache_hit": 1.0, "student_seconds": 1.0}
    asks = {"question_state": TeachingState.ok, "question_tokens": 9.0}
    rows = [solved(rate(base, **WHOLE), rate(0.5, **WHOLE), group=str(base), **told, **asks) for base in (0.0, 1.0)]
    found = step(*rows)
    for prefix in ("rcl", "rcl/student/s"):
        assert {f"{prefix}/{name}" for name in METRICS} <= set(found)
    assert all(map(math.isfinite, found.values()))


def test_nothing_comes_of_nothing() -> None:
    assert step_metrics([], []) == {}
    assert rlt_metrics([], []) == {}


@pytest.mark.guards("list shorter than the batch")
def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="1 rewards for 4 rows"):
        step_metrics(FOUR, [rcl_reward(FOUR[0], RCL)])
    with pytest.raises(ValueError, match="0 rewards for 1 rows"):
        rlt_metrics([rlt_row()], [])


def test_metrics_of_rlt() -> None:
    rows = [rlt_row(), rlt_row(closed=False), rlt_row(explanation=""), rlt_row(outcome=Outcome.timeout)]
    found = rlt_metrics(rows, [rlt_reward(one, RltConfig()) for one in rows])
    assert found["rlt/reward/mean"] == pytest.approx((-1.283 - 2.283 - 20) / 3)
    assert found["rlt/reward_solution/mean"] == pytest.approx(-0.406 / 3)
    assert found["rlt/divergence/mean"] == pytest.approx(0.35)
    assert found["rlt/teacher_log_prob/mean"] - found["rlt/student_log_prob/mean"] == pytest.approx(0.35)
    assert (found["rlt/not_closed/mean"], found["rlt/empty/mean"], found["rlt/excluded_rows"]) == (0.25, 0.25, 1)
    assert all(map(math.isfinite, found.values()))
