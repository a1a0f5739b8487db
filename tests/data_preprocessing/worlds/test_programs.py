"""Programs and thoughts about them: true, with the strides of their style, and never in both splits."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl.data_preprocessing.worlds import programs
from verl.data_preprocessing.worlds.programs import LABELS, STYLES, make_program

PROGRAMS = st.builds(
    make_program, seed=st.integers(0, 99), split=st.sampled_from(["train", "val"]), index=st.integers(0, 10_000)
)
SEEDS = st.integers(0, 1000)


def interpreted(question: str) -> list[int]:
    """The value after each update, computed from the text alone."""
    (value,) = map(int, re.findall(r"x is (\d+)\.", question))
    values = []
    for update in re.findall(r"[a-l]:(\S+)", question):
        value = eval(f"{value}{update}") % 17
        values.append(value)
    return values


@given(program=PROGRAMS)
def test_answers_follow_from_the_text(program):
    values = interpreted(program.question)
    assert 6 <= len(values) == len(program.updates) <= 12
    assert program.answer == values[-1]
    assert programs.parse(program.question) == program
    assert {a for a, _ in program.updates} >= {1}
    assert any(a > 1 for a, _ in program.updates)


@given(program=PROGRAMS, style=st.sampled_from(STYLES), seed=SEEDS)
def test_strides_are_those_of_the_style(program, style, seed):
    stops = programs.draw_stops(program, style, random.Random(seed))
    strides = [end - begin for begin, end in zip((0, *stops), stops, strict=False)]
    assert stops[-1] == len(program.updates)
    assert 1 <= min(strides) <= max(strides) <= (2 if style == "hard_skips" else 3)
    wide = [(end - stride, end) for end, stride in zip(stops, strides, strict=True) if stride > 1]
    hard = [any(a > 1 for a, _ in program.updates[begin:end]) for begin, end in wide]
    assert {"every_step": not wide, "easy_skips": wide and not any(hard), "hard_skips": any(hard)}[style]
    assert programs.style_of(programs.write(program, stops), program.question) == style


@given(program=PROGRAMS, style=st.sampled_from(STYLES), seed=SEEDS)
def test_a_program_reads_the_values_of_a_thought(program, style, seed):
    stops = programs.draw_stops(program, style, random.Random(seed))
    values = interpreted(program.question)
    thought = programs.write(program, stops)
    assert re.sub(r"=\d+", "", thought) in program.question, "all updates are copied"
    assert programs.read_entries(thought) == [(stop, values[stop - 1]) for stop in stops]
    assert programs.read_result(thought) == program.answer
    for slip_at in range(len(stops)):
        slipped = programs.write(program, stops, slip_at=slip_at)
        assert programs.read_result(slipped) != program.answer
        assert programs.read_entries(slipped)[:slip_at] == programs.read_entries(thought)[:slip_at]


@given(program=PROGRAMS, style=st.sampled_from(STYLES), seed=SEEDS)
def test_what_is_stripped_leaves_the_last_jump_to_the_reader(program, style, seed):
    stops = programs.draw_stops(program, style, random.Random(seed))
    thought = programs.write(program, stops)
    stripped = programs.without_answer(thought, program.question)
    assert programs.read_entries(stripped) == programs.read_entries(thought)[:-1]
    assert programs.without_answer(stripped, program.question) == stripped
    assert programs.style_of(stripped, program.question) == (style if len(stops) > 1 else "empty")
    assert re.sub(r"=\d+", "", stripped) == re.sub(r"=\d+", "", thought), "updates are the question's, not the answer"


@pytest.mark.parametrize(
    ("thought", "style"),
    [
        ("", "empty"),
        ("Easy.", "empty"),
        ("a:+1 b:+1 c:+1", "empty"),
        ("a:+1=6 b:+1=7 c:+1=8 d:+1=9 e:*2+3=4 f:+1=5", "every_step"),
        ("a:+1=6 b:+1=7 c:+1=8 d:+1=9 e:*2+3=4", "every_step"),
        ("a:+1=6 b:+1=7 c:+1=8 d:+1=9 e:*2+3=4 f:+1", "every_step"),
        ("a:+1 b:+1 c:+1=8 d:+1=9 e:*2+3=4 f:+1=5", "easy_skips"),
        ("a:+1=6 b:+1=7 c:+1=8 d:+1 e:*2+3=4 f:+1=5", "hard_skips"),
        ("a:+1=6 b:+1=7", "hard_skips"),
        ("a:+1=6 c:+1=8", "other"),
        ("b:+1=6", "other"),
        ("a:+1=6 b:*2+3=15", "other"),
        ("a:+1=6 a:+1=6", "other"),
        ("a:+1=6 b:+1=7 c:+1=8 d:+1=9 e:*2+3=4 f:+1=5 g:+1=6", "other"),
        ("a:+1=17", "other"),
        ("a:+1 = 6", "other"),
        ("a:+1=6, b:+1=7", "other"),
        ("a:+1=²", "other"),
    ],
)
def test_texts_that_a_policy_may_come_to_write(thought, style):
    question = "x is 5. a:+1 b:+1 c:+1 d:+1 e:*2+3 f:+1 What is x modulo 17?"
    assert programs.style_of(thought, question) == style


def test_splits_share_no_program_whatever_the_seed():
    train = {make_program(seed=0, split="train", index=i).question for i in range(500)}
    short = {make_program(seed=0, split="train", index=i, short=True).question for i in range(500)}
    val = {make_program(seed=seed, split="val", index=i).question for seed in (0, 1) for i in range(300)}
    assert not val & (train | short)
    assert len(train) > 490
    assert {len(programs.parse(question).updates) for question in short} == {1, 2, 3}


def test_what_is_no_program_or_no_style_is_named():
    with pytest.raises(ValueError, match="no program"):
        programs.parse("Tom has 47 apples.")
    with pytest.raises(ValueError, match="unknown style 'plain'"):
        programs.draw_stops(make_program(seed=0, split="train", index=0), "plain", random.Random(0))
    assert len(LABELS) == 12
