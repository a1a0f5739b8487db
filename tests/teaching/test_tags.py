"""What of a teacher's text its student sees: the visible part, or nothing."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.teaching.linear import assert_linear
from verl.classmate.errors import ConfigError
from verl.teaching.tags import Teaching, TeachingState, TeachingTags, extract_teaching, is_blank, outline_of

TAGS = TeachingTags()
DELIMITERS = ["<thinking>", "</thinking>", "<teaching>", "</teaching>", "<solution>", "<think>", "</think>", "<advice>"]
PIECES = st.lists(st.sampled_from([*DELIMITERS, "<", ">", "a", " ", "\n", "secret", "<teaching", "</", "é"])).map(
    "".join
)


def words(text: str) -> int:
    """A tokenizer of whose tokens each is a word."""
    return len(text.split())


def extracted(raw: str, **options: Any) -> Teaching:
    return extract_teaching(raw, TAGS, **{"count_tokens": words, "max_tokens": 512, "overflow": "penalize", **options})


@pytest.mark.acceptance("T7")
@pytest.mark.parametrize(
    ("raw", "text", "state"),
    [
        ("<thinking>weak</thinking><teaching>Draw it.</teaching>", "Draw it.", "ok"),
        ("<thinking>weak</thinking>\n<teaching>\n Draw\nit. \n</teaching>\n", "Draw\nit.", "ok"),
        ("<teaching>Draw it.</teaching>", "Draw it.", "ok"),
        ("</thinking><teaching>Draw it.</teaching>", "Draw it.", "ok"),
        # The last complete one.
        ("<teaching>a</teaching> or rather <teaching>b</teaching>", "b", "ok"),
        ("<teaching>a</teaching> or <teaching>b", "a", "ok"),
        ("<teaching>a</teaching> <teaching> </teaching>", "", "empty"),
        # Abstention.
        ("<thinking>strong</thinking><teaching></teaching>", "", "empty"),
        ("<thinking>strong</thinking><teaching>\n \t</teaching>", "", "empty"),
        *[
            (f"<teaching>{blank}</teaching>", "", "empty")
            for blank in ("\u200b", "\ufeff", " \u2060\n", "\u00ad", "\u3000")
        ],
        # In the private section.
        ("<thinking><teaching>secret</teaching></thinking>", "", "missing"),
        ("<thinking><teaching>secret</teaching></thinking><teaching>b</teaching>", "b", "ok"),
        ("<thinking>a</thinking><teaching>b</teaching><thinking>c</thinking>", "", "missing"),
        ("<thinking>a<teaching>secret</teaching>", "", "unclosed"),
        ("<teaching>b</teaching><thinking>more", "", "unclosed"),
        ("<teaching>b <thinking>secret</thinking> c</teaching>", "", "missing"),
        ("<think><teaching>secret</teaching></think><teaching>b</teaching>", "b", "ok"),
        ("<think>a <teaching>secret</teaching>", "", "unclosed"),
        # Broken.
        ("", "", "missing"),
        ("Draw it.", "", "missing"),
        ("<thinking>weak</thinking>Draw it.", "", "missing"),
        ("Draw it.</teaching>", "", "missing"),
        ("</teaching>Draw it.<teaching>", "", "unclosed"),
        ("<thinking>weak</thinking><teaching>Draw it.", "", "unclosed"),
        ("<teaching>Draw <teaching>it.</teaching></teaching>", "", "malformed"),
        ("<teaching>Draw <teaching>it.</teaching>", "", "malformed"),
        ("<teaching>a</teaching><teaching>b<teaching>", "", "malformed"),
        # No tags of ours.
        ("<TEACHING>Draw it.</TEACHING>", "", "missing"),
        ("<teaching >Draw it.</teaching>", "", "missing"),
        ("< teaching>Draw it.</teaching>", "", "missing"),
    ],
)
def test_what_is_found(raw: str, text: str, state: str) -> None:
    found = extracted(raw)
    assert (found.text, found.state) == (text, state)
    assert found.tokens == found.written_tokens == words(text)


@pytest.mark.guards("missing tag forwarding private analysis")
@settings(deadline=None)
@given(raw=PIECES)
def test_nothing_but_a_visible_part_is_forwarded(raw: str) -> None:
    """Whatever the text: what is shown stood between a visible open and close tag, behind everything private."""
    found = extracted(raw)
    if found.state is not TeachingState.ok:
        assert (found.text, found.tokens) == ("", 0)
        return
    rest = raw[raw.rfind("</thinking>") + 1 :]
    assert "<thinking>" not in rest
    assert "<think>" not in rest
    assert f"<teaching>{found.text}</teaching>" in "".join(rest.split()) or found.text in rest
    assert not any(mark in found.text for mark in ("<thinking>", "</thinking>", "<teaching>", "</teaching>"))


@pytest.mark.guards("missing tag as IndexError")
@settings(deadline=None)
@given(raw=st.text())
def test_no_text_is_an_error(raw: str) -> None:
    """A split at a tag that is not there would be."""
    assert extracted(raw).state in TeachingState
    assert outline_of(raw, TAGS) == raw.strip()


def test_which_states_keep_the_contract() -> None:
    assert [state for state in TeachingState if state.keeps_contract] == [TeachingState.ok, TeachingState.empty]


def test_over_the_cap_nothing_is_shown() -> None:
    raw = "<teaching>one two three four</teaching>"
    assert extracted(raw, max_tokens=4).state is TeachingState.ok
    found = extracted(raw, max_tokens=3)
    assert found == Teaching(text="", state=TeachingState.overlong, tokens=0, written_tokens=4)
    assert not found.state.keeps_contract


def test_over_the_cap_the_beginning_is_shown() -> None:
    found = extracted("<teaching>one two three four</teaching>", max_tokens=3, overflow="truncate")
    # Whole words: a token that was begun counts, so that the next one is cut in its first letter at the earliest.
    assert found == Teaching(text="one two three", state=TeachingState.ok, tokens=3, written_tokens=4)


def test_where_not_even_a_character_fits() -> None:
    found = extracted(
        "<teaching>\N{SLIGHTLY SMILING FACE}</teaching>",
        max_tokens=1,
        overflow="truncate",
        count_tokens=lambda text: len(text.encode()),
    )
    assert (found.text, found.state, found.tokens) == ("", TeachingState.overlong, 0)


@settings(deadline=None)
@given(text=st.text(min_size=1).filter(lambda text: text.strip() == text and "<" not in text), most=st.integers(1, 30))
def test_the_cap_holds_for_any_tokenizer(text: str, most: int) -> None:
    found = extracted(
        f"<teaching>{text}</teaching>",
        max_tokens=most,
        overflow="truncate",
        count_tokens=lambda part: len(part.encode()),
    )
    assert found.tokens == len(found.text.encode()) <= most
    assert text.startswith(found.text)
    if found.written_tokens > most:
        more = text[: len(found.text) + 1]
        assert len(more.encode()) > most or more.rstrip() == found.text or is_blank(more)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_tokens": 0}, "max_teaching_tokens: 0 leaves no room for a teaching; write 1 or more"),
        ({"overflow": "cut"}, "teaching_overflow: 'cut' is not possible; write penalize or truncate"),
    ],
)
def test_wrong_options_are_told(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        extracted("<teaching>a</teaching>", **options)
    assert str(error.value) == told


@pytest.mark.parametrize("mark", ["", " ", "<a b>", "<a>\n", "<>", None])
def test_a_tag_is_one_word(mark: Any) -> None:
    with pytest.raises(ConfigError, match="is no delimiter; write one word in brackets"):
        TeachingTags(visible_open=mark)


def test_tags_can_be_told_apart() -> None:
    for other in ("<thinking>", "<THINKING>", "x<thinking>x"):
        with pytest.raises(ConfigError, match="cannot be told apart"):
            TeachingTags(visible_open=other)


@pytest.mark.acceptance("T7")
@pytest.mark.guards("delimiter inside data")
@settings(deadline=None)
@given(text=PIECES)
def test_an_escaped_text_holds_no_delimiter(text: str) -> None:
    """A question, an outline or a teaching ends no section, and is the same text but for blanks."""
    escaped = TAGS.escaped(text)
    assert not any(mark in escaped for mark in DELIMITERS)
    assert escaped.replace(" ", "") == text.replace(" ", "")
    assert TAGS.escaped(escaped) == escaped
    # Quoted by the teacher in its private section, they change nothing.
    raw = f"<thinking>It says: {escaped}</thinking><teaching>Draw it.</teaching>"
    assert extracted(raw).text == "Draw it."


def test_escaping_whatever_the_case() -> None:
    assert TAGS.escaped("<Teaching>x</TEACHING> a < b > c <b>") == "< Teaching>x< /TEACHING> a < b > c <b>"
    assert TAGS.escaped("<tea<teaching>ching>") == "<tea< teaching>ching>"


@pytest.mark.parametrize(
    ("raw", "outline"),
    [
        ("1. Draw it. 2. Cou", "1. Draw it. 2. Cou"),
        ("<think>long</think>\n\n1. Draw it.", "1. Draw it."),
        ("long</think>1. Draw it.", "1. Draw it."),
        ("<think>long", ""),
        ("<think>a</think>b<think>c", ""),
        ("", ""),
    ],
)
def test_an_outline_has_no_thought(raw: str, outline: str) -> None:
    assert outline_of(raw, TAGS) == outline


@pytest.mark.parametrize(
    "unit",
    [
        " ",
        "<",
        "<teaching>",
        "</teaching>",
        "<teaching></teaching>",
        "<thinking>",
        "</thinking>",
        "<thinking></thinking>",
        "<tea",
        "a ",
    ],
)
def test_times_are_linear(unit: str) -> None:
    assert_linear(extracted, unit)
    assert_linear(lambda text: extracted(f"<teaching>{text}</teaching>", max_tokens=5, overflow="truncate"), unit)
    assert_linear(TAGS.escaped, unit)


def test_a_thought_that_the_template_opened_is_private() -> None:
    """Of such a thought only the end is in the text, or not even that."""
    raw = "perhaps <teaching>secret</teaching>"
    assert extracted(raw, thought_opened=True).state is TeachingState.unclosed
    found = extracted(f"{raw}</think><teaching>Draw it.</teaching>", thought_opened=True)
    assert (found.text, found.state) == ("Draw it.", TeachingState.ok)
    assert outline_of("let me see", TAGS, thought_opened=True) == ""
    assert outline_of("let me see</think>1. Draw it.", TAGS, thought_opened=True) == "1. Draw it."


def test_fifty_thousand_blanks_are_an_abstention() -> None:
    assert extracted(f"<teaching>{' ' * 50_000}</teaching>").state is TeachingState.empty
    assert extracted(" " * 50_000).state is TeachingState.missing
