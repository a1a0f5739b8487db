"""The RCL reward of a row, by hand-computed numbers."""

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.teaching.rows import reward, row
from verl.classmate.outcome import Outcome
from verl.teaching.rcl import conciseness, rcl_reward
from verl.teaching.reward_config import RCL_PRESETS, LeakConfig, TeachingRewardConfig
from verl.teaching.tags import TeachingState

PRESETS = {preset: TeachingRewardConfig(preset=preset) for preset in RCL_PRESETS}
SAVED = 0.25
"""rho of a student that writes 150 tokens with advice and 200 without."""


@pytest.mark.acceptance("T4")
@pytest.mark.guards("degradation worth 0 with a dead multiplier")
@pytest.mark.parametrize(
    ("base", "guided", "length", "expected"),
    [
        (0, 1, 100, {"rcl_readme": 1.5, "rcl": 1.5, "released": 1.5, "online": 1 + SAVED}),
        (1, 1, 100, {"rcl_readme": 0, "rcl": 0.75, "released": 0.75, "online": SAVED}),
        (1, 1, 0, {"rcl_readme": 0, "rcl": 1.0, "released": 1.0, "online": SAVED}),
        (0, 0, 100, {"rcl_readme": 0, "rcl": 0, "released": 0, "online": 0}),
        (0, 0, 0, {"rcl_readme": 0, "rcl": 0, "released": 0, "online": 0}),
        (1, 0, 100, {"rcl_readme": -2, "rcl": -2, "released": 0, "online": -1}),
    ],
)
def test_case_table(base: float, guided: float, length: int, expected: dict[str, float]) -> None:
    found = {
        preset: reward(base, guided, config=config, length=length, tokens=(200, 150)).reward
        for preset, config in PRESETS.items()
    }
    assert found == expected


@pytest.mark.parametrize(("length", "expected"), [(0, 1.0), (50, 0.6667), (100, 0.5), (400, 0.2)])
def test_conciseness(length: int, expected: float) -> None:
    assert conciseness(length, 100.0) == pytest.approx(expected, abs=5e-5)


@pytest.mark.acceptance("T4")
def test_continuous_examples() -> None:
    kept = reward(0.625, 1.0, config=PRESETS["rcl"], length=60)
    assert kept.effect is not None
    assert kept.effect.conciseness == 0.625
    assert kept.reward == pytest.approx(0.375 * 1.625 + 0.5 * 0.625 * 1.625)
    assert kept.reward == pytest.approx(1.1172, abs=5e-5)
    assert reward(0.625, 0.0, config=PRESETS["rcl"], length=60).reward == -1.25


def test_equal_rates_are_no_loss() -> None:
    """Means of the same answers in another order differ by rounding, which would take away what was kept."""
    guided = math.fsum([0.1, 0.2, 0.3]) / 3
    assert guided < 0.2
    assert reward(0.2, guided, length=0, config=PRESETS["rcl"]).reward == pytest.approx(0.2)


def test_there_is_no_negative_zero() -> None:
    terms = reward(1, 0, config=PRESETS["released"]).terms
    assert terms is not None
    assert "-0.0" not in str(terms)


def test_the_terms_of_a_reward() -> None:
    config = TeachingRewardConfig(preset="rcl", leak=LeakConfig(mode="penalize"), leak_penalty=0.25)
    terms = reward(0.5, 1.0, config=config, length=100, leak=True).terms
    assert terms is not None
    assert dataclasses.astuple(terms) == (0.5, 0.0, 0.25, 0.375, 0.0, -0.25)
    assert terms.total == 0.875


@pytest.mark.acceptance("T4")
def test_the_clamp() -> None:
    assert reward(0, 1, length=0, config=TeachingRewardConfig(efficiency_weight=3)).reward == 2.0
    harsh = reward(1, 0, config=TeachingRewardConfig(degradation_penalty=5.0))
    assert harsh.reward == -2.0
    assert harsh.terms is not None
    assert harsh.terms.total == -5.0
    narrow = TeachingRewardConfig(r_min=-0.5, r_max=0.25)
    assert (reward(0, 1, config=narrow).reward, reward(1, 0, config=narrow).reward) == (0.25, -0.5)


