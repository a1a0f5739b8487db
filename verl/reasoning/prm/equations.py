"""Finds the equations of a text and says of each whether it is true.

One decision: four answers, and `unknown` wherever a reader of good will could take the line for right: units that are
converted, variables that are being solved for, divisions that are rounded to a whole number.

    >>> [(one.status, text[one.start : one.end]) for text in ["So 3 + 4 = 8."] for one in equations(text)]
    [('false', '3 + 4 = 8')]
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from verl.reasoning.prm.expressions import LONGEST, Token, tokens_of, value_of

Status = Literal["true", "rounded", "false", "unknown"]

_PRIMES = (Fraction(7919, 13), Fraction(-104729, 17), Fraction(1299709, 19))
"""Points at which two sides with variables are compared; three that agree on all are equal but for chance."""
_SCALES = {"dozen", "dozens", "hundred", "thousand", "million", "billion", "half", "quarter", "pair", "pairs", "mod"}
_BEFORE = {"and", "so", "or", "then", "that", "but", "because", "since", "thus", "hence", "therefore", ",", ";", "."}
"""Behind these a side begins that is complete."""
_NO_UNITS = _BEFORE | {
    "of",
    "is",
    "are",
    "was",
    "to",
    "in",
    "on",
    "at",
    "for",
    "from",
    "by",
    "if",
    "when",
    "with",
    "has",
}
_HOLDS = {
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
}
_SPELLED = {
    "\\le": "<=",
    "\\leq": "<=",
    "\u2264": "<=",
    "\\ge": ">=",
    "\\geq": ">=",
    "\u2265": ">=",
    "==": "=",
}


@dataclass(frozen=True, kw_only=True)
class Equation:
    """Two neighbouring sides of a relation."""

    start: int
    """Where its left side begins in the text."""
    end: int
    """Behind its right side."""
    left: tuple[int, int]
    """Span of the left side."""
    right: tuple[int, int]
    """Span of the right side."""
    relation: str
    """`=`, `<`, `>`, `<=` or `>=`."""
    status: Status
    """`true`; `rounded`: right to the digits that are written; `false`; or `unknown`."""
    computes: bool
    """Whether something is calculated in it: "3 + 4 = 7", and not "x = 7" or "7 = 7"."""
    left_value: Fraction | None = None
    """Exact, where there are no variables."""
    right_value: Fraction | None = None
    """Exact, where there are no variables."""


@dataclass(frozen=True)
class _Side:
    tokens: list[Token]
    units: frozenset[str]

    @property
    def span(self) -> tuple[int, int]:
        return self.tokens[0].start, self.tokens[-1].end

    @property
    def names(self) -> set[str]:
        return {token.text for token in self.tokens if token.kind == "word" and token.text != "of"}

    def value(self, point: Fraction | None = None) -> Fraction | None:
        names = {} if point is None else {name: point + 31 * ord(name) for name in self.names}
        return value_of(self.tokens, names)


def equations(text: str) -> list[Equation]:
    """All relations between two sides that can be read, in order; a chain a = b = c holds two."""
    tokens = tokens_of(text)
    found = []
    for place, token in enumerate(tokens):
        relation = _SPELLED.get(token.text, token.text)
        if token.kind != "relation" or relation not in ("=", *_HOLDS):
            continue
        left, right = _side_before(tokens, place), _side_behind(tokens, place)
        if left is None or right is None:
            continue
        status = _equal(left, right) if relation == "=" else _ordered(left, right, relation)
        if status == "false" and len(left.tokens) == 1 and not _goes_on(tokens, left):
            status = "unknown"
        pure = not left.names and not right.names
        found.append(
            Equation(
                start=left.span[0],
                end=right.span[1],
                left=left.span,
                right=right.span,
                relation=relation,
                status=status,
                computes=len(left.tokens) > 2 or len(right.tokens) > 2,
                left_value=left.value() if pure else None,
                right_value=right.value() if pure else None,
            )
        )
    return found


def false_equations(text: str) -> list[Equation]:
    """Those that are certainly false."""
    return [one for one in equations(text) if one.status == "false"]


def _side_before(tokens: Sequence[Token], place: int) -> _Side | None:
    """The longest expression that ends there."""
    kept, units = _strip(tokens[max(0, place - LONGEST) : place], from_end=True)
    for first in range(len(kept)):
        # It may not begin within a number, a product or a power: "is 2 3 + 4" begins at 3, "5 * (3 + 4)" at 5.
        side = _Side(kept[first:], units)
        if _readable(side) and not (first and _belongs(kept[first - 1])):
            return side
    return None


def _side_behind(tokens: Sequence[Token], place: int) -> _Side | None:
    """The longest expression that begins there."""
    kept, units = _strip(tokens[place + 1 : place + 1 + LONGEST], from_end=False)
    for last in range(len(kept), 0, -1):
        side = _Side(kept[:last], units)
        if _readable(side) and not (last < len(kept) and _belongs(kept[last])):
            return side
    return None


def _goes_on(tokens: Sequence[Token], side: _Side) -> bool:
    """Whether a side is all that is meant, as a bare number is not that ends a phrase: "a third of 27"."""
    place = bisect_left(tokens, side.span[0], key=lambda token: token.start)
    before = tokens[place - 1] if place else None
    if before is not None and before.kind == "relation":
        return True
    # "5 quarters = 5 * 25" converts.
    return not side.units and (before is None or before.text.lower() in _BEFORE)


def _belongs(token: Token) -> bool:
    """Whether an expression cannot end beside this token: it would be cut in two."""
    return (token.kind == "op" and token.text in "+-*/^%") or token.kind == "frac"


def _readable(side: _Side) -> bool:
    if any(len(name) != 1 for name in side.names):
        return False
    return side.value(_PRIMES[0]) is not None


def _strip(tokens: Sequence[Token], *, from_end: bool) -> tuple[list[Token], frozenset[str]]:
    """What may be a part of an expression, up to the first token that cannot be, and its units."""
    kept: list[Token] = []
    units: set[str] = set()
    whole = list(tokens)
    places = range(len(whole) - 1, -1, -1) if from_end else range(len(whole))
    for place in places:
        token = whole[place]
        if token.kind == "unit":
            units |= {word.lower() for word in token.text[token.text.find("{") + 1 : -1].split()}
        elif token.kind == "word" and _is_unit(whole, place):
            if token.text.lower() in _SCALES:
                break
            units.add(token.text.lower())
        elif token.kind == "op" and token.text == "/" and _per_unit(whole, place):
            continue
        elif token.kind in ("number", "frac", "op") or (token.kind == "word" and _is_name(whole, place)):
            kept.append(token)
        else:
            break
    return (kept[::-1] if from_end else kept), frozenset(units)


def _is_unit(tokens: Sequence[Token], place: int) -> bool:
    """A word of two letters and more right behind a number, or behind the `/` of another unit."""
    token = tokens[place]
    if len(token.text) < 2 or not place or token.text.lower() in _NO_UNITS:
        return False
    before = tokens[place - 1]
    return before.kind == "number" or before.text in (")", "%") or (before.text == "/" and _per_unit(tokens, place - 1))


def _per_unit(tokens: Sequence[Token], place: int) -> bool:
    """The `/` of "pounds/book"."""
    around = [*tokens[place - 1 : place], *tokens[place + 1 : place + 2]]
    return len(around) == 2 and all(token.kind == "word" and len(token.text) > 1 for token in around)


def _is_name(tokens: Sequence[Token], place: int) -> bool:
    """A variable, or the "of" of a share; "a" and "I" that stand alone are words."""
    token = tokens[place]
    if token.text == "of":
        return place > 0 and (tokens[place - 1].text in ("%", ")") or tokens[place - 1].kind == "number")
    if len(token.text) != 1 or not token.text.isascii():
        return False
    alone = token.spaced and (place + 1 == len(tokens) or tokens[place + 1].kind in ("word", "number"))
    return not (token.text in "aI" and alone)


def _equal(left: _Side, right: _Side) -> Status:
    if left.names or right.names:
        return _identity(left, right)
    a, b = left.value(), right.value()
    if a is None or b is None:
        return "unknown"
    if a == b:
        return "true"
    if _rounds(a, b, right) or _rounds(b, a, left):
        return "rounded"
    # "0.2 * 100 = 20%" is said of a share that was made a percentage.
    if a in (100 * b, b / 100) and any(token.text == "%" for token in (*left.tokens, *right.tokens)):
        return "unknown"
    # 3.5 said to be 3 or 4: perhaps what is counted comes in whole pieces.
    if a.denominator != b.denominator and 1 in (a.denominator, b.denominator) and abs(a - b) < 1:
        return "unknown"
    return "unknown" if _converts(left, right) else "false"


def _identity(left: _Side, right: _Side) -> Status:
    """With variables: true if it holds for all their values; else it may be a condition, which is not false."""
    for point in _PRIMES:
        a, b = left.value(point), right.value(point)
        if a is None or b is None or a != b:
            return "unknown"
    return "true"


def _rounds(exact: Fraction, written: Fraction, side: _Side) -> bool:
    """Whether the exact value, rounded to the digits that are written on the other side, is what is written there."""
    numbers = [token.text for token in side.tokens if token.kind == "number"]
    if len(numbers) != 1 or "." not in numbers[0]:
        return False
    digits = len(numbers[0].split(".")[1]) + 2 * any(token.text == "%" for token in side.tokens)
    # One unit of the last digit: cut off is as good as rounded.
    return abs(exact - written) < Fraction(1, 10**digits)


def _converts(left: _Side, right: _Side) -> bool:
    """Whether units differ so that numbers may differ too: "2 hours = 120 minutes"."""
    if left.units == right.units and len(left.units) <= 1:
        return False
    bare = len(left.tokens) == 1 or len(right.tokens) == 1
    if len(left.units) > 1 or len(right.units) > 1:
        return True
    return bool(left.units and right.units and left.units != right.units) and bare


def _ordered(left: _Side, right: _Side, relation: str) -> Status:
    if left.names or right.names or _converts(left, right):
        return "unknown"
    a, b = left.value(), right.value()
    if a is None or b is None:
        return "unknown"
    return "true" if _HOLDS[relation](a, b) else "false"
