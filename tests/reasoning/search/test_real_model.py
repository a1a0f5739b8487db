"""All strategies and samplers on a real model, here, without a scorer: they end, and keep to their budgets."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.tiny import make_tiny_world
from tests.reasoning.search.test_budget import STRATEGIES
from verl.reasoning.backend_cache import CachedBackend
from verl.reasoning.backend_hf import HFBackend
from verl.reasoning.backends import SamplingParams
from verl.reasoning.beam import BeamSearchSampler
from verl.reasoning.records import Problem
from verl.reasoning.rejection import RejectionSampler
from verl.reasoning.rejection_config import RejectionSamplingConfig
from verl.reasoning.search import Search, Tools, compare

PROBLEMS = [Problem(id=str(i), problem=f"{i}+1=?", answer=str(i + 1)) for i in range(3)]


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CachedBackend]:
    folder: Path = tmp_path_factory.mktemp("world")
    with CachedBackend(HFBackend(str(make_tiny_world(folder).model)), folder / "samples.sqlite") as backend:
        yield backend


@pytest.mark.parametrize("search", STRATEGIES, ids=lambda one: one.name)
def test_strategies(backend: CachedBackend, search: Search) -> None:
    # Every few letters of this model end a step.
    tools = Tools(backend=backend, sampling=SamplingParams(max_tokens=12), step_stop=("a", "1", "z", "+"))
    (line,) = compare(PROBLEMS, [search], tools, budget=60).lines
    assert 0 < line.tokens <= 60
    assert line.judged == 3
    misses = backend.misses
    assert compare(PROBLEMS, [search], tools, budget=60).lines == (line,)
    assert backend.misses == misses, "a second run draws nothing"


def test_samplers(backend: CachedBackend) -> None:
    def reward(problem: str, solution: str) -> float:
        return sum("a" <= letter <= "m" for letter in solution) / max(1, len(solution))

    config = RejectionSamplingConfig(num_samples=8, max_tokens=12, min_score_threshold=0.3, min_length=1)
    sampler = RejectionSampler(backend, None, reward, config)
    found = sampler.accepted_set(PROBLEMS)
    assert found.counts["failed"] == 0
    assert found.counts["accepted"] + found.counts["rejected"] > 8
    beams = BeamSearchSampler(backend, None, reward, beam_size=2, step_tokens=4, max_steps=3)
    assert all(one["length"] <= 12 for one in beams.beam_search_with_rejection(PROBLEMS[0], max_length=12))
