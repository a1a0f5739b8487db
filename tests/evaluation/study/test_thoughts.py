"""How a response is read: thought, answer, what is left without it, and its parts; with a real tokenizer of a world."""

import itertools
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.evaluation.study.studies import tiny_study
from verl.data_preprocessing import embedded_tokenizers
from verl.data_preprocessing.worlds import lessons, models
from verl.data_preprocessing.worlds.tasks import TASKS
from verl.evaluation.study import learner, thoughts
from verl.evaluation.study.presets import STUDIES
from verl.evaluation.study.results import SHARES
from verl.evaluation.study.spec import Study
from verl.evaluation.study.thoughts import Written, reading_prompt
from verl.evaluation.study.thoughts import _read as read_response

ARITHMETIC, PROGRAMS = STUDIES["cot_transfer_cipher"], STUDIES["uneven_steps"]


@pytest.fixture(scope="module")
def tokenizer():
    worlds = ARITHMETIC.world, PROGRAMS.world
    texts = [text for world in worlds for text in lessons.sample_texts(world, world.styles, 0)[:1500]]
    return embedded_tokenizers.train_tokenizer("bpe", texts, 420)


def written(tokenizer, study: Study, style: str, index: int = 0, *, slip: bool = False) -> Written:
    task = TASKS[study.world.task]
    problem = task.problem(seed=0, split="val", index=index)
    text, number = task.thought(problem, style, random.Random(index), slip=slip)
    return read_response(study, problem, f"<think>\n{text}\n</think>\n{lessons.answer_text(number)}", tokenizer)


@pytest.mark.parametrize("study", [ARITHMETIC, PROGRAMS], ids=lambda study: study.name)
def test_every_style_is_read_as_what_it_is(tokenizer, study: Study) -> None:
    for style, _ in study.world.styles:
        for index in range(20):
            one = written(tokenizer, study, style, index)
            assert one.style == style
            assert one.right
            assert one.answer == str(one.problem.answer)
            assert one.thought.startswith(one.stripped)
            assert len(one.cuts) == len(SHARES) - 2
            assert not written(tokenizer, study, style, index, slip=True).right or style == "empty"


def test_the_working_stays_and_the_result_goes(tokenizer) -> None:
    plain = written(tokenizer, ARITHMETIC, "plain")
    assert "So " in plain.thought
    assert "So " not in plain.stripped
    assert "Tens:" in plain.stripped
    shorthand = written(tokenizer, ARITHMETIC, "shorthand")
    assert shorthand.stripped == shorthand.thought, "it has no statement to strip"
    program = written(tokenizer, PROGRAMS, "every_step")
    assert program.stripped.count("=") == program.thought.count("=") - 1


def test_a_result_said_in_other_words_goes_too(tokenizer) -> None:
    problem = TASKS["arithmetic"].problem(seed=0, split="val", index=0)
    text = f"<think>Carry the one, the answer is {problem.answer}.</think>The answer is {problem.answer}."
    assert read_response(ARITHMETIC, problem, text, tokenizer).stripped == "Carry the one,"


def test_what_was_not_finished_is_wrong(tokenizer) -> None:
    problem = TASKS["arithmetic"].problem(seed=0, split="val", index=0)
    one = read_response(ARITHMETIC, problem, f"<think>\nOnes: 7+8=15. So {problem.answer}", tokenizer)
    assert (one.right, one.answer) == (False, None)
    assert one.thought.startswith("Ones: 7+8=15.")
    nothing = read_response(ARITHMETIC, problem, "", tokenizer)
    assert (nothing.right, nothing.thought, nothing.stripped, nothing.cuts) == (False, "", "", ("", "", ""))


@given(index=st.integers(0, 500), style=st.sampled_from(["plain", "cipher", "shorthand", "empty"]))
def test_parts_are_beginnings_and_grow(tokenizer, index: int, style: str) -> None:
    one = written(tokenizer, ARITHMETIC, style, index)
    shown = ["", *one.cuts, one.stripped]
    assert all(longer.startswith(shorter) for shorter, longer in itertools.pairwise(shown))
    assert all(map(bool, one.cuts)) == bool(one.stripped)


def test_readers_are_shown_thoughts_as_in_their_lessons() -> None:
    world = ARITHMETIC.world
    given = [lessons.reader_lesson(world, world.readers[0], random.Random(i), i).given for i in range(40)]
    problem = TASKS["arithmetic"].problem(seed=777, split="train", index=2_000_000)
    shown = reading_prompt(problem, "Ones: 1+9=10.")
    assert given[0].partition("<think>")[0] == shown.partition("<think>")[0]
    whole = [one for one in given if one.endswith("\n</think>")]
    assert len(whole) > 20
    assert shown.partition("<think>")[2] == "\nOnes: 1+9=10.\n</think>"
    assert all(one.partition("<think>")[2].startswith("\n") for one in whole)


@pytest.mark.slow
def test_a_learner_learns_what_the_policy_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of few lessons learns the one answer that a policy always gives, whatever the thought."""
    study = replace(tiny_study(), learner_samples=(0, 64, 1024))
    models.teach_reader(study.world, study.reader("unseen_llama"), tmp_path / "reader")
    model_tokenizer = thoughts.load_model(tmp_path / "reader")[1]

    def always(study, seed, policy, *, split="val", count=8):
        problems = [TASKS["arithmetic"].problem(seed=seed, split=split, index=i) for i in range(count)]
        text = "<think>\nEasy.\n</think>\nThe answer is 7."
        return [read_response(study, problem, text, model_tokenizer) for problem in problems]

    monkeypatch.setattr(learner, "write_thoughts", always)
    held_out = always(study, 0, tmp_path)
    found = learner.learning_curve(study, 0, tmp_path, tmp_path / "reader", held_out)
    assert found["learner_0"] < found["learner_1024"] == 1.0
    assert found["samples_to_learn"] in (64, 1024)
