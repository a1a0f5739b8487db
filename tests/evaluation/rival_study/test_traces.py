"""What is drawn, who is asked what, and what is accepted."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.evaluation.rival_study.made_up import tiny_study, trace
from verl.data_preprocessing.embedded_models import load_model
from verl.data_preprocessing.worlds import models
from verl.evaluation.rival_study import numbers, traces
from verl.evaluation.rival_study.spec import FineTuning
from verl.evaluation.study.thoughts import reading_prompt

STUDY = tiny_study()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy and a reader that have learnt nearly nothing."""
    folder = tmp_path_factory.mktemp("world")
    models.teach_policy(STUDY.world_of(11), folder / "policy")
    models.teach_reader(STUDY.world_of(11), STUDY.reader("classmate_a"), folder / "classmate_a")
    return folder


def test_a_trace_must_pass_all_tests() -> None:
    both = {"a": True, "b": True}
    pool = [
        trace(0, 1, 2, approved=both),
        trace(0, 1, 2, approved=both),
        trace(0, 3, approved={"a": True, "b": False}),
        trace(1, 1, 2, approved={"a": True, "b": None}),
        trace(2, 4, approved=both, sound=False),
        trace(3, 5, right=False),
        trace(4, 6, sound=True, worked=False, approved={}),
    ]

    def kept(*tests: str) -> list[tuple[int, tuple[int, ...]]]:
        return [(one.index, one.ids) for one in traces.accepted(pool, tests, ["a", "b"])]  # type: ignore[arg-type]

    assert kept() == [(0, (1, 2)), (0, (3,)), (1, (1, 2)), (2, (4,)), (4, (6,))], "right, each text once a problem"
    assert kept("readers") == [(0, (1, 2)), (2, (4,))], "no answer is no approval"
    assert kept("sound") == [(0, (1, 2)), (0, (3,)), (1, (1, 2)), (4, (6,))]
    assert kept("worked") == [(0, (1, 2)), (0, (3,)), (1, (1, 2))]
    assert kept("readers", "sound") == [(0, (1, 2))]
    assert traces.accepted(pool, ("readers",), []) == [], "nobody approves"


def test_drawing_stops_when_the_tokens_are_spent(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "_BATCH", 8)
    drawn = traces.draw_traces(STUDY, 11, world / "policy", budget=600)
    spent = numbers.spent(drawn)
    assert spent - len(drawn[-1].ids) < 600 <= spent
    assert [one.index for one in drawn] == [i // 2 for i in range(len(drawn))], "two traces a problem, in order"
    assert drawn == traces.draw_traces(STUDY, 11, world / "policy", budget=600)
    later = traces.draw_traces(STUDY, 11, world / "policy", budget=400, first=30, salt=1)
    assert [one.index for one in later[:6]] == [30, 30, 31, 31, 0, 0], "behind the last problem comes the first"
    fewer = replace(STUDY, fine_tuning=FineTuning(samples=1))
    assert [one.index for one in traces.draw_traces(fewer, 11, world / "policy", budget=120)][:2] == [0, 1]


def test_sampled_tokens_end_with_the_turn(world: Path) -> None:
    model, tokenizer = load_model(world / "policy")
    asked = [tokenizer("What is 1+1?")["input_ids"], tokenizer("And?")["input_ids"]]
    for ids in traces.draw(model, tokenizer, asked * 20, max_new_tokens=8, temperature=1.0, seed=0):
        assert 1 <= len(ids) <= 8
        assert tokenizer.eos_token_id not in ids[:-1]


def test_readers_are_asked_about_right_thoughts_only(world: Path) -> None:
    pool = [trace(0, 1), trace(1, 1, right=False), trace(2, 1, thought=None)]
    asked = traces.asked_readers(STUDY, 11, pool, {"classmate_a": world / "classmate_a"})
    assert [set(one.approved) for one in asked] == [{"classmate_a"}, set(), set()]
    assert [one.read_tokens > 0 for one in asked] == [True, False, False]
    assert traces.asked_readers(STUDY, 11, pool, {}) == pool


def test_a_reader_is_shown_what_its_lessons_showed(world: Path) -> None:
    """The ids of RL's prompts are those of the question and the closed thought."""
    tokenizer = load_model(world / "classmate_a")[1]
    problem = traces.problem_of(STUDY, 11, 3)
    shown = traces._reading_ids(tokenizer, problem.prompt, "\nOnes: 7+8=15, carry 1.\n")
    assert tokenizer.decode(shown) == reading_prompt(problem, "Ones: 7+8=15, carry 1.")


def test_lessons_are_the_sampled_tokens(world: Path) -> None:
    [(given, learnt)] = traces.lessons_of(STUDY, 11, world / "policy", [trace(3, 7, 8, 9)])
    assert learnt == (7, 8, 9)
    said = load_model(world / "policy")[1].decode(given)
    assert traces.problem_of(STUDY, 11, 3).prompt in said
    assert said.endswith("<|im_start|>assistant\n")
