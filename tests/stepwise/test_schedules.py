"""Schedules: floors of the original's presets, ends that are reached, the hold and the controller."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl.stepwise.schedules import ORIGINAL_ENTROPY, ORIGINAL_TEMPERATURE, Hold, Schedule, TargetEntropy


@pytest.mark.parametrize(("schedule", "floor"), [(ORIGINAL_TEMPERATURE, 277), (ORIGINAL_ENTROPY, 459)])
def test_the_floors_of_the_original_come_when_they_did(schedule: Schedule, floor: int) -> None:
    value, step = schedule.start, 0
    while value > (schedule.end or 0):
        value, step = max(schedule.end or 0, schedule.start * schedule.decay ** (step + 1)), step + 1
    assert step == floor
    assert schedule.at(floor - 1) > schedule.at(floor) == schedule.end == schedule.at(10**9)


@given(st.sampled_from(["linear", "cosine"]), st.floats(0, 2), st.floats(0, 2), st.integers(1, 500))
def test_start_and_end_are_reached_without_leaving_them(kind: str, start: float, end: float, steps: int) -> None:
    schedule = Schedule(kind=kind, start=start, end=end, steps=steps)  # type: ignore[arg-type]
    values = [schedule.at(step) for step in range(steps + 3)]
    assert values[0] == pytest.approx(start)
    assert values[steps:] == pytest.approx([end] * 3)
    assert values == pytest.approx(sorted(values, reverse=end < start))
    assert schedule.at(-5) == values[0]


def test_each_kind_by_hand() -> None:
    assert Schedule().at(1000) == 1.0
    assert Schedule(kind="linear", start=1, end=0, steps=4).at(1) == 0.75
    assert Schedule(kind="cosine", start=1, end=0, steps=4).at(2) == pytest.approx(0.5)
    assert Schedule(kind="exp", start=1, end=2, decay=1.5).at(1) == 1.5
    assert Schedule(kind="exp", start=1, end=2, decay=1.5).at(10**6) == 2
    points = Schedule(kind="piecewise", points=((10, 1.0), (20, 0.0)))
    assert [points.at(step) for step in (0, 10, 15, 20, 99)] == [1.0, 1.0, 0.5, 0.0, 0.0]


@pytest.mark.parametrize(
    "options",
    [{"kind": "exponential"}, {"kind": "linear"}, {"kind": "exp", "end": 2.0}, {"kind": "exp", "decay": 1.1},
     {"kind": "piecewise"}, {"kind": "piecewise", "points": ((5, 1.0), (5, 2.0))}, {"start": math.nan}],
)  # fmt: skip
def test_what_gives_no_value_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"write|needs"):
        Schedule(**options)  # type: ignore[arg-type]


@given(st.lists(st.floats(0, 1), max_size=60))
@pytest.mark.guards("temperature falling while groups teach nothing")
def test_the_temperature_holds_while_groups_teach_nothing(shares: list[float]) -> None:
    schedule, hold, expected = ORIGINAL_TEMPERATURE, Hold(), [1.2]
    values = [hold.at(schedule, 0)]
    for step, share in enumerate(shares):
        hold = hold.after(schedule, step, zero_variance=share)
        values.append(hold.at(schedule, step + 1))
        expected.append(expected[-1] * (1 if share > 0.5 else 0.995))
    assert values == pytest.approx(expected)


def test_a_rising_schedule_is_not_held() -> None:
    rising = Schedule(kind="linear", start=0.5, end=1, steps=10)
    assert Hold().after(rising, 3, zero_variance=1.0) == Hold()
    assert Hold().after(ORIGINAL_TEMPERATURE, 3, zero_variance=math.nan) == Hold()


@given(st.floats(1e-4, 0.1), st.floats(0, 10))
def test_the_controller_moves_at_most_a_tenth(coefficient: float, entropy: float) -> None:
    after = TargetEntropy(target=0.5).after(coefficient, entropy)
    assert 0.9 * coefficient - 1e-12 <= after <= 1.1 * coefficient + 1e-12 or after in (1e-4, 0.1)
    assert (after >= coefficient) == (entropy <= 0.5) or after in (coefficient, 1e-4, 0.1)


def test_the_controller_brings_the_entropy_to_its_target() -> None:
    coefficient, controller = 0.0, TargetEntropy(target=0.5)
    for _ in range(300):
        coefficient = controller.after(coefficient, entropy=10 * coefficient)
    assert 10 * coefficient == pytest.approx(0.5, rel=0.01)
    assert controller.after(0.01, math.nan) == 0.01
