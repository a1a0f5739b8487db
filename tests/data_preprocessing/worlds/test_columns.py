"""Styles of arithmetic thoughts: a program reads each, they slip alike, and the cipher is as long as plain working."""

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl.data_preprocessing.arithmetic_problems import make_problem
from verl.data_preprocessing.embedded_tokenizers import train_tokenizer
from verl.data_preprocessing.worlds import columns, lessons
from verl.data_preprocessing.worlds.presets import WORLDS

PROBLEMS = st.builds(
    make_problem,
    seed=st.integers(0, 99),
    split=st.sampled_from(["train", "val"]),
    index=st.integers(0, 10_000),
    hint_share=st.just(0.0),
)
WORKED = ("plain", "shorthand", "cipher", "dialect")


@given(problem=PROBLEMS, slip=st.booleans())
def test_a_program_reads_the_result_out_of_every_worked_style(problem, slip):
    result = columns.result(problem, slip=slip)
    assert (result == problem.answer) is not slip
    for style in WORKED:
        assert columns.read_result(columns.thought(problem, style, slip=slip), style) == result
    assert columns.read_result(columns.thought(problem, "empty", slip=slip), "plain") is None


@given(problem=PROBLEMS, slip=st.booleans())
def test_a_style_is_recognised_whole_stripped_and_cut(problem, slip):
    for style in columns.STYLES:
        thought = columns.thought(problem, style, slip=slip)
        assert columns.style_of(thought) == style
        assert columns.style_of(f"\n{columns.without_answer(thought)}\n") == style
    for style in ("plain", "cipher", "dialect"):
        thought = columns.thought(problem, style, slip=slip)
        assert columns.style_of(thought[: len(thought) // 2]) == style


@pytest.mark.parametrize(
    ("text", "style"),
    [
        ("", "empty"),
        ("Hard!", "empty"),
        ("Ones: 7+8=15. Low: 0+1=48.", "other"),
        ("47+38=85", "other"),
        ("So 85.", "other"),
        ("5^8 or 5.8", "other"),
        (" 5.8\n", "shorthand"),
    ],
)
def test_texts_that_no_lesson_has(text, style):
    assert columns.style_of(text) == style


@given(problem=PROBLEMS, slip=st.booleans())
def test_the_cipher_is_one_to_one_and_hides_the_result(problem, slip):
    plain, cipher = (columns.thought(problem, style, slip=slip) for style in ("plain", "cipher"))
    assert columns.deciphered(cipher) == plain
    assert not set(re.findall("[A-Za-z]+", plain)) & set(re.findall("[A-Za-z]+", cipher))
    assert all(a != b for a, b in zip(re.findall(r"\d", plain), re.findall(r"\d", cipher), strict=True))
    assert re.sub(r"\w+", "", plain) == re.sub(r"\w+", "", cipher)


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_the_cipher_has_as_many_policy_tokens_as_plain(algorithm):
    spec = WORLDS["thought_styles_cipher"]
    model = dataclasses.replace(spec.policy, tokenizer=algorithm)
    texts = lessons.sample_texts(spec, spec.styles, seed=3)
    tokenizer = train_tokenizer(model.tokenizer, texts, model.vocab_size, whole_words=model.whole_words)
    for index in range(300):
        problem = make_problem(seed=4, split="train", index=index, hint_share=0.0)
        for slip in (False, True):
            thoughts = [columns.thought(problem, style, slip=slip) for style in ("plain", "cipher")]
            plain, cipher = (tokenizer(f"<think>\n{thought}\n</think>")["input_ids"] for thought in thoughts)
            assert len(plain) == len(cipher)
            assert tokenizer.decode(cipher) == f"<think>\n{thoughts[1]}\n</think>"


@given(problem=PROBLEMS, slip=st.booleans())
def test_what_is_stripped_no_longer_states_its_result(problem, slip):
    for style in ("plain", "cipher", "dialect"):
        thought = columns.thought(problem, style, slip=slip)
        stripped = columns.without_answer(thought)
        assert thought.startswith(stripped)
        assert 0 < len(stripped) < len(thought)
        assert columns.read_result(stripped, style) is None
        assert columns.without_answer(stripped) == stripped
    for style in ("shorthand", "empty"):
        thought = columns.thought(problem, style, slip=slip)
        assert columns.without_answer(thought) == thought


def test_a_result_that_is_stated_again_and_again_is_cut_whole():
    assert columns.without_answer("Tens: 4+3+1=8. So 85. So 85. So 85\n") == "Tens: 4+3+1=8."
    assert columns.without_answer("So 85. Ones: 7+8=15.") == "So 85. Ones: 7+8=15."


@given(problem=PROBLEMS, slip=st.booleans(), number=st.integers(1, 299))
def test_a_thought_can_be_made_to_state_another_number(problem, slip, number):
    for style in ("plain", "dialect", "shorthand"):
        changed = columns.with_result(
            columns.thought(problem, style, slip=slip), columns.result(problem, slip=slip), number
        )
        assert columns.read_result(changed, style) == number
        assert columns.style_of(changed) == style


def test_an_unknown_style_is_named():
    with pytest.raises(ValueError, match="unknown style 'verse': use one of plain, shorthand"):
        columns.thought(make_problem(seed=0, split="train", index=0), "verse", slip=False)
