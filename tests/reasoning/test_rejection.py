"""The samplers of the original document: keys, thresholds, seeds, refinement."""

import dataclasses
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reasoning.scripted import PROBLEM, Scorer, Scripted, answering
from verl.classmate.errors import ConfigError
from verl.reasoning.beam import BeamSearchSampler
from verl.reasoning.diverse import DiversityAwareSampler
from verl.reasoning.pools import chance_of_rate
from verl.reasoning.records import Problem, Solution
from verl.reasoning.rejection import RejectionSampler
from verl.reasoning.rejection_config import RejectionSamplingConfig
from verl.reasoning.rewards import RewardContext, RewardResult


def right(problem: str, solution: str) -> float:
    return float("answer is 7." in solution)


def graded(problem: str, solution: str) -> float:
    """A tenth of the number that a solution says."""
    return int(solution.split()[-1].rstrip(".")) / 10


def sampler(backend: Any = None, reward: Any = right, **config: Any) -> DiversityAwareSampler:
    given = {"max_tokens": 100, "min_length": 1} | config
    return DiversityAwareSampler(backend or answering(["7", "8"]), None, reward, RejectionSamplingConfig(**given))


def test_keys_and_numbers() -> None:
    one = sampler(answering([str(n) for n in range(10)]), graded, adaptive=False)
    found = one.sample_with_rejection("What is 3 + 4?")
    assert found is not None
    scores = one.sampling_stats["score_distribution"]
    assert len(scores) == 16
    assert found["score"] == max(scores)
    assert found["score_improvement"] == pytest.approx(max(scores) - min(scores))
    assert found["gain_over_mean"] == pytest.approx(max(scores) - sum(scores) / 16)
    accepted = sum(one >= 0.7 for one in scores)
    assert (found["num_samples_generated"], found["num_samples_accepted"]) == (16, accepted)
    assert found["pass_rate"] == accepted / 16
    assert found["problem"] == "What is 3 + 4?"
    assert found["final_answer"] == found["solution"].split()[-1].rstrip(".")
    assert one.sampling_stats["total_samples"] == 16
    assert one.sampling_stats["avg_score_improvement"] == found["score_improvement"]
    assert "accepted" in one.get_sampling_report()
    assert "DiversityAwareSampler" in one.get_sampling_report()


@pytest.mark.guards("the acceptance threshold ignored")
@settings(max_examples=15, deadline=None)
@given(st.floats(0, 1))
def test_the_threshold_is_respected(threshold: float) -> None:
    one = sampler(answering([str(n) for n in range(10)]), graded, min_score_threshold=threshold, num_samples=6)
    assert all(found["score"] >= threshold for found in one.sample_diverse_solutions("q"))
    best = one.sample_with_rejection("q")
    assert best is None or best["score"] >= threshold
    assert sampler(answering(["8"])).sample_with_rejection("q") is None


def test_where_it_is_known_correct_decides() -> None:
    def reward(problem: Problem, solution: Solution, context: RewardContext) -> RewardResult:
        return RewardResult(score=0.4, correct="answer is 7" in solution.text, components={"answer": 1.0})

    found = sampler(reward=reward, adaptive=False).sample_with_rejection("q")
    assert found is not None
    assert found["score"] == 0.4
    assert "answer is 7" in found["solution"]


@pytest.mark.guards("accepting changes scores")
def test_bonus_and_penalty_change_no_score() -> None:
    for extra in ({}, {"diversity_bonus": 0.0, "length_penalty": 1.0}, {"diversity_bonus": 5.0, "min_length": 90}):
        one = sampler(answering([str(n) for n in range(10)]), graded, adaptive=False, **extra)
        pools = one._pools([PROBLEM])
        before = [dataclasses.astuple(solution) for solution in pools[0].solutions]
        one._result(pools[0])
        assert [dataclasses.astuple(solution) for solution in pools[0].solutions] == before
        assert one.sampling_stats["score_distribution"] == [graded("", s.text) for s in pools[0].solutions]


def test_a_length_out_of_bounds_ranks_lower_and_passes() -> None:
    texts = itertools.cycle(["Long. " * 20 + "The answer is 9.", "The answer is 8."])
    one = sampler(Scripted(lambda *_: next(texts)), graded, max_length=50, max_tokens=500, adaptive=False)
    found = one.sample_with_rejection("q")
    assert found is not None
    assert (found["score"], found["num_samples_accepted"]) == (0.8, 16)


@pytest.mark.guards("same seeds in every call")
def test_seeds_differ_between_calls_and_samples() -> None:
    backend = answering(["7", "8"])
    one = sampler(backend, adaptive=False)
    for _ in range(3):
        one.sample_with_rejection("q")
        one.sample_diverse_solutions("q")
    assert len(backend.seeds) == 3 * (16 + 32)
    assert len(set(backend.seeds)) == len(backend.seeds)
    again = answering(["7", "8"])
    sampler(again, adaptive=False).sample_with_rejection("q")
    assert again.seeds == backend.seeds[:16]
    other = answering(["7", "8"])
    sampler(other, adaptive=False, seed=1).sample_with_rejection("q")
    assert not set(other.seeds) & set(backend.seeds)


