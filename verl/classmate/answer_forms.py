r"""Where an answer stands in a text, in whichever of its usual forms.

One decision: an answer that has a value is looked for by its value (`1,250` is `$1250.00`, `1/2` is `\frac{1}{2}` and
`0.5`), any other by its letters, as whole words and whatever the brackets of LaTeX around them. sympy's parsers would
take milliseconds for each number of a thought, and letters such as i for numbers; a few patterns take microseconds.

    >>> AnswerForms("\\frac{1}{2}").places("Half of it is 0.5 of it.")
    [(14, 17)]

All patterns are linear in the text's length: no two repetitions in a row can take the same characters.
"""

import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from fractions import Fraction

Span = tuple[int, int]
"""First character, and one past the last."""

_BEFORE = r"(?<![A-Za-z0-9])(?<![A-Za-z0-9]_)(?:(?<!\.)|(?<=\.\.))"
"""In front of a number: no other number or name; three dots or a line of markdown may be."""
_SIGN = r"(?:(?<![)}\]])(?<![0-9)}\]][ \t])[-+\N{MINUS SIGN}])?"
"""Not the sign of a difference."""
_DIGITS = (
    r"(?:(?:[0-9]{1,3}(?:(?:,|\{,\}|\\,|\\!,)[0-9]{3}(?![0-9]))+|[0-9]+)(?:\.[0-9]+)?|(?<!\.)\.[0-9]+)"
    r"(?:[eE][-+]?[0-9]{1,2}(?!\w))?(?![0-9])"
)
_NUMBER = re.compile(_BEFORE + _SIGN + _DIGITS)
_FRACTION = re.compile(
    _BEFORE + rf"(?P<sign>{_SIGN})(?P<whole>[0-9]{{1,9}}(?: |(?=\\)))?"
    r"(?:\\[dt]?frac\s?(?:\{\s?(?P<above>[0-9]{1,9})\s?\}|(?P<top>[0-9]))"
    r"\s?(?:\{\s?(?P<below>[0-9]{1,9})\s?\}|(?P<foot>[0-9]))"
    r"|(?P<left>[0-9]{1,9})\s?/\s?(?P<right>[0-9]{1,9})(?![0-9]|\.[0-9]))"
)
_POWER = re.compile(r"([0-9]{1,4})\s*\^\s*(?:\{\s*)?([0-9]{1,2})\s*\}?")
_UNIT = re.compile(
    r"\A\s*\$?[A-Za-z]\s*=|\\(?:circ|degree|quad)(?![A-Za-z])"
    r"|(?<![A-Za-z\\])(?!(?:sqrt|log|ln|sin|cos|tan|exp|pi|dozen|hundred|thousand|million|billion|half)\b)[^\W\d_]{2,}"
    r"|(?<=\s)[A-Za-z](?![A-Za-z])|\\(?![A-Za-z])|[\s$%{}()\[\].,:;!*_`\"'^\u20ac\u00a3\u00b0]"
)
"""What stands around a number in an answer and is no part of its value: `x =`, units, currencies, marks."""
_FRAME = re.compile(
    r"####\s*([^\n]+)|\\(?:boxed|fbox)\s*\{(.+)\}|\A[^\n]{0,40}\banswer\s*(?:is|:)\s*([^\n]+?)\.?\s*\Z", re.IGNORECASE
)
"""What an answer stands in where the whole output is handed over."""
_WRAP = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mbox|boxed|fbox)\s*\{([^{}]*)\}")
_LAYOUT_MARKS = re.compile(r"\\(?:left|right|displaystyle)(?![A-Za-z])|\\[!;: ]")
_LAYOUT = re.compile(r"\\[,(){}\[\]$%]|[{}$]")
_NESTED_FRACTION = re.compile(r"\\[dt]?frac\s?\{([^{}]*)\}\s?\{([^{}]*)\}")
_NESTED_ROOT = re.compile(r"\\sqrt\s?\{([^{}]*)\}")
_MOST_NESTED = 4
_MOST_DIGITS, _MOST_DECIMALS = 60, 20
"""Of a number whose value is looked at, and of a rounded one."""
_MOST_PIECES = 200
"""Longer answers in words are looked for by their first pieces."""
_PIECE = re.compile(r"\\[a-zA-Z]+|[^\W_]+|[^\w\s]")
_GAP = r"(?:[\s{}$*_\u00b7\u00d7]|\\(?:cdot|times|left|right|text|mathrm|[!,;: ]))*+"
_PASSED_OVER = ("*", "\u00b7", "\u00d7", "\\cdot", "\\times", "\\left", "\\right")
_LOOSE_GAP = _GAP.replace(r"[\s", r"[\s()")
_SPELLINGS = {
    "\\sqrt": r"(?:\\?sqrt|\u221a)",
    "\\frac": r"\\?[dt]?frac",
    "\\pi": r"(?:\\?pi|\u03c0)",
    "\\infty": r"(?:\\infty|infinity|\u221e)",
    "\\le": r"(?:\\leq?|<=|\u2264)",
    "\\leq": r"(?:\\leq?|<=|\u2264)",
    "\\ge": r"(?:\\geq?|>=|\u2265)",
    "\\geq": r"(?:\\geq?|>=|\u2265)",
    "\\pm": r"(?:\\pm|\+/-|\u00b1)",
    "-": r"[-\N{MINUS SIGN}\N{EN DASH}]",
    # "no other" is no answer.
    "no": r"(?-i:NO|No|no(?![ \t]+[a-z]))",
}
_WORD_BEFORE = r"(?<![^\W_])(?<![^\W_]_)(?:(?<!\.)|(?<=\.\.))"
_WORD_AFTER = r"(?![^\W_]|\.[0-9])"
_FULL_WIDTH = {0xFF10 + digit: str(digit) for digit in range(10)}
_LETTER = (
    r"(?<![^\W_])(?<![^\W_]_)({0})(?!_?[^\W_]|'){1}"
    r"|(?i:\b(?:answer|option|choice|letter)\s{{1,9}}(?:is\s{{1,9}})?\(?)({0})(?!\w)"
)
_NO_WORD = r"(?![ \t]+(?!(?:is|seems|fits|looks)\b)[a-z])"
"""Behind A and I, which begin sentences too."""


