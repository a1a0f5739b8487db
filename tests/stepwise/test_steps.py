"""The splitter: nothing is lost, formulas and code stay whole, short pieces join, long ones are cut."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl.stepwise.lexicon import CONCLUDES, has, kind_of
from verl.stepwise.protected import protected_spans
from verl.stepwise.steps import split_steps

PIECES = st.sampled_from(
    [
        "Step 1: we add 3 and 4. ",
        "Step 2: so it is 7.\n",
        "1. First thing\n",
        "2. Second thing\n",
        "\n\n",
        "\n",
        " ",
        "  \t",
        "The sum is 3.5. ",
        "See Fig. 3 for it. ",
        "$x = 1. 2$ ",
        "$$\na\n\nb\n$$",
        "```\ncode. here\n\n```\n",
        "| a | b |\n",
        "\\begin{align}\nx &= 1.\n\ny\n\\end{align}",
        "e.g. this. ",
        "<step>",
        "Wait. ",
        "\\[",
        "\\]",
        "`",
        "...",
        "x",
        "é\u3002",
        "\r\n",
    ]
)
TEXTS = st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=30).map("".join)


def texts(text: str, **options: object) -> list[str]:
    return [step.text for step in split_steps(text, **options)]  # type: ignore[arg-type]


@given(TEXTS, st.integers(1, 5), st.integers(5, 30), st.sampled_from([None, "<step>", "ки"]))
@settings(max_examples=150, deadline=None)
def test_the_steps_joined_are_the_text(text: str, least: int, most: int, tag: str | None) -> None:
    steps = split_steps(text, min_step_words=least, max_step_words=most, step_tag=tag)
    assert "".join(step.text for step in steps) == text
    assert [step.index for step in steps] == list(range(len(steps)))
    assert all(text[step.char_start : step.char_end] == step.text for step in steps)
    assert all(step.text[0].strip() for step in steps[1:]), "blanks belong to the step before"


@given(TEXTS)
@settings(max_examples=100, deadline=None)
def test_marked_with_tags_the_steps_are_the_same(text: str) -> None:
    steps = texts(text.replace("<step>", ""), max_step_words=10_000)
    if not "".join(steps).strip():
        return
    marked = texts("".join("<|s|>" + step for step in steps), step_tag="<|s|>", max_step_words=10_000)
    assert [step.replace("<|s|>", "") for step in marked] == steps


@given(TEXTS, st.integers(1, 5))
@settings(max_examples=100, deadline=None)
def test_nothing_protected_is_cut_and_nothing_is_short(text: str, least: int) -> None:
    steps = split_steps(text, min_step_words=least)
    for start, end in protected_spans(text):
        assert not [step for step in steps if start < step.char_start < end]
    if len(steps) > 1:
        assert min(len(re.findall(r"\w+|[^\w\s.,;:!?()\[\]{}|`$&\\\"'#@~%]+", step.text)) for step in steps) >= least


@pytest.mark.parametrize(
    "text",
    [
        " " * 50_000,
        "\n" * 50_000,
        "\n " * 25_000,
        "." * 100_000,
        "$" * 100_000,
        "```\n" * 25_000,
        "Step 1: a b c\n" * 7_000,
        "\\begin{a}" * 11_000,
        "Hi there you. " * 7_000,
        "1. a\n" * 20_000,
        "x" + " " * 99_999,
    ],
)
def test_long_texts_take_linear_time(text: str) -> None:
    started = time.process_time()
    assert "".join(texts(text)) == text
    assert time.process_time() - started < 2


def test_the_first_mark_that_there_is_decides() -> None:
    heads = "We plan it well.\n**Step 1**: 3 + 4 = 7.\n\nThat is odd.\nStep 2: 7 * 2 = 14. Fine.\n"
    assert texts(heads) == [
        "We plan it well.\n",
        "**Step 1**: 3 + 4 = 7.\n\nThat is odd.\n",
        "Step 2: 7 * 2 = 14. Fine.\n",
    ]
    assert texts("Step 1: add 3 and 4. Step 2: double it.") == ["Step 1: add 3 and 4. ", "Step 2: double it."]
    assert texts("1. add them up\n2. by Step 1 it is 7\n\n3. so we stop") == [
        "1. add them up\n",
        "2. by Step 1 it is 7\n\n",
        "3. so we stop",
    ]
    blank = "We add 3 and 4.\nIt is seven.\n\nWe double it now."
    assert texts(blank) == ["We add 3 and 4.\nIt is seven.\n\n", "We double it now."]
    assert texts("We add 3 and 4.\nIt is just seven.\nwe double it\nand stop here.") == [
        "We add 3 and 4.\n",
        "It is just seven.\n",
        "we double it\nand stop here.",
    ]
    assert texts("3 + 4 = 7 . so 7 * 2 = 14 . done") == ["3 + 4 = 7 . ", "so 7 * 2 = 14 . done"]


def test_tags_open_or_end_a_step() -> None:
    assert texts("<step>3 + 4 = 7</step>\n<step>7 * 2 = 14</step>", step_tag="<step>") == [
        "<step>3 + 4 = 7</step>\n",
        "<step>7 * 2 = 14</step>",
    ]
    assert texts("3 + 4 = 7 ки\n7 * 2 = 14 ки", step_tag="ки") == ["3 + 4 = 7 ки\n", "7 * 2 = 14 ки"]
    assert texts("3 + 4 = 7.\n\n7 * 2 = 14.", step_tag="<step>") == ["3 + 4 = 7.\n\n", "7 * 2 = 14."]


def test_numbers_and_abbreviations_end_no_sentence() -> None:
    text = (
        "By Eq. 3 and e.g. the U.S. Army it costs 3.5 dollars. Then Dr. No agrees to it... and we stop here. "
        "The end is near."
    )
    assert texts(text) == [
        "By Eq. 3 and e.g. the U.S. Army it costs 3.5 dollars. ",
        "Then Dr. No agrees to it... and we stop here. ",
        "The end is near.",
    ]


def test_short_pieces_join_the_step_they_belong_to() -> None:
    assert texts("Good.\n\nWe add 3 and 4.\n\nFine.\n\nNow:\n\nwe double the sum.\n\nDone.") == [
        "Good.\n\nWe add 3 and 4.\n\nFine.\n\n",
        "Now:\n\nwe double the sum.\n\nDone.",
    ]
    assert texts("We have the sum:\n\n\\[ 3 + 4 = 7 \\]\n\nand that is it.") == [
        "We have the sum:\n\n\\[ 3 + 4 = 7 \\]\n\n",
        "and that is it.",
    ]


def test_a_long_step_is_cut_at_its_sentences() -> None:
    sentence = "one two three four five. "
    assert [len(step.split()) for step in texts(sentence * 10 + "\n\nshort one here", max_step_words=12)] == [
        10
    ] * 5 + [3]
    assert len(texts("word " * 500 + "\n\nand one more.")) == 2, "a sentence is never cut"


def test_nothing_is_no_step_and_bad_bounds_are_told() -> None:
    assert split_steps("") == ()
    assert [(step.text, step.kind) for step in split_steps(" \n ")] == [(" \n ", "other")]
    for options in ({"min_step_words": 0}, {"min_step_words": 9, "max_step_words": 8}, {"step_tag": ""}):
        with pytest.raises(ValueError, match="write"):
            split_steps("a", **options)  # type: ignore[arg-type]


def test_a_step_is_of_a_kind() -> None:
    assert kind_of("Wait, 3 + 4 is not 8.") == "backtrack"
    assert kind_of("Let me double-check that 3 + 4 = 7.") == "verify"
    assert kind_of("So the answer is 7.") == kind_of("\\boxed{7}") == "answer"
    assert kind_of("3 + 4 = 7.") == kind_of("x = y + 2") == "compute"
    assert kind_of("All men are mortal.") == kind_of("The waiter checked in.") == "reason"
    assert kind_of("---") == "other"


@pytest.mark.guards("substring keywords in a thought")
def test_also_is_not_so() -> None:
    assert has(CONCLUDES, "So it is 7.")
    assert not has(CONCLUDES, "It is also 7, a so-called prime, in a sort of way, thusly.")