def test_temperatures_take_turns() -> None:
    backend = answering(["7", "8"])
    one = sampler(backend, num_samples=8, temperature_mix=(0.6, 0.8, 1.0), max_per_problem=100)
    one.sample_with_rejection("q")
    drawn: dict[float, int] = {}
    for pairs, n, how in backend.calls:
        drawn[how.temperature] = drawn.get(how.temperature, 0) + n * len(pairs)
    assert drawn == {0.6: 3, 0.8: 3, 1.0: 2}
    assert len(set(backend.seeds)) == 8


def test_adaptive_sampling_ends_when_it_has_enough() -> None:
    easy = sampler(answering(["7"]), max_per_problem=4)
    assert easy.sample_with_rejection("q") is not None
    assert easy.sampling_stats["total_samples"] == 4
    hard = sampler(answering(["8"]), num_samples=1000)
    assert hard.sample_with_rejection("q") is None
    assert hard.sampling_stats["total_samples"] == 148
    whole = sampler(answering(["8"]), num_samples=10)
    whole.sample_with_rejection("q")
    assert whole.sampling_stats["total_samples"] == 10


def test_chance_of_a_rate_by_hand() -> None:
    # Without draws every rate is as probable; after n failures the density is (n + 1) (1 - p)^n.
    assert chance_of_rate(0, 0, 0.3) == pytest.approx(0.7)
    assert chance_of_rate(0, 4, 0.1) == pytest.approx(0.9**5)
    assert chance_of_rate(1, 0, 0.5) == pytest.approx(0.75)
    assert chance_of_rate(0, 147, 0.02) > 0.05 > chance_of_rate(0, 148, 0.02)


def test_failures_are_no_zeros() -> None:
    def breaks(problem: str, solution: str) -> float | None:
        number = int(solution.split(".")[0].split()[-1])
        if number % 3 == 0:
            raise RuntimeError("no judge")
        return None if number % 3 == 1 else 1.0

    one = sampler(reward=breaks, adaptive=False)
    found = one.sample_with_rejection("q")
    assert found is not None
    stats = one.sampling_stats
    assert set(stats["score_distribution"]) == {1.0}
    assert stats["failed_samples"] + len(stats["score_distribution"]) == 16
    assert found["pass_rate"] == 1.0
    silent = sampler(Scripted(lambda *_: None), adaptive=False)
    assert silent.sample_with_rejection("q") is None
    assert silent.sampling_stats["failed_samples"] == 16
    assert silent.get_sampling_report()


def test_diverse_solutions() -> None:
    texts = ["3 + 4 = 7. The answer is 7.", "3 + 4 = 7. The answer is 7.", "4 plus 3 makes seven. So 7.", "8"]
    turn = itertools.cycle(texts)

    def reward(problem: str, solution: str) -> float:
        return {"3": 0.9, "4": 0.8, "8": 0.1}[solution[0]]

    found = sampler(Scripted(lambda *_: next(turn)), reward, num_samples=4).sample_diverse_solutions("q", num_diverse=3)
    assert [(one["solution"][0], one["diversity_rank"], one["score"]) for one in found] == [
        ("3", 0, 0.9),
        ("4", 1, 0.8),
    ]
    assert found[0]["mmr"] == 0.9
    assert found[0]["max_sim"] == 0.0
    assert 0 < found[1]["max_sim"] < 0.8
    assert found[1]["mmr"] == pytest.approx(0.7 * 0.8 + 0.3 * (1 - found[1]["max_sim"]))
    assert found[0]["cluster"] != found[1]["cluster"]
    assert sampler(answering(["8"])).sample_diverse_solutions("q") == []


def test_lambda_0_is_top_k() -> None:
    one = sampler(answering([str(n) for n in range(10)]), graded, mmr_lambda=0.0, dedup_threshold=1.0, num_samples=4)
    found = one.sample_diverse_solutions("q", num_diverse=3)
    scores = sorted((s for s in one.sampling_stats["score_distribution"] if s >= 0.7), reverse=True)
    assert [solution["score"] for solution in found] == scores[:3]


def test_ensemble() -> None:
    given = [
        {"solution": "The answer is 8.", "score": 0.9},
        "The answer is 7.",
        Solution(problem_id="p", text="So the answer is 7.0.", score=0.4),
        "I do not know",
    ]
    found = sampler().ensemble_solutions(PROBLEM, given)
    assert found["answer"] == "7"
    assert found["ensemble_solution"] == "The answer is 7."
    assert found["individual_scores"] == [0.9, 1.0, 0.4, 0.0]
    assert (found["num_components"], found["method"], found["agreement"]) == (4, "vote", 2 / 3)
    assert found["score_improvement"] == pytest.approx(1.0 - 2.3 / 4)
    found = sampler(vote="weighted").ensemble_solutions(PROBLEM, given[:1] + given[2:3])
    assert found["answer"] == "8"
    with pytest.raises(ValueError, match="one solution or more"):
        sampler().ensemble_solutions(PROBLEM, [])


