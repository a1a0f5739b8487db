"""Finds the part of a teacher's text that its student may see: everything else is private.

One decision: a text that breaks the tag contract shows nothing. Its state says how it broke it, and no other part of
the raw text ever stands in for the visible one.

    >>> tags = TeachingTags()
    >>> teaching = extract_teaching("<thinking>weak</thinking><teaching>Draw it.</teaching>", tags, count_tokens=count,
    ...                             max_tokens=512, overflow="penalize")
    >>> teaching.text, teaching.state
    ('Draw it.', <TeachingState.ok: 'ok'>)

Times are linear in the text's length.
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import astuple, dataclass
from enum import StrEnum
from itertools import permutations
from typing import Literal

from verl.classmate.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class TeachingTags:
    """The delimiters of the protocol; the same value goes to the templates and to the extraction.

    Raises:
        ConfigError: one of them is short or holds a blank, or one is part of another.
    """

    private_open: str = "<thinking>"
    """Begins the teacher's own analysis."""
    private_close: str = "</thinking>"
    """Ends it; what is shown stands behind the last one."""
    visible_open: str = "<teaching>"
    """Begins what the student is shown."""
    visible_close: str = "</teaching>"
    """Ends it."""
    solution_open: str = "<solution>"
    """Begins the student's final answer."""
    solution_close: str = "</solution>"
    """Ends it."""
    advice_open: str = "<advice>"
    """Begins the teaching in the student's prompt."""
    advice_close: str = "</advice>"
    """Ends it."""
    thought_open: str = "<think>"
    """Begins a chain of thought of a model that writes one by itself, which is as private."""
    thought_close: str = "</think>"
    """Ends it."""

    def __post_init__(self) -> None:
        for mark in astuple(self):
            if not isinstance(mark, str) or len(mark) < 3 or mark.split() != [mark]:
                raise ConfigError(f"the tag {mark!r} is no delimiter; write one word in brackets, such as <teaching>")
        for one, other in permutations(astuple(self), 2):
            if one.casefold() in other.casefold():
                raise ConfigError(f"the tags {one!r} and {other!r} cannot be told apart; write two different words")

    def escaped(self, text: str) -> str:
        """A text in which no delimiter is one: a blank stands behind the first character of each.

        For whatever is put into a template: questions, outlines of students, teachings. Escaping twice changes nothing.
        """
        marks = sorted(astuple(self), key=len, reverse=True)
        # The first character alone is taken, so that what begins within another delimiter is found too.
        starts = "|".join(f"{re.escape(mark[0])}(?={re.escape(mark[1:])})" for mark in marks)
        return re.sub(starts, lambda found: f"{found[0]} ", text, flags=re.IGNORECASE)


class TeachingState(StrEnum):
    """What became of the search for the visible part; all but `ok` and `empty` break the tag contract."""

    ok = "ok"
    empty = "empty"
    """There, and blank: the teacher abstained on purpose."""
    missing = "missing"
    """No visible part begins behind the private one."""
    unclosed = "unclosed"
    """The visible part, or a private one, was begun and never ended."""
    malformed = "malformed"
    """A visible part begins within another one."""
    overlong = "overlong"
    """Longer than the cap, and nothing of it is shown (`teaching_overflow: penalize`)."""

    @property
    def keeps_contract(self) -> bool:
        """Whether the teacher did what the template asks; otherwise the format penalty is due."""
        return self in (TeachingState.ok, TeachingState.empty)


@dataclass(frozen=True, kw_only=True)
class Teaching:
    """What a teacher's text says to its student."""

    text: str
    """What is forwarded, without blanks around it; empty unless the state is `ok`."""
    state: TeachingState
    """What was found."""
    tokens: int
    """Length L of `text`, in tokens of the student's tokenizer; what cap, reward and TES count."""
    written_tokens: int
    """Length of the visible part before the cap, in the same tokens; 0 where there is none."""


