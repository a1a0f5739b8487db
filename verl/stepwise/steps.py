"""Splits a text into steps: the one splitter for data, training, scoring and search (docs/reasoning.md).

One decision: the first mark of steps that a text has decides for all of it. In this order: a tag, heads ("Step 2:",
"2."), blank lines, lines, sentences. A text that numbers its steps is not cut at the blank lines within them.

    >>> [step.text for step in split_steps("Step 1: 3 + 4 = 7.\\nStep 2: 7 * 2 = 14.")]
    ['Step 1: 3 + 4 = 7.\\n', 'Step 2: 7 * 2 = 14.']

The steps, joined, are the text, and blanks belong to the step before them. Formulas, code and tables are never cut, but
by a tag. Time is linear in the text's length.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from verl.stepwise.lexicon import kind_of
from verl.stepwise.protected import protected_spans
from verl.stepwise.sentences import sentence_starts
from verl.stepwise.step import Step

MIN_STEP_WORDS = 3
"""Words and signs below which a piece is no step of its own."""
MAX_STEP_WORDS = 200
"""Words and signs above which a step is cut at its sentences."""

_WORD = re.compile(r"\w++|[=<>+*/^\u2264\u2265\u2260\u2248\u00d7\u00f7\u00b7-]++")
_STEP_HEAD = re.compile(
    r"(?:^[ \t]{0,3}(?:[#>*-]{1,6}[ \t]{0,2})?(?:\*\*|__)?|(?<=[.!?:;]\s)(?:\*\*)?)"
    r"(?:step|Step|STEP)[ \t]{1,2}\d{1,3}(?!\w)"
    r"(?:[ \t]{0,2}(?:\*\*)?[ \t]{0,2}[:.)\]\u2014\u2013-]|[ \t]{0,2}(?:\*\*)?[ \t]{0,9}$)",
    re.MULTILINE,
)
_NUMBER_HEAD = re.compile(r"^[ \t]{0,3}(?:#{1,6}[ \t]{1,2})?(?:\*\*)?\(?(?P<number>\d{1,3})[.)](?=[ \t])", re.MULTILINE)
_BLANKS = re.compile(r"(?<!\s)\s++(?=\S)")
_ANY_BLANKS = re.compile(r"\s*+")
_OPEN_TAG = re.compile(r"<(?![/|])[^<>]+>")
_LEADS_IN = (":", ",")
"""At the end of a piece: what it speaks of follows."""


def split_steps(
    text: str,
    *,
    min_step_words: int = MIN_STEP_WORDS,
    max_step_words: int = MAX_STEP_WORDS,
    step_tag: str | None = None,
) -> tuple[Step, ...]:
    """The steps of a text (docs/reasoning.md); none for "", one for a text of blanks.

    Args:
        text: a chain of thought, or any solution.
        min_step_words: a piece with fewer words and signs joins its neighbour.
        max_step_words: a step with more is cut at its ends of sentences and lines, if it has any. It may hold up to
            2 * `min_step_words` more where a short piece had to go somewhere.
        step_tag: a text that marks steps. `<step>`, or any tag with which the text begins, opens a step and stands
            first in it; any other ends one and stands last. A text without the tag is split as if there were none.

    Raises:
        ValueError: the bounds are not 1 <= min <= max, or the tag is blank.
    """
    if not 1 <= min_step_words <= max_step_words:
        raise ValueError(
            f"min_step_words={min_step_words}, max_step_words={max_step_words}: write 1 <= min_step_words <= max"
        )
    if step_tag is not None and not step_tag:
        raise ValueError("step_tag='' marks nothing; write the text that marks a step, or None")
    if not text:
        return ()
    whole = _Whole(text, step_tag)
    cuts = whole.marked()
    cuts = _cut_long(whole, cuts, min_step_words, max_step_words)
    cuts = _join_short(whole, cuts, min_step_words, max_step_words)
    edges = [0, *cuts, len(text)]
    return tuple(
        Step(index=i, text=text[start:end], char_start=start, char_end=end, kind=kind_of(text[start:end]))
        for i, (start, end) in enumerate(pairwise(edges))
    )


class _Whole:
    """A text, where it must not be cut, and where its words stand."""

    def __init__(self, text: str, tag: str | None) -> None:
        self.text = text
        self.tag = tag if tag and tag in text else None
        self.spans = protected_spans(text)
        self._starts = [start for start, _ in self.spans]
        tags = _places(text, self.tag) if self.tag else []
        self._tags = [(at, at + len(self.tag or "")) for at in tags]
        words = (word.start() for word in _WORD.finditer(text))
        self._words = list(_outside(words, self._tags))

    def words(self, start: int, end: int) -> int:
        """Words and signs that begin in a part of the text; the tag is none."""
        return bisect_right(self._words, end - 1) - bisect_right(self._words, start - 1)

    def may_cut(self, at: int) -> bool:
        """Whether a step may begin there: behind something, and in no part that is one piece."""
        i = bisect_right(self._starts, at - 1) - 1
        return i < 0 or at >= self.spans[i][1]

    def opens(self, at: int) -> bool:
        """Whether a formula, a table or code begins there."""
        i = bisect_right(self._starts, at) - 1
        return i >= 0 and self._starts[i] == at

    def marked(self) -> list[int]:
        """Where steps begin by the first mark that the text has; without the beginning of the text."""
        if self.tag:
            return self._cleaned(self._at_tags())
        levels: tuple[Callable[[], Iterable[int]], ...] = (
            self._at_heads,
            lambda: self._behind_lines(2),
            lambda: self._behind_lines(1, running_on=True),
            lambda: sentence_starts(self.text),
        )
        for level in levels:
            cuts = self._cleaned(at for at in level() if self.may_cut(at))
            if cuts:
                return cuts
        return []

    def ends_of_sentences(self) -> list[int]:
        """Where a long step may be cut."""
        found = {*sentence_starts(self.text), *self._behind_lines(1)}
        return self._cleaned(at for at in sorted(found) if self.may_cut(at))

    def _at_tags(self) -> Iterator[int]:
        assert self.tag is not None
        opens = self.text.lstrip().startswith(self.tag) or _OPEN_TAG.fullmatch(self.tag)
        for start, end in self._tags:
            yield start if opens else _behind_blanks(self.text, end)

    def _at_heads(self) -> list[int]:
        heads = [_behind_blanks(self.text, head.start()) for head in _STEP_HEAD.finditer(self.text)]
        heads = [at for at in heads if self.may_cut(at)]
        if len(heads) >= 2:
            return heads
        numbered: list[int] = []
        last = -1
        for head in _NUMBER_HEAD.finditer(self.text):
            at, number = _behind_blanks(self.text, head.start()), int(head["number"])
            if self.may_cut(at) and (number == last + 1 or len(numbered) < 2):
                numbered = numbered if number == last + 1 else []
                numbered.append(at)
                last = number
        return numbered if len(numbered) >= 2 else []

    def _behind_lines(self, breaks: int, *, running_on: bool = False) -> Iterator[int]:
        """Behind at least so many line breaks; `running_on`: not where a sentence goes on in the next line."""
        for blanks in _BLANKS.finditer(self.text):
            last, at = self.text[blanks.start() - 1 : blanks.start()], blanks.end()
            if blanks[0].count("\n") < breaks or (last in _LEADS_IN and self.opens(at)):
                continue
            if not (running_on and self.text[at].islower() and last.isalpha()):
                yield at

    def _cleaned(self, cuts: Iterable[int]) -> list[int]:
        """In order, each once, and none before the first word or sign or at the end."""
        first = _behind_blanks(self.text, 0)
        return sorted({at for at in cuts if first < at < len(self.text)})


def _cut_long(whole: _Whole, cuts: list[int], least: int, most: int) -> list[int]:
    edges = [0, *cuts, len(whole.text)]
    if all(whole.words(start, end) <= most for start, end in pairwise(edges)):
        return cuts
    ends = whole.ends_of_sentences()
    found = list(cuts)
    for start, end in pairwise(edges):
        if whole.words(start, end) <= most:
            continue
        begin = last = start
        inside = ends[bisect_right(ends, start) : bisect_right(ends, end - 1)]
        for at in [*inside, end]:
            if whole.words(begin, at) > most and last > begin and whole.words(begin, last) >= least:
                found.append(last)
                begin = last
            last = at
    return sorted(found)


def _join_short(whole: _Whole, cuts: list[int], least: int, most: int) -> list[int]:
    """Without the cuts before and behind which too little stands.

    What is short joins the step before it if that stays within `most`, and the one behind it if it leads over to that.
    """
    kept: list[int] = []
    begin = 0
    for at, end in pairwise([*cuts, len(whole.text)]):
        # The piece from `begin` to `at` is closed if it is long enough, and what follows is or leads over.
        if whole.words(begin, at) < least:
            continue
        short = whole.words(at, end) < least
        leads = whole.text[at:end].rstrip().endswith(_LEADS_IN) or _is_head(whole, at)
        fits = whole.words(begin, end) <= most
        if short and ((fits and not leads) or end == len(whole.text)):
            continue
        kept.append(at)
        begin = at
    if kept and whole.words(begin, len(whole.text)) < least:
        kept.pop()
    return kept


def _is_head(whole: _Whole, at: int) -> bool:
    return bool(_STEP_HEAD.match(whole.text, at) or whole.text.startswith("#", at))


def _places(text: str, tag: str) -> list[int]:
    places, at = [], text.find(tag)
    while at >= 0:
        places.append(at)
        at = text.find(tag, at + len(tag))
    return places


def _outside(places: Iterable[int], spans: list[tuple[int, int]]) -> Iterator[int]:
    """The places that are in none of the spans; both are in order."""
    i = 0
    for at in places:
        while i < len(spans) and spans[i][1] <= at:
            i += 1
        if i == len(spans) or at < spans[i][0]:
            yield at


def _behind_blanks(text: str, at: int) -> int:
    blanks = _ANY_BLANKS.match(text, at)
    assert blanks is not None
    return blanks.end()