@pytest.mark.acceptance("T4")
@pytest.mark.parametrize("state", [state for state in TeachingState if not state.keeps_contract])
@pytest.mark.parametrize(("base", "kept"), [(0.0, 0.0), (1.0, 1.0), (0.5, 0.5)])
def test_a_broken_tag_costs_the_format_penalty(state: TeachingState, base: float, kept: float) -> None:
    """And shows nothing: the reward is that of abstaining less the penalty, whatever the student would have done."""
    for guided in (0.0, 1.0):
        broken = reward(base, guided, state=state, length=500, config=PRESETS["rcl"]).reward
        assert broken == pytest.approx(kept - 0.5)
    assert reward(base, 0.0, state=TeachingState.empty, config=PRESETS["rcl"]).reward == pytest.approx(kept)


def test_brevity_adds_nothing_to_nothing() -> None:
    assert {reward(0, 0, length=length, config=PRESETS["rcl"]).reward for length in (0, 1, 100, 10**6)} == {0.0}


@pytest.mark.guards("efficiency on extracted answers")
def test_brevity_is_the_advices_not_the_answers() -> None:
    """But for `online`, which counts the tokens of whole responses."""
    assert reward(0, 1, length=100, tokens=(900, 3)).reward == reward(0, 1, length=100, tokens=(3, 900)).reward == 1.5
    online = PRESETS["online"]
    assert reward(0, 1, length=5, tokens=(200, 100), config=online).reward == 1.5
    assert reward(0, 1, length=999, tokens=(200, 100), config=online).reward == 1.5
    assert reward(0, 1, tokens=(200, 300), config=online).reward == 1.0
    assert reward(1, 1, tokens=(0, 0), config=online).reward == 0.0
    assert reward(1, 1, state=TeachingState.empty, tokens=(200, 0), config=online).reward == 0.0
    assert reward(0.5, 1, tokens=(200, 100), config=online).reward == 1.0


@pytest.mark.acceptance("T4")
@pytest.mark.guards("NaN replaced with the wrong sign")
@pytest.mark.parametrize(
    ("base", "guided", "outcome"),
    [
        (Outcome.timeout, 1.0, Outcome.timeout),
        (1.0, Outcome.engine_error, Outcome.engine_error),
        (0.0, Outcome.judge_error, Outcome.judge_error),
        (Outcome.timeout, Outcome.engine_error, Outcome.timeout),
        (math.nan, 1.0, Outcome.judge_error),
        (0.0, math.nan, Outcome.judge_error),
        (0.0, math.inf, Outcome.judge_error),
        (-math.inf, 1.0, Outcome.judge_error),
        (0.0, 1.5, Outcome.judge_error),
        (-0.5, 0.0, Outcome.judge_error),
    ],
)
def test_what_failed_has_no_reward(base: float, guided: float, outcome: Outcome) -> None:
    for config in PRESETS.values():
        failed = reward(base, guided, config=config)
        assert (failed.outcome, failed.reward, failed.terms, failed.effect) == (outcome, None, None, None)


def test_missing_lengths_exclude_only_where_they_count() -> None:
    assert reward(0, 1, tokens=(math.nan, math.nan), length=100).reward == 1.5
    assert reward(0, 1, tokens=(200, math.nan), config=PRESETS["online"]).outcome is Outcome.engine_error
    empty = reward(1, 0, state=TeachingState.empty, tokens=(200, math.nan), config=PRESETS["online"])
    assert empty.outcome is Outcome.ok


def test_a_row_that_shows_nothing_needs_no_student() -> None:
    assert reward(1.0, Outcome.timeout, state=TeachingState.empty).reward == 0.0
    assert reward(1.0, Outcome.timeout, state=TeachingState.missing).reward == -0.5
    assert reward(Outcome.timeout, 1.0, state=TeachingState.empty).outcome is Outcome.timeout


def test_what_is_not_shown_costs_no_more_than_its_format() -> None:
    config = TeachingRewardConfig(leak=LeakConfig(mode="penalize"), leak_penalty=1.0)
    for state, expected in ((TeachingState.missing, -0.5), (TeachingState.empty, 0.0)):
        assert reward(0, 1, state=state, leak=True, config=config).reward == expected


