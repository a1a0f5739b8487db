"""Samples on disk: found again under all that they follow from, whatever they are asked together with."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reasoning.scripted import Scripted, answering
from verl.reasoning.backend_cache import CachedBackend
from verl.reasoning.backends import Completion, SamplingParams

HOW = SamplingParams(max_tokens=64)


def no_engine(prompt: str, prefix: str, seed: int) -> str:
    raise AssertionError("the engine was asked")


def test_a_hit_asks_no_engine(tmp_path: Path) -> None:
    first = CachedBackend(answering(["7", "8"]), tmp_path / "samples.sqlite")
    drawn = first.generate(["a", "b"], n=3, sampling=HOW)
    told = first.log_probs(["a"], ["xy"])
    first.close()
    again = CachedBackend(Scripted(no_engine), tmp_path / "samples.sqlite")
    assert again.generate(["b", "a"], n=2, sampling=HOW) == [drawn[1][:2], drawn[0][:2]]
    assert again.log_probs(["a"], ["xy"]) == told
    assert (again.hits, again.misses) == (5, 0)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.integers(1, 5)), min_size=1, max_size=6))
def test_it_answers_as_the_engine_would(asked: list[tuple[str, int, int]]) -> None:
    plain, behind = answering(["7", "8"]), answering(["7", "8"])
    cached = CachedBackend(behind, ":memory:", chunk=2)
    for prompt, first, n in asked:
        how = dataclasses.replace(HOW, first_index=first)
        pair = [prompt, "a"]
        assert cached.generate(pair, n=n, sampling=how) == plain.generate(pair, n=n, sampling=how)
    assert len(behind.seeds) == len(set(behind.seeds)), "nothing is drawn twice"


@pytest.mark.parametrize(
    "other",
    [
        {"temperature": 0.5},
        {"top_p": 0.5},
        {"top_k": 5},
        {"max_tokens": 63},
        {"stop": ("x",)},
        {"seed": 1},
        {"first_index": 7},
    ],
)
def test_whatever_changes_a_sample_is_in_the_key(tmp_path: Path, other: dict[str, Any]) -> None:
    cached = CachedBackend(answering(["7"]), tmp_path / "samples.sqlite")
    cached.generate(["a"], sampling=HOW)
    cached.generate(["a"], sampling=dataclasses.replace(HOW, **other))
    cached.continue_from(["a"], ["b"], sampling=HOW)
    assert (cached.hits, cached.misses) == (0, 3)


def test_other_weights_draw_anew(tmp_path: Path) -> None:
    for revision, misses in (("r0", 1), ("r0", 0), ("r1", 1)):
        backend = answering(["7"])
        backend.revision = revision
        cached = CachedBackend(backend, tmp_path / "samples.sqlite")
        cached.generate(["a"], sampling=HOW)
        assert cached.misses == misses
        cached.close()


def test_failures_are_asked_again(tmp_path: Path) -> None:
    cached = CachedBackend(Scripted(lambda *_: None), tmp_path / "samples.sqlite")
    for _ in range(2):
        assert cached.generate(["a"], sampling=HOW)[0][0].error
    assert (cached.hits, cached.misses) == (0, 2)


class Killed(Exception):
    pass


def test_a_kill_loses_one_chunk(tmp_path: Path) -> None:
    class Dies(Scripted):
        def continue_from(self, prompts: Sequence[str], *args: Any, **kwargs: Any) -> list[list[Completion]]:
            if len(self.calls) == 3:
                raise Killed
            return super().continue_from(prompts, *args, **kwargs)

    prompts = [str(i) for i in range(10)]
    with pytest.raises(Killed):
        CachedBackend(Dies(answering(["7"]).write), tmp_path / "s.sqlite", chunk=4).generate(prompts, n=2, sampling=HOW)
    again = CachedBackend(answering(["7"]), tmp_path / "s.sqlite")
    assert again.generate(prompts, n=2, sampling=HOW) == answering(["7"]).generate(prompts, n=2, sampling=HOW)
    assert (again.hits, again.misses) == (12, 8)


def test_another_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "samples.sqlite").write_text("no database, but long enough to be looked at" * 100)
    with pytest.raises(ValueError, match="name another file"):
        CachedBackend(answering(["7"]), tmp_path / "samples.sqlite")
