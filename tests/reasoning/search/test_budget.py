"""Every token is counted, and no strategy spends one more than it may."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reasoning.scripted import Scorer
from tests.reasoning.search.test_steps import PROBLEM, digit_writer, perfect
from verl.reasoning.backends import SamplingParams
from verl.reasoning.records import Problem
from verl.reasoning.search import (
    DVTS,
    BestOfN,
    Budget,
    Ensemble,
    Majority,
    MMRSelection,
    Named,
    ParticleFilter,
    Refine,
    Search,
    StepBeam,
    Tools,
    WeightedBestOfN,
    compare,
    run_all,
)

STRATEGIES: tuple[Search, ...] = (
    BestOfN(n=None),
    WeightedBestOfN(n=6),
    Majority(n=None),
    MMRSelection(n=5),
    Ensemble(n=3),
    Refine(rounds=3, candidates=3),
    StepBeam(keep=2, width=3, lookahead=1),
    DVTS(subtrees=2, width=3),
    ParticleFilter(particles=5),
)


def tools(**more: object) -> Tools:
    given = {"backend": digit_writer(), "scorer": Scorer(perfect), "sampling": SamplingParams(max_tokens=60)} | more
    return Tools(**given)  # type: ignore[arg-type]


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 400), st.integers(5, 80))
@pytest.mark.parametrize("search", STRATEGIES, ids=lambda one: one.name)
def test_budgets_are_respected(search: Search, tokens: int, longest: int) -> None:
    backend = digit_writer()
    found = search.run(
        PROBLEM,
        tools(backend=backend, budget=Budget(tokens=tokens), sampling=SamplingParams(max_tokens=longest)),
    )
    drawn = sum(
        len(one.token_ids)
        for pairs, n, how in backend.calls
        for row in digit_writer().continue_from([a for a, _ in pairs], [b for _, b in pairs], n=n, sampling=how)
        for one in row
    )
    assert found.tokens == drawn <= tokens
    assert found.tokens > 0


@pytest.mark.parametrize("search", STRATEGIES[1:2] + STRATEGIES[3:], ids=lambda one: one.name)
def test_without_a_budget_it_ends(search: Search) -> None:
    found = search.run(PROBLEM, tools())
    assert found.solution is not None
    assert found.solution.finish_reason == "stop"
    assert found.scored_tokens > 0


@pytest.mark.parametrize("search", STRATEGIES, ids=lambda one: one.name)
def test_company_changes_nothing(search: Search) -> None:
    problems = [Problem(id=str(i), problem=f"Write pi {i}.", answer="31415") for i in range(5)]
    together = run_all(search, problems, tools(budget=Budget(tokens=300)), at_once=3)
    alone = [search.run(one, tools(budget=Budget(tokens=300))) for one in problems]
    assert together == alone
    assert [one.problem_id for one in together] == [str(i) for i in range(5)]


def test_scorers_that_count_are_believed() -> None:
    class Counting(Scorer):
        tokens_used = 0

        def score_steps(self, problems, steps):  # type: ignore[no-untyped-def]
            self.tokens_used += 1000 * len(problems)
            return super().score_steps(problems, steps)

    found = BestOfN(n=4).run(PROBLEM, tools(scorer=Counting(perfect)))
    assert found.scored_tokens == pytest.approx(4000, abs=4)


def test_comparison() -> None:
    problems = [Problem(id=str(i), problem=f"Write pi {i}.", answer="31415") for i in range(6)]
    narrow, wide_beam = (StepBeam(keep=1, width=width, step_tokens=25) for width in (5, 16))
    table = compare(problems, [Majority(n=None), narrow, Named(wide_beam, "wide")], tools(), budget=1500)
    majority, beam, wide = table.lines
    assert (majority.right, majority.judged) == (0, 6)
    assert wide.right > beam.right
    assert wide.interval is not None
    assert wide.accuracy is not None
    assert wide.interval[0] < wide.accuracy <= wide.interval[1]
    assert max(one.tokens for one in table.lines) <= 1500
    assert [row.split(" | ")[0] for row in table.as_text().splitlines()[2:]] == ["| Majority", "| StepBeam", "| wide"]
    with pytest.raises(ValueError, match="Named"):
        compare(problems, [Majority(), Majority(n=4)], tools())
    unknown = [dataclasses.replace(one, answer=None) for one in problems]
    line = compare(unknown, [Majority()], tools()).lines[0]
    assert (line.judged, line.failed, line.accuracy, line.interval) == (0, 6, None, None)
