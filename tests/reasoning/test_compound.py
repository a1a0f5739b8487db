"""Compound and stage rewards: the gate, the group's lengths, the hooks, the phases."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl.reasoning.compound import CompoundRewardFunction, combine
from verl.reasoning.reading import read_solution
from verl.reasoning.records import Problem, Solution, as_problem
from verl.reasoning.rewards import RewardContext
from verl.reasoning.scoring import score_solutions
from verl.reasoning.stage_rewards import (
    DiversityReward,
    StageRewardSchedule,
    accuracy_reward,
    combined_reward,
    diversity_reward,
    stage_schedule,
)

PROBLEM = as_problem({"problem": "What is 3 + 4?", "answer": "7"})
SHARE = st.floats(0, 1)


def write(*texts: str, n_tokens: int = 0) -> list[Solution]:
    return [read_solution(text, problem_id=PROBLEM.id, n_tokens=n_tokens) for text in texts]


def has_7(problem: str, solution: str) -> bool:
    return "7" in solution


@given(SHARE, SHARE, SHARE, st.lists(st.floats(0.01, 1), min_size=3, max_size=3), st.integers(0, 2), SHARE)
def test_the_gate_is_monotone_and_never_above_correctness(
    right: float, clear: float, short: float, given: list[float], which: int, more: float
) -> None:
    parts = {"correctness": right, "clarity": clear, "efficiency": short}
    weights = {name: one / sum(given) for name, one in zip(parts, given, strict=True)}
    name = tuple(parts)[which]
    low, high = (combine({**parts, name: value}, weights) for value in sorted((parts[name], more)))
    assert low <= high + 1e-12
    assert combine(parts, weights) <= right + 1e-12
    assert combine({**parts, "correctness": 0.0}, weights) == 0.0


@pytest.mark.guards("style paid for a wrong answer")
def test_a_wrong_tidy_answer_earns_nothing() -> None:
    tidy = "So 3 + 4 = 8 because both are whole numbers. The answer is 8."
    problem = {"problem": "What is 3 + 4?", "answer": "7"}
    assert CompoundRewardFunction()(problem, tidy) == 0.0
    original = CompoundRewardFunction(gate=False)
    parts = original.components(problem, tidy)
    assert parts["correctness"] == 0.0
    assert original(problem, tidy) == pytest.approx(0.3 * parts["clarity"] + 0.2)


def test_weights_are_divided_by_their_sum() -> None:
    assert CompoundRewardFunction(5, 3, 2).weights == CompoundRewardFunction().weights
    for weights in ((0, 0, 0), (-1, 1, 1), (float("nan"), 1, 1)):
        with pytest.raises(ValueError, match="write 0 or more"):
            CompoundRewardFunction(*weights)


def test_efficiency_compares_with_the_groups_right_solutions() -> None:
    reward = CompoundRewardFunction(0.5, 0, 0.5, correctness=has_7)
    lengths = {"7 short": 10, "7 middle": 20, "7 long": 30, "7 longest": 99, "wrong": 1}
    group = [Solution(problem_id=PROBLEM.id, text=text, n_tokens=n) for text, n in lengths.items()]
    scored = score_solutions(reward, PROBLEM, group)
    # The median of 10, 20, 30, 99 is 25; from there to 50 it falls to 0.
    assert [one.reward["efficiency"] for one in scored.solutions] == [1.0, 1.0, 0.8, 0.0, 1.0]
    assert [one.score for one in scored.solutions] == pytest.approx([1.0, 1.0, 0.9, 0.5, 0.0])
    fixed = CompoundRewardFunction(0.5, 0, 0.5, correctness=has_7, reference_length=10, max_length=30)
    assert [one.reward["efficiency"] for one in score_solutions(fixed, PROBLEM, group).solutions[:3]] == [1.0, 0.5, 0.0]
    with pytest.raises(ValueError, match="write more"):
        CompoundRewardFunction(reference_length=10, max_length=10)


class Custom(CompoundRewardFunction):
    def evaluate_correctness(self, problem: str, solution: str) -> float | None:
        return None if "?" in solution else float("7" in solution and isinstance(problem, str))

    def evaluate_clarity(self, solution: str) -> float:
        return 0.5

    def evaluate_efficiency(self, solution: str) -> float:
        return 2.0 if "huge" in solution else 0.0


@pytest.mark.guards("failed reward scored 0")
def test_hooks_of_a_subclass_are_handed_texts() -> None:
    scored = score_solutions(Custom(), PROBLEM, write("7", "8", "what?", "7 huge"))
    assert [one.score for one in scored.solutions] == [pytest.approx(0.65), 0.0, None, None]
    assert "evaluate_efficiency returned 2.0" in scored.solutions[3].meta["reward_note"]
    assert Custom()("What is 3 + 4?", "7") == pytest.approx(0.65)
    with pytest.raises(ValueError, match="returned None"):
        Custom()("What is 3 + 4?", "what?")


def test_the_hooks_of_the_original_work_alone() -> None:
    reward = CompoundRewardFunction(correctness=has_7, reference_length=4)
    assert reward.evaluate_correctness("What is 3 + 4?", "7") == 1.0
    assert reward.evaluate_clarity("So 3 + 4 = 7 because both are whole numbers.") == pytest.approx(1.0)
    assert reward.evaluate_efficiency("one two three four five six") == 0.5
    assert CompoundRewardFunction().evaluate_correctness("What is 3 + 4?", "7") is None, "no gold answer is known"


def constant(value: float | None) -> Any:
    return lambda problem, solution: value


def at(schedule: StageRewardSchedule, step: int, total: int = 100) -> float | None:
    scored = score_solutions(schedule, PROBLEM, write("7"), RewardContext(step=step, total_steps=total))
    return scored.solutions[0].score


@given(st.integers(-5, 130), st.floats(0, 0.2), st.lists(st.floats(0.2, 1), min_size=1, max_size=4))
def test_weights_of_phases_sum_to_1(step: int, blend: float, lengths: list[float]) -> None:
    ends = [sum(lengths[: i + 1]) / sum(lengths) for i in range(len(lengths) - 1)] + [1.0]
    shortest = min(lengths) / sum(lengths)
    schedule = StageRewardSchedule([(f"p{i}", constant(i), end) for i, end in enumerate(ends)], blend * shortest)
    weights = schedule.weights(step, 100)
    assert sum(weights.values()) == pytest.approx(1)
    assert 1 <= len(weights) <= 2
    assert schedule.phase(step, 100) in weights


def test_phases_follow_each_other_and_fade() -> None:
    schedule = StageRewardSchedule([("one", constant(0.0), 0.5), ("two", constant(1.0), 1.0)], blend=0.2)
    assert [at(schedule, step) for step in (0, 40, 45, 50, 55, 60, 100, 200)] == pytest.approx(
        [0, 0, 0.25, 0.5, 0.75, 1, 1, 1]
    )
    assert [schedule.phase(step, 100) for step in (0, 50, 51)] == ["one", "one", "two"]
    scored = score_solutions(schedule, PROBLEM, write("7"), RewardContext(step=45, total_steps=100))
    assert scored.results[0].components == pytest.approx({"phase/one": 0.75, "phase/two": 0.25})
    sudden = StageRewardSchedule([("one", constant(0.0), 0.5), ("two", constant(1.0), 1.0)], blend=0.0)
    assert [at(sudden, step) for step in (49, 50)] == [0, 1]


@pytest.mark.guards("failed reward scored 0")
def test_a_phase_that_fails_gives_no_score() -> None:
    schedule = StageRewardSchedule([("one", constant(None), 0.5), ("two", constant(1.0), 1.0)], blend=0.2)
    assert [at(schedule, step) for step in (0, 50, 70)] == [None, None, 1.0]


@pytest.mark.parametrize(
    "phases", [[], [("a", constant(1), 0.5)], [("a", constant(1), 0.5), ("a", constant(1), 1.0)],
               [("a", constant(1), 0.6), ("b", constant(1), 0.5), ("c", constant(1), 1.0)]],
)  # fmt: skip
def test_phases_that_do_not_fill_a_training_are_refused(phases: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"write|give"):
        StageRewardSchedule(phases)


def test_the_originals_dictionary_of_stages_works() -> None:
    named = {"exploration": diversity_reward, "exploitation": accuracy_reward, "refinement": combined_reward}
    schedule = stage_schedule(named)
    assert [schedule.phase(step, 300) for step in (0, 150, 299)] == list(named)
    texts = ["3 + 4 = 7. The answer is 7.", "3 + 4 = 7. The answer is 7.", "Four and three more. The answer is 7.", "8"]
    early = score_solutions(schedule, PROBLEM, write(*texts), RewardContext(step=0, total_steps=300)).solutions
    assert [one.score for one in early[:2]] == [0.5, 0.5], "a copy is nothing new"
    assert early[2].score is not None
    assert early[2].score > 0.5
    assert early[3].score == 0.0
    middle = score_solutions(schedule, PROBLEM, write(*texts), RewardContext(step=150, total_steps=300)).solutions
    assert [one.score for one in middle] == [1.0, 1.0, 1.0, 0.0]
    with pytest.raises(ValueError, match="write any of exploration"):
        stage_schedule({"exploring": accuracy_reward})


def test_only_right_solutions_make_another_less_new() -> None:
    reward = DiversityReward(correctness=has_7)
    scored = score_solutions(reward, PROBLEM, write("the 7", "the 8", "a b c")).solutions
    assert [one.score for one in scored] == [1.0, 0.0, 0.0]

    def fails(problem: Problem, solution: Solution, ctx: RewardContext) -> None:
        return None

    assert score_solutions(DiversityReward(correctness=fails), PROBLEM, write("7")).failed == 1