def extract_teaching(
    raw: str,
    tags: TeachingTags,
    *,
    count_tokens: Callable[[str], int],
    max_tokens: int,
    overflow: Literal["penalize", "truncate"],
    thought_opened: bool = False,
) -> Teaching:
    """The visible part of a teacher's raw text.

    It is the content of the last complete visible tag behind the last private close tag. With `overflow="penalize"` a
    teaching over the cap is not forwarded and breaks the contract; with `truncate` its beginning is forwarded, cut
    between two characters.

    Args:
        raw: the teacher's whole response.
        tags: those that the teacher's template names.
        count_tokens: length of a text in the student's tokenizer.
        max_tokens: the cap (`max_teaching_tokens`).
        overflow: what happens to a longer teaching (`teaching_overflow`).
        thought_opened: whether the chat template has begun a chain of thought for the teacher, which `raw` goes on
            with.

    Raises:
        ConfigError: the cap is no positive number, or the overflow is none of the two.
    """
    if max_tokens < 1:
        raise ConfigError(f"max_teaching_tokens: {max_tokens} leaves no room for a teaching; write 1 or more")
    if overflow not in ("penalize", "truncate"):
        raise ConfigError(f"teaching_overflow: {overflow!r} is not possible; write penalize or truncate")
    visible, state = _visible(f"{tags.thought_open}{raw}" if thought_opened else raw, tags)
    if state is not TeachingState.ok:
        return Teaching(text="", state=state, tokens=0, written_tokens=0)
    written = count_tokens(visible)
    if written <= max_tokens:
        return Teaching(text=visible, state=state, tokens=written, written_tokens=written)
    if overflow == "penalize":
        return Teaching(text="", state=TeachingState.overlong, tokens=0, written_tokens=written)
    text = _beginning(visible, count_tokens, max_tokens)
    if is_blank(text):
        # Not even one character fits.
        return Teaching(text="", state=TeachingState.overlong, tokens=0, written_tokens=written)
    return Teaching(text=text, state=state, tokens=count_tokens(text), written_tokens=written)


def is_blank(text: str) -> bool:
    """Whether nothing in a text can be seen: blanks, and marks without width such as U+200B."""
    return all(letter.isspace() or unicodedata.category(letter) in ("Cc", "Cf") for letter in text)


def outline_of(raw: str, tags: TeachingTags, *, thought_opened: bool = False) -> str:
    """A student's probe without its chain of thought, if it writes one; empty where that was cut off.

    The outline itself may be cut off, which is usual. `thought_opened` is that of `extract_teaching`.
    """
    raw = f"{tags.thought_open}{raw}" if thought_opened else raw
    rest = raw[_behind(raw, tags.thought_close) :]
    return "" if tags.thought_open in rest else rest.strip()


def _visible(raw: str, tags: TeachingTags) -> tuple[str, TeachingState]:
    """The visible part, without blanks around it, and what was found."""
    begin = max(_behind(raw, tags.private_close), _behind(raw, tags.thought_close))
    if any(raw.find(mark, begin) >= 0 for mark in (tags.private_open, tags.thought_open)):
        # Whatever follows is private, and so may be what stands before it: it was not meant to end there.
        return "", TeachingState.unclosed
    content: str | None = None
    opened: int | None = None
    for mark in re.finditer(f"{re.escape(tags.visible_open)}|{re.escape(tags.visible_close)}", raw[begin:]):
        if mark[0] == tags.visible_open:
            if opened is not None:
                return "", TeachingState.malformed
            opened = begin + mark.end()
        elif opened is not None:
            content, opened = raw[opened : begin + mark.start()].strip(), None
    if content is None:
        return "", TeachingState.missing if opened is None else TeachingState.unclosed
    return ("", TeachingState.empty) if is_blank(content) else (content, TeachingState.ok)


def _behind(text: str, mark: str) -> int:
    """Where the last such mark ends; 0 if there is none."""
    at = text.rfind(mark)
    return at + len(mark) if at >= 0 else 0


def _beginning(text: str, count_tokens: Callable[[str], int], most: int) -> str:
    """The longest beginning of a text that has at most so many tokens, without blanks at its end."""
    low, high = 0, len(text)
    while low < high - 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count_tokens(text[:middle].rstrip()) <= most else (low, middle)
    return text[:low].rstrip()
