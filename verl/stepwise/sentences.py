"""Where a sentence may end: behind its mark, but not behind an abbreviation, in a number, or in `etc.`.

One decision: an abbreviation never ends a sentence. A sentence too few costs less than half a sentence taken for one.

    >>> sentence_starts("By Eq. 3 it is 1.5. So we stop.")
    [20]
"""

import re

_END = re.compile(
    r"(?P<run>(?<![.!?])[.!?]++)[\"')\]}*_\u00bb\u201d\u2019]*+\s++"
    # Chinese and Japanese: no blank follows.
    r"|[\u3002\uff01\uff1f]++[\"'\u300d\u300f\u201d\u2019\uff09]*+\s*+"
)
_BEFORE = re.compile(r"[\w.'-]*\Z")
_LONGEST_WORD = 24
"""Characters before a full stop that are looked at."""
_ABBREVIATION = re.compile(
    "mrs?|ms|dr|prof|st|[js]r|vs|cf|etc|approx|resp|al|inc|ltd|co|figs?|eqn?s?|sec|thm|def|lem|prop|cor|ch|pp|viz|ca|max"
    "|min|dept|est|ed|vol"
)
_BEFORE_NUMBERS = frozenset({"no", "nr", "p", "par", "ex", "q", "art"})
"""Abbreviations if a number follows, words if not."""
_DOTTED = re.compile(r"(?:[a-z]\.)+[a-z]", re.IGNORECASE)
"""e.g, i.e, U.S, w.r.t: what is before the last full stop of such."""


def sentence_starts(text: str) -> list[int]:
    """Where sentences but the first begin, in one pass."""
    starts: list[int] = []
    begin = 0
    for end in _END.finditer(text):
        here = end.end()
        if here >= len(text) or (end["run"] is not None and not _ends(text, begin, end)):
            continue
        starts.append(here)
        begin = here
    return starts


def _ends(text: str, begin: int, end: re.Match[str]) -> bool:
    run = end["run"]
    if set(run) != {"."}:
        return True
    follows = text[end.end()]
    if len(run) > 1:
        return not follows.islower()
    found = _BEFORE.search(text[max(begin, end.start() - _LONGEST_WORD) : end.start()])
    word = (found[0] if found else "").lower()
    if _ABBREVIATION.fullmatch(word) or _DOTTED.fullmatch(word):
        return False
    if word in _BEFORE_NUMBERS and follows.isdigit():
        return False
    # The number of an item, not a result: nothing stands before it in its line or sentence.
    window = text[max(begin, end.start() - _LONGEST_WORD) : end.start()]
    line = window.rpartition("\n")[2]
    whole_line = len(line) < len(window) or len(window) < _LONGEST_WORD
    return not (word.isdigit() and len(word) <= 3 and whole_line and line.strip("(*# \t\r") == word)
