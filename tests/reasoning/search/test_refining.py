"""Refinement as a search: better or unchanged, at its own temperature, and without the gold answer."""

import pytest

from tests.reasoning.scripted import PROBLEM, Scorer, Scripted
from verl.reasoning.backends import SamplingParams
from verl.reasoning.search import Refine, Tools
from verl.reasoning.search.refining import without_gold

HOW = SamplingParams(max_tokens=100)


def test_it_replaces_only_by_a_higher_score() -> None:
    def write(prompt: str, prefix: str, seed: int) -> str:
        return "Second try.\n\nThe answer is 7." if "may be wrong" in prompt else "First try.\n\nThe answer is 8."

    for second, text in ((0.9, "Second"), (0.5, "First"), (0.1, "First")):
        scorer = Scorer(lambda _, steps, second=second: [second if "Second" in steps[0] else 0.5, 1.0])  # type: ignore[misc]
        backend = Scripted(write)
        found = Refine(temperature=0.3, candidates=2).run(PROBLEM, Tools(backend=backend, scorer=scorer, sampling=HOW))
        assert found.solution is not None
        assert found.solution.text.startswith(text)
        assert bool(found.solution.meta.get("refined")) is (text == "Second")
        assert [how.temperature for _, _, how in backend.calls][1:] == [0.3] * (len(backend.calls) - 1)
        assert found.tokens == sum(
            len(write(prompt, "", 0)) * n for pairs, n, _ in backend.calls for prompt, _ in pairs
        )


def test_patience() -> None:
    backend = Scripted(lambda prompt, prefix, seed: "The answer is 8.")
    scorer = Scorer(lambda problem, steps: [0.5] * len(steps))
    tools = Tools(backend=backend, scorer=scorer, sampling=HOW)
    assert len(Refine(rounds=5, patience=2).run(PROBLEM, tools).details["history"]) == 2
    assert len(set(backend.seeds)) == len(backend.seeds)
    nothing = Refine().run(PROBLEM, Tools(backend=Scripted(lambda *_: None), scorer=scorer, sampling=HOW))
    assert (nothing.solution, nothing.failed) == (None, 1)


@pytest.mark.parametrize(
    ("note", "shown"),
    [
        ("The sum is wrong.", "The sum is wrong."),
        ("expected 7", ""),
        ("expected 7.0, got 8", ""),
        ("expected +7.", ""),
        ("17 is too much", "17 is too much"),
        ("7.5 is no integer", "7.5 is no integer"),
    ],
)
def test_a_note_with_the_gold_answer_is_not_shown(note: str, shown: str) -> None:
    assert without_gold(note, PROBLEM) == shown