def test_leaks() -> None:
    told = {"leak": True, "length": 100}
    assert reward(0, 1, **told).reward == 1.5
    penalized = TeachingRewardConfig(leak=LeakConfig(mode="penalize"), leak_penalty=0.75)
    assert reward(0, 1, **told, config=penalized).reward == 0.75
    assert reward(0, 1, length=100, config=penalized).reward == 1.5
    none = TeachingRewardConfig(preset="rcl", leak=LeakConfig(mode="zero_gain"))
    assert reward(0, 1, **told, config=none).reward == 0.0
    assert reward(1, 1, **told, config=none).reward == 0.75
    both = TeachingRewardConfig(leak=LeakConfig(mode="zero_gain"), leak_penalty=0.25)
    assert reward(0, 1, **told, config=both).reward == -0.25
    assert reward(1, 0, **told, config=both).reward == -2.0, "within r_min"
    assert reward(0, 1, length=100, config=both).reward == 1.5


def test_a_leak_is_no_insurance_against_harm() -> None:
    """D := 0 for every leak would make a loss free, and with keep_coef pay for it."""
    config = TeachingRewardConfig(preset="rcl", leak=LeakConfig(mode="zero_gain"))
    assert reward(1, 0, leak=True, config=config).reward == -2.0


CONFIGS = st.builds(
    TeachingRewardConfig,
    preset=st.sampled_from(sorted(set(RCL_PRESETS) - {"online"})),
    degradation_penalty=st.none() | st.floats(0, 5),
    efficiency_weight=st.none() | st.floats(0, 3),
    keep_coef=st.none() | st.floats(0, 2),
    efficiency_tau=st.floats(1, 1000),
    format_penalty=st.floats(0, 2),
)
RATES = st.floats(0, 1)


@settings(deadline=None)
@given(RATES, RATES, st.integers(0, 5000), st.sampled_from(TeachingState), st.booleans(), CONFIGS)
def test_the_terms_add_up(
    base: float, guided: float, length: int, state: TeachingState, leak: bool, config: TeachingRewardConfig
) -> None:
    found = reward(base, guided, length=length, state=state, leak=leak, config=config)
    assert found.terms is not None
    assert found.reward is not None
    assert found.terms.total == pytest.approx(sum(dataclasses.astuple(found.terms)))
    assert found.reward == min(max(found.terms.total, config.r_min), config.r_max)


@settings(deadline=None)
@given(RATES, RATES, RATES, st.integers(0, 5000), CONFIGS)
def test_more_is_never_worse(base: float, one: float, other: float, length: int, config: TeachingRewardConfig) -> None:
    """Of two pieces of advice of the same length, that with which the student solves more is worth no less."""
    low, high = sorted((one, other))
    worse, better = (reward(base, guided, length=length, config=config).reward for guided in (low, high))
    assert worse is not None
    assert better is not None
    assert worse <= better + 1e-12


@settings(deadline=None)
@given(RATES, RATES, st.integers(0, 5000), st.integers(0, 5000), CONFIGS)
def test_longer_is_never_better(base: float, guided: float, one: int, other: int, config: TeachingRewardConfig) -> None:
    short, long = (reward(base, guided, length=length, config=config).reward for length in sorted((one, other)))
    assert short is not None
    assert long is not None
    assert long <= short + 1e-12


@pytest.mark.guards("reward parameters unused")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("preset", "rcl"),
        ("degradation_penalty", 1.0),
        ("efficiency_weight", 0.5),
        ("keep_coef", 0.5),
        ("efficiency_tau", 50.0),
        ("format_penalty", 0.0),
        ("leak_penalty", 0.5),
        ("leak", LeakConfig(mode="zero_gain")),
        ("r_min", -0.1),
        ("r_max", 0.1),
    ],
)
def test_each_option_moves_a_reward(name: str, value: object) -> None:
    rows = [
        row(0, 1, length=100, leak=True),
        row(1, 1, length=100),
        row(1, 0),
        row(0, 0, state=TeachingState.missing),
    ]
    more = {"leak": LeakConfig(mode="penalize")} if name == "leak_penalty" else {}
    changed = TeachingRewardConfig(**{name: value} | more)
    moved = [rcl_reward(one, changed).reward != rcl_reward(one, TeachingRewardConfig()).reward for one in rows]
    assert any(moved)