class AnswerForms:
    """The forms of one answer. Never raises, whatever the answer.

    Args:
        answer: a number, with or without a unit, LaTeX, the letter of a choice, or words.
    """

    def __init__(self, answer: str) -> None:
        bare = _unwrapped(answer)
        self._value = _only_value(bare)
        self._words = _words(bare) if self._value is None or "^" in bare else None
        exact = self._value or Fraction()
        self._decimal = Decimal(exact.numerator) / Decimal(exact.denominator)
        self._endless = _is_endless(exact)

    @property
    def in_words(self) -> bool:
        """Whether it has no value, and is looked for by its letters."""
        return self._value is None

    def places(self, text: str) -> list[tuple[int, int]]:
        """First character, and one past the last, wherever it stands in a text; in order, none inside another."""
        text = _ascii_digits(text)
        words = () if self._words is None else self._words.finditer(text)
        found = [match.span(match.lastindex or 0) for match in words]
        if self._value is not None:
            found += [match.span() for match in _NUMBER.finditer(text) if self._is(match[0])]
            if self._value.denominator > 1:
                found += [match.span() for match in _FRACTION.finditer(text) if _quotient(match) == self._value]
        return sorted(found)

    def numbers(self, text: str) -> list[tuple[int, int]]:
        """As `places`, of every number; a fraction is one number unless the answer is an integer."""
        text = _ascii_digits(text)
        plain = [match.span() for match in _NUMBER.finditer(text)]
        if self._value is None or self._value.denominator == 1:
            return plain
        return list(_outermost(plain, [match.span() for match in _FRACTION.finditer(text)]))

    def _is(self, number: str) -> bool:
        """Whether a number is the answer, or the answer rounded to the decimals that are written."""
        value = _decimal(number)
        if value is None or value == self._decimal:
            return value is not None
        decimals = len(number.partition(".")[2])
        if not self._endless or not 2 <= decimals <= _MOST_DECIMALS or value * self._decimal < 0:
            return False
        # Rounded, or cut off.
        return -0.5 <= (abs(self._decimal) - abs(value)) * 10**decimals < 1


def _ascii_digits(text: str) -> str:
    return text if text.isascii() else text.translate(_FULL_WIDTH)


def _is_endless(value: Fraction) -> bool:
    """Whether its decimals have no end, so that only rounded ones can be written."""
    rest = value.denominator
    for factor in (2, 5):
        while rest % factor == 0:
            rest //= factor
    return rest > 1


