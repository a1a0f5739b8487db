"""Searches by steps, in a world of digits: a problem's solution is a row of right digits, one a step."""

import random
from collections.abc import Sequence

import pytest

from tests.reasoning.scripted import Scorer, Scripted
from verl.reasoning.backends import SamplingParams
from verl.reasoning.records import Problem
from verl.reasoning.search import DVTS, ParticleFilter, Search, StepBeam, Tools
from verl.reasoning.search.particles import resampled

DIGITS = "31415"
PROBLEM = Problem(id="pi", problem="Write pi.", answer=DIGITS)
HOW = SamplingParams(max_tokens=200)


def digit_writer(choices: str = "012345") -> Scripted:
    """Writes the rest of a solution: random digits, one a step, and the answer that they spell."""

    def write(prompt: str, prefix: str, seed: int) -> str:
        rng = random.Random(seed)
        had = prefix.replace("\n\n", "")
        rest = "".join(rng.choice(choices) for _ in range(len(DIGITS) - len(had)))
        return "".join(f"{digit}\n\n" for digit in rest) + f"The answer is {had + rest}."

    return Scripted(write)


def perfect(problem: str, steps: Sequence[str]) -> list[float | None]:
    said = [step.strip() for step in steps]
    return [1.0 if not one.isdigit() or one == DIGITS[i : i + 1] else 0.0 for i, one in enumerate(said)]


def tools(**more: object) -> Tools:
    given = {"backend": digit_writer(), "scorer": Scorer(perfect), "sampling": HOW} | more
    return Tools(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "search", [StepBeam(keep=2, width=12), DVTS(subtrees=2, width=24), ParticleFilter(particles=48)]
)
def test_a_perfect_scorer_leads_to_the_answer(search: Search) -> None:
    found = search.run(PROBLEM, tools())
    assert found.solution is not None
    assert found.solution.final_answer == DIGITS
    assert found.solution.text == "".join(f"{one}\n\n" for one in DIGITS) + f"The answer is {DIGITS}."
    assert not found.fallback
    # 6^5 whole solutions would be drawn for one right one.
    assert found.tokens < 4000


def test_all_rejected_falls_back_on_the_best() -> None:
    scorer = Scorer(lambda problem, steps: [0.4 if step.startswith("3") else 0.1 for step in steps])
    found = StepBeam(keep=2, width=24, reject_threshold=0.5).run(PROBLEM, tools(scorer=scorer))
    assert found.fallback
    assert found.solution is not None
    assert found.solution.text.startswith("3")
    assert not StepBeam(keep=2, width=24, reject_threshold=None).run(PROBLEM, tools(scorer=scorer)).fallback


def test_rejected_beginnings_are_not_continued() -> None:
    backend = digit_writer()
    assert not StepBeam(keep=4, width=48).run(PROBLEM, tools(backend=backend)).fallback
    prefixes = {prefix.replace("\n\n", "") for pairs, _, _ in backend.calls for _, prefix in pairs}
    assert all(DIGITS.startswith(one) for one in prefixes)


def test_subtrees_of_dvts_are_independent() -> None:
    """Each keeps a child of its own, though a beam would keep only those of the best one."""
    scorer = Scorer(
        lambda problem, steps: [float(f"0.{step.strip()}") if step.strip().isdigit() else 0.9 for step in steps]
    )
    backend = digit_writer("12345678")
    found = DVTS(subtrees=4, width=2).run(PROBLEM, tools(backend=backend, scorer=scorer))
    assert len(found.candidates) == 4
    assert next(len(pairs) * n for pairs, n, _ in backend.calls) == 8
    assert len({one.text for one in found.candidates}) > 1
    # What the first subtree finds does not change with the others.
    for subtrees in (1, 2, 4):
        again = DVTS(subtrees=subtrees, width=2).run(PROBLEM, tools(backend=digit_writer("12345678"), scorer=scorer))
        assert again.candidates[0].text == found.candidates[0].text


def test_particles_with_one_text_draw_different_steps() -> None:
    backend = digit_writer()
    ParticleFilter(particles=8).run(PROBLEM, tools(backend=backend))
    assert next(n for _, n, _ in backend.calls) == 8
    for call in backend.calls:
        assert len(set(call[0])) == len(call[0])
    assert len(backend.seeds) == len(set(backend.seeds))


def test_resampling_is_by_weight() -> None:
    for seed in range(20):
        places = resampled([0.75, 0.25, None, 0.25], 1.0, seed)
        # Odds 3, 1/3, and the mean 11/9 of the known for the unscored one.
        shares = [3 / (44 / 9), (1 / 3) / (44 / 9), (11 / 9) / (44 / 9), (1 / 3) / (44 / 9)]
        for i, share in enumerate(shares):
            assert abs(places.count(i) - 4 * share) < 1
    assert resampled([None, None], 1.0, 0) == [0, 1]
    assert set(resampled([1.0, 0.0, 0.0], 1.0, 5)) == {0}


@pytest.mark.guards("beam search on tokens that are not in the vocabulary")
def test_steps_end_at_text_and_no_token_is_needed() -> None:
    found = StepBeam(keep=1, width=2, max_steps=3).run(PROBLEM, tools(scorer=None))
    assert found.solution is not None
    assert found.details["steps"] == 3
    # The last step writes on to the end.
    assert found.solution.finish_reason == "stop"
    assert found.solution.final_answer is not None


def test_lookahead_is_only_for_the_score() -> None:
    seen: list[list[str]] = []

    def score(problem: str, steps: Sequence[str]) -> list[float | None]:
        seen.append(list(steps))
        return [0.9] * len(steps)

    found = StepBeam(keep=1, width=1, max_steps=3, lookahead=1).run(PROBLEM, tools(scorer=Scorer(score)))
    assert len(seen[0]) == 2
    plain = StepBeam(keep=1, width=1, max_steps=3).run(PROBLEM, tools(scorer=Scorer(score)))
    assert found.solution is not None
    assert plain.solution is not None
    assert found.solution.text == plain.solution.text
    assert found.tokens > plain.tokens


def test_a_step_without_an_end_goes_on() -> None:
    backend = Scripted(lambda prompt, prefix, seed: ("x" * 50 + " The answer is 7.")[len(prefix) :])
    found = StepBeam(keep=1, width=1, step_tokens=20).run(PROBLEM, Tools(backend=backend, sampling=HOW))
    assert found.solution is not None
    assert found.solution.text == "x" * 50 + " The answer is 7."
    short = SamplingParams(max_tokens=30)
    found = StepBeam(keep=1, width=1, step_tokens=20).run(PROBLEM, Tools(backend=backend, sampling=short))
    assert found.solution is not None
    assert (found.solution.n_tokens, found.solution.finish_reason) == (30, "length")
    with pytest.raises(ValueError, match="whole solutions"):
        StepBeam(rank_by="reward").run(PROBLEM, tools())
