"""A chain of thought (CoT) without its final answer, so that a reader who copies the last line learns nothing.

One decision: the answer is looked for clause by clause, in the forms that `answer_forms` knows, and all from the first
clause that states it on is left out. Where that would leave no working at all, the clause is shown up to the statement:
of `14 - 9 = 5` the part `14 - 9` stays. In doubt less is shown. To strip what is left once more changes nothing.
docs/method.md#without-the-final-answer-strip_answer

    >>> stripped = without_answer(span, response_ids, tokenizer, answer="85", question="What is 58 + 27?")
    >>> stripped.cot
    '8 + 7 is 15, carry 1. 5 + 2 + 1 is 8.'
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any

from verl.classmate.answer_forms import AnswerForms, Span
from verl.classmate.cot import CotSpan, first_token_from

_CLAUSE_END = re.compile(
    r"[\n.!?;, \t](?:(?<=\n)\s*+|(?<=[.!?;,])(?=\s)(?<!\b[Ss]o,)(?<!\b[Tt]hus,)(?<!\b[Hh]ence,)(?<!\b[Tt]herefore,)"
    r"(?<!\b[Ff]inally,)|(?<=[0-9][ \t])(?=[A-Za-z]=))"
)
"""A line's end, a mark in front of a space, or the space in front of `b=4` in `a=3 b=4`."""
_LABEL = re.compile(r"^[ \t#*]{0,9}(?:step[ \t])?([0-9]{1,2}|[A-Z])[.):][*]{0,2}[ \t]{1,9}(?=\S)", re.I | re.M)
"""The label of a step, or of a choice, at the start of a line."""

_MARKS = (
    r"(?:[\s:*$\\{(\[\"'`_~#<>-]|\N{EN DASH}|\N{EM DASH}|boxed|fbox|text|mathrm|mathbf|textbf"
    r"|\b(?:about|exactly|indeed|just|now|only|simply|the|then|thus|option|choice|letter)\b)*"
)
_SIGN = r"(?:[=\u2248\u2261\u2192\u21d2]|[-=]>|####|\\(?:approx|equiv|to|implies|Rightarrow|rightarrow|boxed|fbox))"
_NOUN = r"\b(?:answer|result|total|sum|difference|product|quotient|solution)\b"
_VERB = (
    r"\b(?:is|are|was|were|be|equals?|gives?|makes?|gets?|got|leaves?|yields?|becomes?|have|has|had|find|obtain|reach"
    r"|say|think|guess|believe|prefer|choose|pick|select|go(?:ing)?\swith)\b"
)
_CALLED = re.compile(rf"(?:{_SIGN}|{_NOUN}(?:\s(?:is|was|be|of))?|\b(?:equals|gives|makes|get)\b){_MARKS}\Z", re.I)
"""What stands right in front of an answer that is called one, or of a result."""
_LINKED = re.compile(rf"(?:{_VERB}|\b(?:as|at|of|to)\b|[:=\N{{EN DASH}}\N{{EM DASH}}-]\s){_MARKS}\Z", re.I)
"""What links it with the word `answer` further in front."""
_NAMED = re.compile(_NOUN, re.I)
_SAID = re.compile(rf"[\w)}}\]$'][ \t]{{0,3}}(?:{_VERB}|'s\b){_MARKS}\Z", re.I)
"""What says it, or something else, of whatever stands before."""
_CONCLUDED = re.compile(rf"\b(?:so|thus|hence|therefore|finally|ergo)\b,?(?:\s[a-z']{{1,20}}){{0,2}}{_MARKS}\Z", re.I)
_RESULT = re.compile(rf"\s*(?:{_SIGN}|{_VERB}){_MARKS}\Z", re.I)
_VERDICT = re.compile(
    r"[\s)\]*_:.\"'-]{0,6}(?:(?:is|was|seems|looks|must be|would be|has to be)\s)?"
    r"(?:(?!not\b)\w{1,20}\s){0,2}(?:correct|right|best|true|(?<=the )answer|fits|works)\b",
    re.I,
)
"""What stands behind a choice that is found right."""
_OPENS = re.compile(r"[\s$)}*_]*(?:[=:]|(?:is|are|because|since|as|for|from|it|must|will)\b)", re.I)
_OPERAND = re.compile(
    r"[\s$)}]*(?:[+*/^\u00d7\u00f7\u00b7](?!\*)|[-\N{MINUS SIGN}\N{EN DASH}]\s?[0-9(]|\\(?:cdot|times|div)"
    r"|(?:plus|minus|times|divided|less|more)\b)"
)
"""What stands behind a number with which something is worked out."""
_NEAR, _FAR = 60, 200
"""Most characters in front of an answer in which these are looked for."""
_NEXT_WORD = re.compile(r"\W{0,4}(\w+)")
_FEWEST_WORDS = 4
"""Of a clause with working, where the answer is words."""


