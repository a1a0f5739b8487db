"""Exact values of arithmetic that stands in a text: a parser of its own, over fractions, without `eval`.

One decision: what cannot be read for certain has no value (None), and bounds on length, depth and size of numbers keep
hostile texts cheap.

    >>> value_of(tokens_of("3 * (4 + 1)"))
    Fraction(15, 1)
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

LONGEST = 64
"""Tokens of an expression."""
_LONGEST_NUMBER = 24
"""Digits of a number."""
_LARGEST_POWER = 16
_LARGEST_BASE = 10**9

_TOKEN = re.compile(
    r"(?P<number>(?<![\w.])(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d+)(?:\.\d+)?|(?<![\w.])\.\d+)"
    r"|(?P<frac>\\[dt]?frac)"
    r"|(?P<unit>\\text\{[^{}]{0,40}\}|\\mathrm\{[^{}]{0,40}\})"
    r"|(?P<op>\\times|\\cdot|\\div|\\%|\*\*|[-+*/^()\[\]{}%\u2212\u00d7\u00f7\u00b7])"
    r"|(?P<relation>\\leq?|\\geq?|\\neq?|\\approx|[<>!:]=|==|[=<>\u2264\u2265\u2260\u2248])"
    r"|(?P<skip>\\left|\\right|\\[,;! ]|\\?\$|\u20ac|\u00a3|[ \t\u00a0]+)"
    r"|(?P<word>[^\W\d_]+)"
    r"|(?P<other>\\[a-zA-Z]+|[^ \t])",
    re.DOTALL,
)
_OPERATORS = {
    "\\times": "*",
    "\\cdot": "*",
    "\\div": "/",
    "\\%": "%",
    "**": "^",
    "\u2212": "-",
    "\u00d7": "*",
    "\u00f7": "/",
    "\u00b7": "*",
    "[": "(",
    "]": ")",
    "{": "(",
    "}": ")",
}


@dataclass(frozen=True)
class Token:
    """A piece of an expression and its place in the text."""

    kind: str
    """number, frac, unit, op, relation, word or other."""
    text: str
    """Operators are spelled in one way."""
    start: int
    """First letter."""
    end: int
    """Behind the last."""
    spaced: bool
    """Whether a blank stands before it."""


def tokens_of(text: str) -> list[Token]:
    """All tokens of a text; blanks and signs of money are left out."""
    found: list[Token] = []
    behind = -1
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "other"
        if kind == "skip":
            continue
        said = match[0]
        if kind == "number" and len(said) > _LONGEST_NUMBER:
            kind = "other"
        found.append(Token(kind, _OPERATORS.get(said, said), match.start(), match.end(), match.start() != behind))
        behind = match.end()
    return [_times(found, place) for place in range(len(found))]


def _times(tokens: Sequence[Token], place: int) -> Token:
    """In "6 x 4": a lone x between two numbers is a sign."""
    token = tokens[place]
    around = [*tokens[place - 1 : place], *tokens[place + 1 : place + 2]]
    if token.text not in ("x", "X") or len(around) != 2:
        return token
    lone = token.spaced and around[1].spaced
    if lone and around[0].kind in ("number", "word", "unit") and around[1].kind == "number":
        return Token("op", "*", token.start, token.end, token.spaced)
    return token


def value_of(tokens: Sequence[Token], names: Mapping[str, Fraction] | None = None) -> Fraction | None:
    """The exact value; None for what is no complete expression, has an unknown name, or grows too large.

    Args:
        tokens: of `tokens_of`.
        names: values of variables of one letter.
    """
    if not tokens or len(tokens) > LONGEST:
        return None
    parser = _Parser(tokens, names or {})
    try:
        value = parser.sum()
    except (_NotReadError, ZeroDivisionError):
        return None
    return value if parser.at == len(tokens) else None


class _NotReadError(Exception):
    """The tokens are no expression."""


class _Parser:
    """Recursive descent; its depth is bounded by the number of tokens."""

    def __init__(self, tokens: Sequence[Token], names: Mapping[str, Fraction]) -> None:
        self.tokens, self.names, self.at = tokens, names, 0

    def sum(self) -> Fraction:
        value = self.product()
        while self._next("+", "-"):
            sign = self._take().text
            other = self.product()
            value = value + other if sign == "+" else value - other
        return value

    def product(self) -> Fraction:
        value = self.signed()
        while True:
            if self._next("*", "/"):
                sign = self._take().text
                other = self.signed()
                value = value * other if sign == "*" else value / other
            elif self._of():
                self._take()
                value = value * self.signed()
            elif self._glued():
                value = value * self.power()
            else:
                return value

    def signed(self) -> Fraction:
        if self._next("-", "+"):
            return -self.signed() if self._take().text == "-" else self.signed()
        return self.power()

    def power(self) -> Fraction:
        base = self.atom()
        if self._next("%"):
            self._take()
            base = base / 100
        if not self._next("^"):
            return base
        self._take()
        exponent = self.signed()
        if exponent.denominator != 1 or abs(exponent) > _LARGEST_POWER:
            raise _NotReadError
        if max(abs(base.numerator), base.denominator) > _LARGEST_BASE:
            raise _NotReadError
        return base ** int(exponent)

    def atom(self) -> Fraction:
        token = self._take()
        if token.kind == "number":
            return Fraction(token.text.replace(",", ""))
        if token.kind == "frac":
            return self._group() / self._group()
        if token.text == "(":
            self.at -= 1
            return self._group()
        if token.kind == "word" and token.text in self.names:
            return self.names[token.text]
        raise _NotReadError

    def _group(self) -> Fraction:
        if self._take().text != "(":
            raise _NotReadError
        value = self.sum()
        if self._take().text != ")":
            raise _NotReadError
        return value

    def _next(self, *operators: str) -> bool:
        if self.at >= len(self.tokens):
            return False
        token = self.tokens[self.at]
        return token.kind == "op" and token.text in operators

    def _of(self) -> bool:
        """In "20% of 50", "1/3 of 18": the word means a product behind a share."""
        if not 0 < self.at < len(self.tokens) - 1 or self.tokens[self.at].text != "of":
            return False
        before = self.tokens[self.at - 1]
        return before.text in ("%", ")") or (self.at >= 2 and self.tokens[self.at - 2].text == "/")

    def _glued(self) -> bool:
        """In "2x", "3(4 + 1)": a product without a sign, written without a blank."""
        if not 0 < self.at < len(self.tokens):
            return False
        token, before = self.tokens[self.at], self.tokens[self.at - 1]
        if token.spaced or not (token.text == "(" or token.kind == "word"):
            return False
        return before.kind in ("number", "word") or before.text == ")"

    def _take(self) -> Token:
        if self.at >= len(self.tokens):
            raise _NotReadError
        self.at += 1
        return self.tokens[self.at - 1]
