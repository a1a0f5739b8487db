"""A chain of thought (CoT) without its final answer, so that a reader who copies the last line learns nothing.

One decision: the answer is looked for as a number or as words, clause by clause, and all from the first clause that
states it on is left out. Where a clause is in doubt, less is shown.
docs/method.md#without-the-final-answer-strip_answer

    >>> stripped = without_answer(span, response_ids, tokenizer, answer="85", question="What is 58 + 27?")
    >>> stripped.cot
    '8 + 7 is 15, carry 1. 5 + 2 + 1 is 8.'
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise
from typing import Any

from verl.classmate.cot import CotSpan, first_token_from

_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.])(?:(?<![)}\]])[-+\N{MINUS SIGN}])?"
    r"(?:(?:[0-9]{1,3}(?:(?:,|\{,\})[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)(?![0-9])"
)
_UNIT = re.compile(
    r"\A\s*\$?[A-Za-z]\s*=|\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{[^{}]*\}"
    r"|\\(?:circ|degree|left|right|quad)(?![A-Za-z])"
    r"|(?<![A-Za-z\\])[^\W\d_]{2,}|(?<=\s)[A-Za-z](?![A-Za-z])|\\(?![A-Za-z])|[\s$%{}()\[\].,:;!*^\u20ac\u00a3\u00b0]"
)
"""What stands around a number in an answer and is no part of its value: `x =`, units, currencies, marks."""
_CLAUSE_END = re.compile(r"\n|[.!?;,](?=\s)")
_CALLED = re.compile(
    r"(?:[=\u2248\u2261\u2192\u21d2]|[-=]>|####"
    r"|\\(?:approx|equiv|to|implies|Rightarrow|rightarrow|boxed|fbox)"
    r"|\b(?:answer|result|total|solution|equals|gives|makes|get)\b(?:\s+(?:is|was|be))?)"
    r"(?:[\s:*$\\{(\[\"'`]|text|mathrm|mathbf|textbf)*\Z",
    re.IGNORECASE,
)
"""What stands in front of an answer that is called one, or of a result."""
_BEFORE = 60
"""Most characters in front of an answer in which that is looked for."""
_LETTER = r"(?<!\w)({0})(?![\w'])(?!\s+[a-z])|(?i:\b(?:answer|option|choice|letter)\s+(?:is\s+)?\(?)({0})(?!\w)"
"""The letter of a choice; A and I begin sentences too."""


@dataclass(frozen=True, kw_only=True)
class _Clause:
    """One clause of a text, as far as the answer is concerned."""

    start: int
    """Its first character."""
    holds: bool
    """Whether the answer stands in it."""
    ends: bool
    """Whether the answer is the last number in it; if it is no number, whether it stands in it."""
    called: bool
    """Whether it is called the answer, or a result, there."""
    works: bool
    """Whether there may be working in it: a number, or where the answer is no number, any word."""


def without_answer(
    span: CotSpan, response_ids: Sequence[int], tokenizer: Any, *, answer: str | None, question: str
) -> CotSpan:
    """The span with a CoT that ends before its final answer; the same span where the CoT does not state it.

    What is left is a prefix of the CoT's characters, and every token that holds one of them.

    Args:
        span: a located CoT.
        response_ids: the (R,) tokens in which it was located.
        tokenizer: the tokenizer that decodes them.
        answer: the policy's own final answer; None: it gave none.
        question: what it was asked.
    """
    start = answer_start(span.cot, answer, question) if span.cot and answer else None
    if span.cot is None or start is None:
        return span
    kept = len(span.cot[:start].rstrip())
    end = first_token_from(span, response_ids, tokenizer, span.cot_char + kept) if kept else span.start
    return replace(span, cot=span.cot[:kept], end=min(max(end, span.start), span.end))


def answer_start(text: str, answer: str, question: str = "") -> int | None:
    """The first character of the first clause that states the answer; None if none does.

    A clause states the answer if it is called the answer or a result there, or if it is the last number in the clause.
    Where the question holds the answer too, such a last number may only repeat what is given, and counts at the end of
    the text alone, with no other working behind it. There the answer counts wherever it stands in its last clause.

    Args:
        text: the CoT.
        answer: a number, with or without a unit, or words.
        question: what was asked.
    """
    wanted = _Wanted(answer)
    clauses, given = wanted.clauses(text), bool(wanted.places(question))
    stating = [i for i, one in enumerate(clauses) if one.called or (one.ends and not given)][:1]
    closing: int | None = None
    for i in reversed(range(len(clauses))):
        if clauses[i].ends or (closing is None and clauses[i].holds):
            closing = i
        elif clauses[i].works and not (closing is None and wanted.in_words):
            break
    stating += [] if closing is None else [closing]
    return clauses[min(stating)].start if stating else None


class _Wanted:
    """An answer that is looked for: by its value if it is a number, else by its letters."""

    def __init__(self, answer: str) -> None:
        numbers = _NUMBER.findall(answer)
        bare = len(numbers) == 1 and not _UNIT.sub("", _NUMBER.sub("", answer))
        self._value = _value(numbers[0]) if bare else None
        self._words = None if bare else _pattern(answer)

    @property
    def in_words(self) -> bool:
        """Whether it is no number."""
        return self._value is None

    def places(self, text: str) -> list[tuple[int, int]]:
        """First character, and one past the last, wherever it stands in a text."""
        if self._value is not None:
            return [match.span() for match in _NUMBER.finditer(text) if _value(match[0]) == self._value]
        return [] if self._words is None else [match.span(match.lastindex or 0) for match in self._words.finditer(text)]

    def clauses(self, text: str) -> list[_Clause]:
        """All clauses of a text, in order."""
        places, numbers = self.places(text), [match.span() for match in _NUMBER.finditer(text)]
        # The comma in an answer such as (3, 4) ends no clause.
        inside = {at for first, end in places for at in range(first + 1, end)}
        ends = [match.end() for match in _CLAUSE_END.finditer(text) if match.end() not in inside]
        bounds = [0, *ends, len(text)]
        found: dict[int, list[tuple[int, int]]] = defaultdict(list)
        last_number: dict[int, tuple[int, int]] = {}
        for place in places:
            found[bisect_right(bounds, place[0]) - 1].append(place)
        for place in numbers:
            last_number[bisect_right(bounds, place[0]) - 1] = place
        clauses = []
        for i, (start, end) in enumerate(pairwise(bounds)):
            here, last = found[i], last_number.get(i)
            clauses.append(
                _Clause(
                    start=start,
                    holds=bool(here),
                    ends=bool(here) and (self.in_words or here[-1] == last),
                    called=any(_CALLED.search(text[max(start, at - _BEFORE) : at]) for at, _ in here),
                    works=last is not None or (self.in_words and any(map(str.isalnum, text[start:end]))),
                )
            )
        return clauses


def _value(number: str) -> Decimal:
    return Decimal(number.replace("{,}", "").replace(",", "").replace("\N{MINUS SIGN}", "-"))


def _pattern(answer: str) -> re.Pattern[str] | None:
    """Finds an answer in words, whatever the spaces in it; None if there is nothing to look for."""
    answer = answer.strip(" \t\n$.")
    if re.fullmatch(r"\(?[A-Z]\)?", answer):
        return re.compile(_LETTER.format(answer.strip("()")))
    pieces = re.findall(r"\\[a-zA-Z]+|\w+|[^\w\s]", answer)
    if not pieces:
        return None
    parts = [r"\\[dt]?frac" if piece in ("\\frac", "\\dfrac", "\\tfrac") else re.escape(piece) for piece in pieces]
    before = r"(?<![\w.])" if pieces[0][0].isalnum() else ""
    after = r"(?!\w|\.[0-9])" if pieces[-1][-1].isalnum() else ""
    return re.compile(before + r"\s*".join(parts) + after, re.IGNORECASE)