class Improving(Scripted):
    """Each round it writes one more than the solution that it is shown."""

    def __init__(self) -> None:
        def write(prompt: str, prefix: str, seed: int) -> str:
            shown = prompt.split("The answer is ")[1].split(".")[0]
            return f"The answer is {min(6, int(shown) + seed % 2)}."

        super().__init__(write)


@pytest.mark.guards("the refinement temperature ignored")
def test_refinement() -> None:
    def reward(problem: Problem, solution: Solution, context: RewardContext) -> RewardResult:
        return RewardResult(score=graded("", solution.text), note="It should be 7, or seven point 7.00.")

    backend = Improving()
    found = sampler(backend, reward, refinement_temperature=0.25).iterative_refinement(PROBLEM, "The answer is 4.")
    assert [one["iteration"] for one in found["history"]] == [1, 2, 3]
    assert [one["score"] for one in found["history"]] == [0.5, 0.6, 0.6]
    assert (found["final_solution"], found["final_score"], found["num_refinements"]) == ("The answer is 6.", 0.6, 2)
    assert found["total_improvement"] == pytest.approx(0.2)
    assert found["refined"] is True
    assert {how.temperature for _, _, how in backend.calls} == {0.25}
    assert len(set(backend.seeds)) == len(backend.seeds) == 12
    # Nobody is shown the gold answer, not in the note of the reward either.
    assert all("7" not in pair[0] for pairs, _, _ in backend.calls for pair in pairs)


def test_refinement_keeps_only_what_is_better() -> None:
    found = sampler(answering(["3"]), graded).iterative_refinement(PROBLEM, "The answer is 5.")
    assert (found["final_solution"], found["num_refinements"], found["refined"]) == ("The answer is 5.", 0, False)
    assert len(found["history"]) == 1
    assert found["total_improvement"] == 0


def test_refinement_is_told_the_first_doubtful_step() -> None:
    backend = answering(["8"])
    scorer = Scorer(lambda problem, steps: [0.9, 0.2, 0.1][: len(steps)])
    one = RejectionSampler(backend, None, right, RejectionSamplingConfig(max_tokens=100), scorer=scorer)
    one.iterative_refinement(PROBLEM, "A.\n\nB is wrong.\n\nC.")
    assert "Step 2 is doubtful: B is wrong." in backend.calls[0][0][0][0]


def test_the_scorer_ranks_accepted_ones() -> None:
    scorer = Scorer(lambda problem, steps: [0.9 if int(steps[0].split()[1].rstrip(".")) % 2 else 0.3] * len(steps))
    one = RejectionSampler(
        answering(["7"]), None, right, RejectionSamplingConfig(use_prm=True, min_length=1), scorer=scorer
    )
    found = one.sample_with_rejection("q")
    assert found is not None
    assert found["score"] == 1.0
    with pytest.raises(ValueError, match="use_prm"):
        RejectionSampler(answering(["7"]), None, right, RejectionSamplingConfig(use_prm=True))


@pytest.mark.parametrize("strategy", ["beam", "dvts"])
def test_beam_search_sampler(strategy: Any) -> None:
    scorer = Scorer(lambda problem, steps: [0.9 if "Good" in step or "answer" in step else 0.1 for step in steps])
    words = ("Good", "Bad")
    backend = Scripted(
        lambda prompt, prefix, seed: f"{words[seed % 2]} {seed % 97}.\n\n" * (not prefix) + "The answer is 7."
    )
    one = BeamSearchSampler(backend, None, right, beam_size=2, scorer=scorer, strategy=strategy)
    found = one.beam_search_with_rejection("q", max_length=60)
    assert len(found) == 2
    for solution in found:
        assert solution["solution"].startswith("Good")
        assert solution["beam_score"] == pytest.approx(0.81)
        assert (solution["final_score"], solution["fallback"]) == (1.0, False)
        assert solution["length"] == len(solution["solution"]) <= 60
    with pytest.raises(ValueError, match="beam or dvts"):
        BeamSearchSampler(backend, None, right, strategy="tree")  # type: ignore[arg-type]


def test_mistakes_are_said() -> None:
    for wrong, said in (
        ({"num_samples": 0}, "1 or more"),
        ({"mmr_lambda": 2}, "between 0 and 1"),
        ({"filters": ("spelling",)}, "language, paragraphs, code"),
        ({"refinement_prompt_template": "{gold}"}, "as its slots"),
        ({"prm_agg": "median"}, "prod, min, last, mean"),
    ):
        with pytest.raises(ConfigError, match=said):
            RejectionSamplingConfig(**wrong)  # type: ignore[arg-type]


def test_many_problems_share_calls() -> None:
    backend = answering(["7"])
    found = sampler(backend).sample_many(["a", "b", "c"])
    assert [one["problem"] for one in found if one] == ["a", "b", "c"]
    assert len(backend.calls) == 1
