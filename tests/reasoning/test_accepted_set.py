"""The set for fine-tuning: who is in it, who is not and why, and further acceptance tests."""

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reasoning.scripted import PROBLEM, Scorer, Scripted, answering
from tests.reasoning.test_rejection import right
from verl.reasoning.acceptance import SoundSteps, apply
from verl.reasoning.accepted_set import balanced
from verl.reasoning.records import Problem, Solution, read_jsonl
from verl.reasoning.rejection import RejectionSampler
from verl.reasoning.rejection_config import RejectionSamplingConfig
from verl.reasoning.search.tools import split_behind
from verl.reasoning.trace_filters import reasons

PAIRS = [(PROBLEM, Solution(problem_id="p", text=f"Step {n}.\n\nThe answer is 7.", n_tokens=n)) for n in range(4)]


def sampler(backend: Any, tests: Any = (), **config: Any) -> RejectionSampler:
    given = {"max_tokens": 400, "dedup_threshold": 1.0, "most_of_one_difficulty": 1.0} | config
    return RejectionSampler(backend, None, right, RejectionSamplingConfig(**given), tests=tests)


def test_accepted_and_rejected(tmp_path: Path) -> None:
    problems = [Problem(id=str(i), problem=f"Problem {i}", answer="7") for i in range(5)]
    found = sampler(answering(["7", "8"]), adaptive=False).accepted_set(problems)
    assert found.counts["drawn"] == 80
    assert all("answer is 7." in one.text for one in found.accepted)
    assert all("answer is 8." in one.text for one in found.rejected)
    assert len(found.accepted) == 20
    assert len(found.rejected) + found.counts["beyond_max_per_problem"] + 20 == 80
    for one in found.accepted:
        assert one.meta["pass_rate"] == found.pass_rates[one.problem_id]
    pairs = found.preference_pairs(most=2)
    assert len(pairs) == 10
    assert all("7." in one["chosen"] and "8." in one["rejected"] for one in pairs)
    assert {one["prompt"] for one in pairs} == {one.problem for one in problems}
    found.write(tmp_path)
    assert tuple(read_jsonl(tmp_path / "accepted.jsonl", Solution)) == found.accepted
    assert tuple(read_jsonl(tmp_path / "spare.jsonl", Solution)) == found.spare
    assert len(found.spare) == found.counts["beyond_max_per_problem"]
    assert all("answer is 7." in one.text for one in found.spare)
    assert json.loads((tmp_path / "counts.json").read_text())["counts"] == found.counts


def test_the_same_text_is_kept_once() -> None:
    found = sampler(Scripted(lambda *_: "The answer is 7."), adaptive=False).accepted_set([PROBLEM])
    assert len(found.accepted) == 1
    assert found.counts["beyond_max_per_problem"] == 15


def test_filters_are_counted_and_make_no_bad_example() -> None:
    texts = itertools.cycle(
        ["The answer is 7.", "\u7b54\u6848\u662f\u4e03. The answer is 7.", "```\nx\n```\nThe answer is 7.", "No."]
    )
    found = sampler(Scripted(lambda *_: next(texts)), adaptive=False, num_samples=4).accepted_set([PROBLEM])
    assert [one.text for one in found.accepted] == ["The answer is 7."]
    assert [one.text for one in found.rejected] == ["No."]
    assert (found.counts["filtered_language"], found.counts["filtered_code"]) == (1, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Let \u03b1 + \u03b2 = \u211d, \\alpha caf\u00e9.", []),
        ("\u7b54\u6848\u662f 7.", []),
        ("We add 3 and 4. \u6240\u4ee5\u7b54\u6848\u662f 7.", ["language"]),
        ("So we have \u043e\u0442\u0432\u0435\u0442 7.", ["language"]),
        ("word " * 301, ["paragraphs"]),
        ("word " * 200 + "\n\n" + "word " * 200, []),
        ("Code:\n```python\nprint(7)\n```", ["code"]),
        ("Inline `x` is fine.", []),
    ],
)
def test_filters(text: str, expected: list[str]) -> None:
    assert reasons(text, ("language", "paragraphs", "code")) == expected


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=20), st.sampled_from([0.4, 0.5, 0.8]))
def test_no_difficulty_prevails(made: list[tuple[int, int]], most: float) -> None:
    pool = [
        Solution(problem_id=str(i), text=str(i), meta={"pass_rate": rate / 4, "rank_in_problem": rank})
        for i, (rate, rank) in enumerate(made)
    ]
    kept = {int(one.text) for one in balanced(pool, most)}
    bins = sorted({min(3, rate) for rate, _ in made})
    assert all(i in kept for i, (_, rank) in enumerate(made) if rank == 0), "the best of a problem stays"
    for one in bins:
        mine = [i for i, (rate, _) in enumerate(made) if min(3, rate) == one]
        ranks = [made[i][1] for i in mine]
        left = [made[i][1] for i in mine if i in kept]
        assert sorted(ranks)[: len(left)] == sorted(left), "the lowest ranks go first"
        if len(bins) > 1 and any(left):
            assert len(left) <= max(1, max(most, 1 / len(bins)) * len(kept))
    if len(bins) == 1:
        assert len(kept) == len(pool)


def test_further_tests_of_all_kinds() -> None:
    def short(problem: Problem, solution: Solution) -> bool:
        return solution.n_tokens < 3

    async def odd(problem: Problem, solution: Solution) -> bool:
        await asyncio.sleep(0)
        return solution.n_tokens % 2 == 1

    def fails(problem: Problem, solution: Solution) -> bool:
        raise RuntimeError("no reader")

    class Together:
        name = "together"
        calls = 0

        def many(self, pairs: Any) -> list[bool | None]:
            self.calls += 1
            return [True if one.n_tokens else None for _, one in pairs]

    assert [one.accepted for one in apply([short, odd], PAIRS)] == [False, True, False, False]
    assert apply([short, odd], PAIRS)[3].by_test == {"short": False}
    assert [one.accepted for one in apply([short, fails], PAIRS)] == [None, None, None, False]
    together = Together()
    assert [one.accepted for one in apply([together], PAIRS)] == [None, True, True, True]  # type: ignore[list-item]
    assert together.calls == 1
    assert [one.accepted for one in apply([], PAIRS)] == [True] * 4


def test_sound_by_the_scorer() -> None:
    scores: dict[str, float | None] = {"Step 0.": 0.9, "Step 1.": 0.4, "Step 2.": None}

    def score(problem: str, steps: Any) -> list[float | None]:
        return [scores.get(step.strip(), 0.8) for step in steps]

    sound = SoundSteps(Scorer(score), lambda text: split_behind(text, ("\n\n",)))
    assert sound.many(PAIRS) == [True, False, None, True]
    assert sound(*PAIRS[1]) is False
    assert sound.many([(PROBLEM, Solution(problem_id="p", text=""))]) == [None]


def test_what_a_further_test_refuses_is_rejected_and_counted() -> None:
    def even(problem: Problem, solution: Solution) -> bool | None:
        number = int(solution.text.split()[1].rstrip("."))
        return None if number % 3 == 0 else number % 2 == 0

    found = sampler(answering(["7"]), [even], adaptive=False, max_per_problem=16).accepted_set([PROBLEM])
    numbers = [int(one.text.split()[1].rstrip(".")) for one in found.accepted]
    assert all(one % 2 == 0 and one % 3 for one in numbers)
    assert all(int(one.text.split()[1].rstrip(".")) % 2 == 1 for one in found.rejected)
    assert found.counts["undecided"] + len(found.accepted) + len(found.rejected) == 16
    assert found.counts["refused_by_even"] == len(found.rejected)