@dataclass(frozen=True, kw_only=True)
class _Clause:
    """One clause of a text, as far as the answer is concerned."""

    start: int
    """Its first character."""
    end: int
    """One past its last character."""
    places: list[Span]
    """Where the answer stands in it."""
    numbers: list[Span]
    """All numbers in it, but for labels."""


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
    """The first character that is left out, so that the answer is stated no more; None if it is not stated.

    That is the start of the first clause that states it. Clauses in front of that one go too if the answer stands in
    them, and no working between. If no number would be left then, the clause that states it stays up to the statement,
    provided that the answer stands nowhere before, and at least two numbers do.

    Args:
        text: the CoT.
        answer: a number, with or without a unit, LaTeX, the letter of a choice, or words.
        question: what was asked.
    """
    forms = AnswerForms(answer)
    places = forms.places(text)
    if not places:
        return None
    clauses = _clauses(text, places, forms.numbers(text))
    reading = _Reading(text, forms, question)
    cut = next((i for i, clause in enumerate(clauses) if reading.states(clause)), len(clauses))
    for i in reversed(range(cut)):
        if clauses[i].places and not reading.repeats(clauses[i]):
            cut = i
        elif reading.works(clauses[i]):
            break
    if cut == len(clauses):
        return None
    if any(clause.numbers or clause.places for clause in islice(clauses, cut)):
        return clauses[cut].start
    return _statement_start(text, clauses[cut])


def _clauses(text: str, places: list[Span], numbers: list[Span]) -> list[_Clause]:
    """All clauses of a text, in order; labels are none of its numbers."""
    labels = list(_LABEL.finditer(text))
    counted, marks = _counted(text, labels), {label.end(1) + 1 for label in labels}
    places = [place for place in places if place[0] not in counted]
    numbers = [number for number in numbers if number[0] not in counted]
    bounds = [0]
    for match in _CLAUSE_END.finditer(text):
        before = bisect_left(places, (match.end(), 0)) - 1
        # The comma in an answer such as (3, 4) ends no clause, nor does the point behind a label.
        if match.end() not in marks and (before < 0 or places[before][1] <= match.start()):
            bounds.append(match.end())
    bounds.append(len(text))
    place_bounds = [bisect_left(places, (bound, 0)) for bound in bounds]
    number_bounds = [bisect_left(numbers, (bound, 0)) for bound in bounds]
    return [
        _Clause(start=start, end=end, places=places[slice(*its_places)], numbers=numbers[slice(*its_numbers)])
        for (start, end), its_places, its_numbers in zip(
            pairwise(bounds), pairwise(place_bounds), pairwise(number_bounds), strict=True
        )
    ]


def _counted(text: str, labels: Sequence[re.Match[str]]) -> set[int]:
    """Where labels stand that count steps or choices, 1, 2, 3 or A, B, C; one that is found right is none."""
    found, last = set(), {"1": 0, "A": 0}
    for label in labels:
        first, number = ("1", int(label[1])) if label[1].isdigit() else ("A", ord(label[1].upper()) - ord("A") + 1)
        if number in (1, last[first] + 1):
            last[first] = number
            if first == "1" or not _VERDICT.match(text, label.end(1)):
                found.add(label.start(1))
    return found


def _statement_start(text: str, clause: _Clause) -> int:
    """Where the result of a clause's own working begins, its sign included; the clause's start if it has none."""
    at = clause.places[0][0]
    near = max(clause.start, at - _NEAR)
    result = _RESULT.search(text[near:at])
    if result is None:
        return clause.start
    cut = near + result.start()
    return cut if sum(end <= cut for _, end in clause.numbers) > 1 else clause.start


