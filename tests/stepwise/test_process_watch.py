"""When rewards of steps are being exploited, and how many steps an answer may have."""

import math
import random

import pytest

from verl.stepwise.process_watch import ProcessWatch, slope_errors


def watched(process: list[float], accuracy: list[float], steps: float = 4.0, keep: int = 20) -> ProcessWatch:
    watch = ProcessWatch()
    for p, a in zip(process, accuracy, strict=True):
        watch = watch.after(process=p, accuracy=a, steps=steps, keep=keep)
    return watch


RISES, FALLS = [0.3 + 0.02 * i for i in range(30)], [0.8 - 0.01 * i for i in range(30)]


@pytest.mark.guards("a policy exploits its process rewards unseen")
def test_a_planted_hack_is_seen_after_so_many_steps() -> None:
    assert not watched(RISES[:19], FALLS[:19]).exploited(20)
    assert watched(RISES[:20], FALLS[:20]).exploited(20)


def test_what_is_none() -> None:
    assert not watched(RISES, RISES).exploited(20)
    assert not watched(FALLS, FALLS).exploited(20)
    assert not watched(RISES, [0.5] * 30).exploited(20)
    assert not watched(RISES, FALLS).exploited(0)


def test_noise_ends_no_run() -> None:
    rng = random.Random(0)
    for _ in range(300):
        noise = [[rng.gauss(0.5, 0.1) for _ in range(20)] for _ in range(2)]
        assert not watched(*noise).exploited(20)


def test_a_slope_in_its_errors_by_hand() -> None:
    """0, 1, 1, 2: slope 0.6, rest 0.2, spread 5: error sqrt(0.1 / 5)."""
    assert slope_errors([0.0, 1.0, 1.0, 2.0]) == pytest.approx(0.6 / math.sqrt(0.02))
    assert slope_errors([1.0, 2.0, 3.0]) == math.inf
    assert slope_errors([2.0, 2.0, 2.0]) == 0


def test_steps_are_bounded_by_those_of_the_first_step() -> None:
    watch = ProcessWatch()
    assert watch.bounds(0.5) is None
    for steps in (4.0, 9.0):
        watch = watch.after(process=0.5, accuracy=0.5, steps=steps, keep=20)
    assert watch.bounds(0.5) == (pytest.approx(4 / 1.5), 6.0)
    assert watch.bounds(None) is None
    assert watch.after(process=math.nan, accuracy=0.5, steps=1.0, keep=20) is watch
