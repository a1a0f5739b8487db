"""Labels from completions: they find the first error, cost what they should, and count no failure."""

import random

import pytest

from tests.reasoning.prm.standins import Oracle, right_sum, solution_of
from verl.reasoning.prm.config import PRMConfig
from verl.reasoning.prm.monte_carlo import MonteCarloLabeler
from verl.reasoning.records import Problem
from verl.reasoning.rewards import as_reward
from verl.stepwise.first_error import first_wrong
from verl.stepwise.step import StepLabel

REWARD = as_reward(right_sum)


def labels_of(
    backend: Oracle, count: int = 60, seed: int = 0, **options: object
) -> tuple[list[tuple[StepLabel | None, ...]], list[int], MonteCarloLabeler]:
    """Labels of generated solutions, their first errors, and who made the labels."""
    rng = random.Random(seed)
    made = [solution_of(rng, number) for number in range(count)]
    labeler = MonteCarloLabeler(backend, REWARD, PRMConfig(**options))  # type: ignore[arg-type]
    told = labeler.label([one for one, _, _ in made], [steps for _, steps, _ in made], [None] * count)
    return told, [truth for _, _, truth in made], labeler


def recovered(told: list[tuple[StepLabel | None, ...]], truths: list[int]) -> float:
    found = [first_wrong(None if label is None else label.hard for label in row) for row in told]
    return sum(guess == truth for guess, truth in zip(found, truths, strict=True)) / len(truths)


@pytest.mark.parametrize("search", ["full", "binary"])
@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_an_oracle_recovers_first_errors(search: str, kind: str) -> None:
    told, truths, _ = labels_of(Oracle(), search=search, label_kind=kind)
    assert recovered(told, truths) > 0.95


@pytest.mark.guards("all steps share the outcome label")
def test_a_wrong_answer_does_not_make_all_steps_wrong() -> None:
    told, truths, _ = labels_of(Oracle())
    for row, truth in zip(told, truths, strict=True):
        if truth > 0:
            assert [label.hard for label in row[:truth] if label] == [1] * truth
            assert row[truth + 1 :] == (None,) * (len(row) - truth - 1), "what follows an error is not trained on"


def test_noise_degrades_it_as_it_should() -> None:
    # A noisy completer calls right steps wrong where all K fail: worse with more noise, better with more completions.
    shares = [recovered(*labels_of(Oracle(noise), mc_rollouts=2, mc_audit=0)[:2]) for noise in (0.0, 0.3, 0.6)]
    assert shares[0] > shares[1] > shares[2]
    more = recovered(*labels_of(Oracle(0.6), mc_rollouts=16, mc_audit=0)[:2])
    assert more > shares[2]


def test_halving_asks_fewer_prefixes() -> None:
    whole, halving = Oracle(), Oracle()
    labels_of(whole, mc_audit=1.0)
    labels_of(halving, mc_audit=1.0, search="binary")
    assert len(halving.asked) < len(whole.asked)


def test_the_first_success_is_enough_for_hard_labels() -> None:
    *_, hard = labels_of(Oracle(), mc_rollouts=8)
    *_, soft = labels_of(Oracle(), mc_rollouts=8, label_kind="soft")
    assert hard.spent.rollouts < 0.7 * soft.spent.rollouts


def test_a_right_solution_counts_as_one_success() -> None:
    problem = Problem(id="a", problem="Sum: 1, 2, 3?", answer="6")
    steps = ["1 + 2 = 3.\n", "3 + 3 = 6.\n", "The answer is 6."]
    backend = Oracle(noise=1.0)
    free = MonteCarloLabeler(backend, REWARD, PRMConfig(mc_audit=0))
    assert [label.hard for label in free.label([problem], [steps], [True])[0] if label] == [1, 1, 1]
    assert not backend.asked, "no completion can change a hard label that one success decides"
    soft = MonteCarloLabeler(backend, REWARD, PRMConfig(mc_audit=0, label_kind="soft", mc_rollouts=4))
    (row,) = soft.label([problem], [steps], [True])
    assert row[0] is not None
    assert (row[0].n_success, row[0].n_rollouts, row[0].value) == (1, 5, 0.2)


def test_an_audit_leaves_the_solution_out() -> None:
    problem = Problem(id="a", problem="Sum: 1, 2, 3?", answer="6")
    # A right answer by a wrong way: from the first step on every honest completion fails.
    steps = ["1 + 2 = 4.\n", "4 + 3 = 6.\n", "The answer is 6."]
    audited = MonteCarloLabeler(Oracle(), REWARD, PRMConfig(mc_audit=1.0))
    (row,) = audited.label([problem], [steps], [True])
    assert [label and label.hard for label in row] == [0, None, None]
    assert (audited.spent.audited, audited.spent.audited_wrong) == (1, 1)


def test_failures_are_in_no_count() -> None:
    told, truths, labeler = labels_of(Oracle(fails=0.5), mc_rollouts=8, label_kind="soft", mc_audit=0)
    assert recovered(told, truths) > 0.95
    assert labeler.spent.failed > 0
    for row in told:
        for label in row:
            assert label is None or label.n_rollouts == 0 or label.n_success <= label.n_rollouts
    *_, down = labels_of(Oracle(fails=1.0), count=5, mc_audit=0)
    told, truths, _ = labels_of(Oracle(fails=1.0), count=20, mc_audit=0)
    for row, truth in zip(told, truths, strict=True):
        if truth >= 0:
            assert row[:-1] == (None,) * (len(row) - 1), "nothing came back, so nothing is known"
    assert down.spent.failed == down.spent.rollouts


def test_a_reward_that_fails_gives_no_label() -> None:
    def broken(problem: str, solution: str) -> float:
        raise RuntimeError("no verdict")

    problem, steps, _ = solution_of(random.Random(1), 0)
    labeler = MonteCarloLabeler(Oracle(), as_reward(broken), PRMConfig())
    assert labeler.label([problem], [steps], [None]) == [(None,) * len(steps)]


def test_shared_prefixes_are_completed_once() -> None:
    problem = Problem(id="a", problem="Sum: 1, 2, 3?", answer="6")
    both = [["1 + 2 = 3.\n", f"3 + 3 = {end}.\n", f"The answer is {end}."] for end in (7, 8)]
    backend = Oracle()
    labeler = MonteCarloLabeler(backend, REWARD, PRMConfig())
    labeler.label([problem], both[:1], [False])
    labeler.label([problem], both[1:], [False])
    assert [prefix for prefix, _ in backend.asked].count("1 + 2 = 3.\n") == 1
    assert labeler.spent.reused == 1