class _Reading:
    """What the clauses of one text say.

    Args:
        text: the CoT.
        forms: the answer's.
        question: what was asked.
    """

    def __init__(self, text: str, forms: AnswerForms, question: str) -> None:
        self._text = text
        self._in_words = forms.in_words
        places = forms.places(question)
        self._given = bool(places)
        following = (_NEXT_WORD.match(question, end) for _, end in places)
        self._next_words = {word[1].lower() for word in following if word}
        self._facts = {question[start:end] for start, end in forms.numbers(question)}

    def states(self, clause: _Clause) -> bool:
        """Whether a clause states the answer.

        It does if it calls it one, or a result. If the question does not hold the answer, then also if it ends in it,
        opens with it, or says it of something; if it does, only if it concludes it, finds it right or works it out.
        """
        if any(self._is_called(clause, place) for place in clause.places):
            return True
        if not clause.places:
            return False
        if not self._given:
            return self._in_words or self._ends(clause) or any(self._is_told(clause, place) for place in clause.places)
        return self._is_bare(clause) or any(self._is_found(clause, place) for place in clause.places)

    def works(self, clause: _Clause) -> bool:
        """Whether there may be working in a clause: some numbers, one that the question gives, or a few words."""
        if self._in_words and len(re.findall(r"\w+", self._text[clause.start : clause.end])) >= _FEWEST_WORDS:
            return True
        places = {*clause.places}
        numbers = [self._text[start:end] for start, end in clause.numbers if (start, end) not in places]
        if len(numbers) == 1:
            return numbers[0] in self._facts or bool(re.search(r"[=+/^\u00d7]", self._text[clause.start : clause.end]))
        return bool(numbers)

    def repeats(self, clause: _Clause) -> bool:
        """Whether a clause that holds the answer, and states nothing, may hold it because the question does."""
        if not self._given or not self.works(clause):
            return False
        if self._in_words:
            return all(self._is_quoted(clause, place) for place in clause.places)
        return not self._ends(clause) and not any(self._is_told(clause, place) for place in clause.places)

    def _is_quoted(self, clause: _Clause, place: Span) -> bool:
        """Whether the same word follows an answer in words as in the question, and it does not open its clause."""
        next_word = _NEXT_WORD.match(self._text, place[1], clause.end)
        opens = not any(map(str.isalnum, self._before(clause, place)))
        return not opens and next_word is not None and next_word[1].lower() in self._next_words

    def _before(self, clause: _Clause, place: Span, most: int = _NEAR) -> str:
        return self._text[max(clause.start, place[0] - most) : place[0]]

    def _is_called(self, clause: _Clause, place: Span) -> bool:
        before = self._before(clause, place)
        if _CALLED.search(before):
            return True
        if not _LINKED.search(before):
            return False
        # No other number stands between it and the word `answer`.
        number = bisect_left(clause.numbers, place) - 1
        start = clause.numbers[number][1] if number >= 0 and not self._in_words else clause.start
        return bool(_NAMED.search(self._text[max(start, place[0] - _FAR) : place[0]]))

    def _ends(self, clause: _Clause) -> bool:
        """Whether the answer is the last number of a clause."""
        return not clause.numbers or clause.places[-1][1] >= clause.numbers[-1][1]

    def _is_told(self, clause: _Clause, place: Span) -> bool:
        if _OPERAND.match(self._text, place[1], clause.end):
            return False
        opens = not any(map(str.isalnum, self._before(clause, place))) and place[0] - clause.start < _NEAR
        if opens and _OPENS.match(self._text, place[1], clause.end):
            return True
        return bool(_SAID.search(self._before(clause, place)))

    def _is_bare(self, clause: _Clause) -> bool:
        """Whether nothing but the answer stands in a clause."""
        start, end = clause.places[0]
        return not any(map(str.isalnum, self._text[clause.start : start] + self._text[end : clause.end]))

    def _is_found(self, clause: _Clause, place: Span) -> bool:
        before = self._before(clause, place)
        if self._in_words and (_SAID.search(before) or _VERDICT.match(self._text, place[1], clause.end)):
            return True
        if _OPERAND.match(self._text, place[1], clause.end):
            return False
        if _CONCLUDED.search(before):
            return True
        return bisect_left(clause.numbers, place) > 1 and bool(_SAID.search(before))