def _outermost(plain: list[Span], fractions: list[Span]) -> Iterator[Span]:
    """Both in order, without the numbers that a fraction is made of."""
    end = 0
    for span in sorted(plain + fractions, key=lambda span: (span[0], -span[1])):
        if span[0] >= end:
            yield span
            end = span[1]


def _decimal(number: str) -> Decimal | None:
    """The value of what `_NUMBER` finds; None if it has more digits than anybody writes."""
    if len(number) > _MOST_DIGITS:
        return None
    try:
        return Decimal(number)
    except InvalidOperation:
        return Decimal(re.sub(r"[{},\\!]", "", number).replace("\N{MINUS SIGN}", "-"))


def _quotient(match: re.Match[str]) -> Fraction | None:
    """The value of what `_FRACTION` finds; None for a division by zero."""
    above = int(match["above"] or match["top"] or match["left"])
    below = int(match["below"] or match["foot"] or match["right"])
    if below == 0:
        return None
    value = int(match["whole"] or 0) + Fraction(above, below)
    return -value if match["sign"] in ("-", "\N{MINUS SIGN}") else value


def _unwrapped(answer: str) -> str:
    """An answer without what it is framed by, and without the marks of a font around its parts."""
    framed = _FRAME.search(answer)
    if framed:
        answer = framed[framed.lastindex or 0]
    for _ in range(_MOST_NESTED):
        answer, found = _WRAP.subn(r"\1", answer)
        if not found:
            break
    return _LAYOUT_MARKS.sub("", answer).strip(" \t\r\n.`*_\"'")


def _only_value(answer: str) -> Fraction | None:
    """The value of an answer that is one number and its unit; None if it is anything else."""
    answer = _ascii_digits(answer)
    power = _POWER.fullmatch(answer)
    if power:
        return Fraction(int(power[1]) ** int(power[2]))
    fractions = list(_FRACTION.finditer(answer))
    if len(fractions) == 1 and not _UNIT.sub("", _FRACTION.sub("", answer)):
        return _quotient(fractions[0])
    numbers = _NUMBER.findall(answer)
    if len(numbers) != 1 or _UNIT.sub("", _NUMBER.sub("", answer)):
        return None
    value = _decimal(numbers[0])
    return None if value is None else Fraction(value)


def _words(answer: str) -> re.Pattern[str] | None:
    """Finds an answer in words, whatever the spaces in it; None if there is nothing to look for."""
    letter = re.fullmatch(r"\(?([A-Z])\)?", answer)
    if letter:
        return re.compile(_LETTER.format(letter[1], _NO_WORD if letter[1] in "AI" else ""))
    answer = re.sub(r"\A\$?[A-Za-z]\s*=\s*(?=\S)", "", answer)
    flat = answer
    for _ in range(_MOST_NESTED):
        flat = _NESTED_FRACTION.sub(r"\1/\2", _NESTED_ROOT.sub(r"\\sqrt \1 ", flat))
    ways = [_spelt(_PIECE.findall(_LAYOUT.sub(" ", way))) for way in dict.fromkeys((answer, flat))]
    point = re.fullmatch(r"[(\[]\s*([^\s,()]+)\s*,\s*([^\s,()]+)\s*[)\]]", answer)
    if point:
        sides = [rf"[A-Za-z]\s*=\s*{_spelt(_PIECE.findall(side))}" for side in point.groups()]
        ways.append(r"(?:\s*,|\s)\s*(?:and\s+)?".join(sides))
    ways = [way for way in ways if way]
    return re.compile("|".join(ways), re.IGNORECASE) if ways else None


def _spelt(pieces: list[str]) -> str:
    """The pattern of an answer's pieces; empty if there are none."""
    pieces = [piece for piece in pieces if piece not in _PASSED_OVER][:_MOST_PIECES]
    if not any(piece[-1].isalnum() or not piece.isascii() for piece in pieces):
        return ""
    gap = _LOOSE_GAP if {"\\frac", "\\dfrac", "\\tfrac", "\\sqrt", "/"} & {*pieces} else _GAP
    if gap is _LOOSE_GAP:
        pieces = [piece for piece in pieces if piece not in "()"]
    before = _WORD_BEFORE if pieces[0][0].isalnum() or pieces[0] in _SPELLINGS else ""
    after = _WORD_AFTER if pieces[-1][-1].isalnum() else ""
    return before + gap.join(_SPELLINGS.get(piece.lower(), re.escape(piece)) for piece in pieces) + after
