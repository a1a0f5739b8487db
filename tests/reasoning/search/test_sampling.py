"""Searches that draw whole solutions: what they choose, and that they choose from the same samples."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reasoning.scripted import PROBLEM, Scorer, Scripted, answering
from verl.reasoning.backends import SamplingParams
from verl.reasoning.rewards import as_reward
from verl.reasoning.search import BestOfN, Ensemble, Found, Majority, MMRSelection, Tools, WeightedBestOfN

HOW = SamplingParams(max_tokens=100)
MIXED = ["7", "8", "9"]


def by_answer(values: dict[str, float]) -> Scorer:
    """Scores the last step by the answer that it gives."""
    return Scorer(lambda problem, steps: [1.0] * (len(steps) - 1) + [values[steps[-1].split()[-1].rstrip(".")]])


def tools(scorer: Scorer | None = None, answers: Sequence[str] = MIXED, **more: object) -> Tools:
    return Tools(backend=answering(answers), scorer=scorer, sampling=HOW, **more)  # type: ignore[arg-type]


def test_best_of_n_takes_the_best() -> None:
    found = BestOfN(n=12).run(PROBLEM, tools(by_answer({"7": 0.2, "8": 0.9, "9": 0.5})))
    assert found.solution is not None
    assert found.solution.final_answer == "8"
    assert found.solution.score == 0.9
    assert len(found.candidates) == 12
    assert found.tokens == sum(len(one.text) for one in found.candidates)


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(st.sampled_from(MIXED), st.sampled_from([0.1, 0.3, 0.8]), min_size=3), st.integers(1, 9))
def test_votes_against_brute_force(values: dict[str, float], n: int) -> None:
    found = WeightedBestOfN(n=n).run(PROBLEM, tools(by_answer(values)))
    answers = [one.final_answer for one in found.candidates]
    sums = {answer: sum(values[a] for a in answers if a == answer) for answer in answers if answer}
    assert found.solution is not None
    assert sums[found.solution.final_answer or ""] == pytest.approx(max(sums.values()))
    counted = Majority(n=n).run(PROBLEM, tools())
    assert [one.text for one in counted.candidates] == [one.text for one in found.candidates]
    assert counted.solution is not None
    most = max(answers.count(one) for one in answers)
    assert most == 1 or answers.count(counted.solution.final_answer) == most


def test_what_was_not_scored_has_no_vote() -> None:
    scorer = Scorer(lambda problem, steps: [None if "7" in steps[-1] else 0.1] * len(steps))
    found = WeightedBestOfN(n=12).run(PROBLEM, tools(scorer))
    assert found.solution is not None
    assert found.solution.final_answer in ("8", "9")
    assert {one.score for one in found.candidates if one.final_answer == "7"} == {None}


def test_failed_samples_are_counted_and_left_out() -> None:
    backend = Scripted(lambda prompt, prefix, seed: None if seed % 2 else "The answer is 7.")
    found = Majority(n=16).run(PROBLEM, Tools(backend=backend, sampling=HOW))
    assert 0 < found.failed < 16
    assert len(found.candidates) == 16 - found.failed
    nothing = BestOfN(n=4).run(PROBLEM, Tools(backend=Scripted(lambda *_: None), sampling=HOW))
    assert (nothing.solution, nothing.failed, nothing.tokens) == (None, 4, 0)


def test_mmr_never_takes_a_text_twice() -> None:
    texts = itertools.cycle(["a b c. The answer is 7.", "a b c. The answer is 7.", "x y z. The answer is 7."])
    backend = Scripted(lambda *_: next(texts))
    scorer = Scorer(lambda problem, steps: [0.9 if steps[0].startswith("a") else 0.6])
    found = MMRSelection(n=6, pick=6).run(PROBLEM, Tools(backend=backend, scorer=scorer, sampling=HOW))
    assert [one.text[:5] for one in found.candidates] == ["a b c", "x y z"]


def test_a_merged_text_counts_only_in_the_winning_class() -> None:
    def write(merged: str) -> Scripted:
        return Scripted(lambda prompt, prefix, seed: merged if "Solution 1" in prompt else "The answer is 8.")

    scorer = Scorer(lambda problem, steps: [0.9 if "Merged" in steps[0] else 0.5])
    for merged, method in (("Merged. The answer is 8.", "synthesis"), ("Merged. The answer is 7.", "vote")):
        found = Ensemble(n=3).run(PROBLEM, Tools(backend=write(merged), scorer=scorer, sampling=HOW))
        assert found.details["method"] == method
        assert found.solution is not None
        assert found.solution.final_answer == "8"
    low = Scorer(lambda problem, steps: [0.1 if "Merged" in steps[0] else 0.5])
    found = Ensemble(n=3).run(PROBLEM, Tools(backend=write("Merged. The answer is 8."), scorer=low, sampling=HOW))
    assert found.details["method"] == "vote"


def test_the_reward_is_asked_only_where_it_is_named() -> None:
    def reward(problem: str, solution: str) -> float:
        asked.append(solution)
        return float("7" in solution)

    asked: list[str] = []
    found: Found = BestOfN(n=8).run(PROBLEM, tools(by_answer(dict.fromkeys(MIXED, 0.5)), reward=as_reward(reward)))
    assert not asked
    found = BestOfN(n=8, rank_by="reward").run(PROBLEM, tools(reward=as_reward(reward)))
    assert len(asked) == 8
    assert found.solution is not None
    assert found.solution.score == 1.0


def test_without_a_scorer_it_is_the_models_own_probability() -> None:
    found = BestOfN(n=4).run(PROBLEM, tools())
    assert found.solution is not None
    assert found.solution.score == pytest.approx(2.718281828**-0.1)
    assert found.scored_tokens == found.tokens
    with pytest.raises(ValueError, match="scorer"):
        BestOfN(n=4, rank_by="scorer").run(PROBLEM, tools())
    with pytest.raises(ValueError, match="n=None"):
        BestOfN(n=None).run(PROBLEM, tools())
