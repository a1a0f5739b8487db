"""What a mathematical answer says, apart from how it is written: its value, and what stands around it.

Decision: an answer is brought into a form in which it means one thing. Units, currency and the name of the unknown are
taken off the value and kept beside it, and percent becomes a scale.

    read(r"x = 50\\%")                       # Reading(value="50", scale=-2, name="x", ...)
    read("7 apples").value                    # '7'
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

from verl.utils.reward_score.cot_monitor._math_markup import tidy
from verl.utils.reward_score.cot_monitor._numbers import only_number

_NUMBER = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
_PLAIN = re.compile(rf"[-+]?(?:{_NUMBER})\.?")
_FRACTION = re.compile(r"(?P<sign>-?)(?P<whole>[0-9]*)\\[dt]?frac\{(?P<above>[0-9]+)\}\{(?P<below>[0-9]+)\}")
_WORDS = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
)
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
FUNCTIONS = r"(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|log|ln|exp|sqrt|pi|mod|max|min|gcd|lcm|inf|infty|infinity|i|e"
_UNITS = {
    unit: names[0]
    for names in (
        ("mm", "millimeter", "millimetre"),
        ("cm", "centimeter", "centimetre"),
        ("m", "meter", "metre"),
        ("km", "kilometer", "kilometre"),
        ("in", "inch", "inche"),
        ("ft", "foot", "feet"),
        ("yd", "yard"),
        ("mi", "mile"),
        ("mg", "milligram"),
        ("g", "gram"),
        ("kg", "kilogram"),
        ("lb", "pound"),
        ("oz", "ounce"),
        ("ml", "milliliter", "millilitre"),
        ("l", "liter", "litre"),
        ("s", "sec", "second"),
        ("min", "minute"),
        ("h", "hr", "hour"),
        ("day",),
        ("week",),
        ("month",),
        ("year",),
        ("rad", "radian"),
        ("cent",),
        ("dollar",),
    )
    for unit in names
}
"""Units, in the singular, of which two different ones make two different answers."""
_UNIT = r"(?:[A-Za-z]{2,}|[mgshlLJNWVKC])\.?(?:\s*\^\s*\{?-?[1-3]\}?)?"
_ENDS_IN_UNITS = re.compile(
    rf"(?P<value>.*(?:[0-9}})]|\\pi))\s*(?P<units>(?<![A-Za-z]){_UNIT}(?:(?:\s+|\s*[/-]\s*){_UNIT})*)"
)
_BEGINS_WITH_WORDS = re.compile(
    rf"(?:(?!(?:{FUNCTIONS})\b)[A-Za-z][A-Za-z']+[:,]?\s+|:\s*)+(?P<value>-?\s*(?:[0-9.]|\\d?frac)[^A-Za-z]*)"
)
_NAME = re.compile(
    r"(?:(?!\\(?:sqrt|[dt]?frac|sum|prod|int|lim|binom|pm|cdot|times|in|cup|cap)(?![A-Za-z]))\\[A-Za-z]++"
    r"|[A-Za-z' ]|_\{?\w++\}?|\(\s*[A-Za-z0-9](?:\s*,\s*[A-Za-z0-9])*\s*\))+"
)
_EQUALS = re.compile(r"(?<![<>!:=\\])=(?!=)")
_ABOUT = re.compile(r"\\(?:thick)?approx(?:eq)?(?![A-Za-z])|\\simeq(?![A-Za-z])|\N{ALMOST EQUAL TO}")
_BASES = {"two": "2", "eight": "8", "ten": "10"}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What an answer says, apart from how it is written."""

    value: str
    """LaTeX."""
    scale: int = 0
    """Power of ten behind it: -2 for percent, 6 for million."""
    units: str | None = None
    """Its units, if it has any that `_UNITS` knows."""
    base: str | None = None
    """Its number base, if it is written with one."""
    name: str | None = None
    """What it is said to be equal to: `x`, `P(A)`; None if nothing is said, or in words."""
    equation: str = ""
    """Name and value as they were written, where there is a name."""

    @cached_property
    def decimal(self) -> Decimal | None:
        """The value if it is a plain number."""
        return Decimal(self.value.rstrip(".").replace(",", "")) if _PLAIN.fullmatch(self.value) else None

    @cached_property
    def ratio(self) -> Fraction | None:
        """The value if it is an integer or a fraction of integers."""
        if self.decimal is not None and "." not in self.value:
            return Fraction(self.decimal)
        fraction = _FRACTION.fullmatch(self.value)
        if fraction is None or int(fraction["below"]) == 0:
            return None
        size = int(fraction["whole"] or 0) + Fraction(int(fraction["above"]), int(fraction["below"]))
        return -size if fraction["sign"] == "-" else size

    @cached_property
    def brackets(self) -> str:
        """What encloses it: `(`, `[` or `{`."""
        return self.value.removeprefix("\\")[:1] if self.value.startswith(("(", "[", r"\{")) else ""

    @cached_property
    def sides(self) -> list[str]:
        """The sides of an equation; one where it is none."""
        return split(self.value, _EQUALS)

    @property
    def relation(self) -> bool:
        """Whether it is an equation."""
        return len(self.sides) > 1


def read(answer: str) -> Reading:
    """What an answer says."""
    return read_tidied(tidy(answer), "dollar^1" if re.match(r"[\s{]*(?:\\text\s*\{\s*)?-?\\\$", answer) else None)


def read_tidied(text: str, units: str | None = None) -> Reading:
    """The same of a text without markup; `units` if it says none itself."""
    base, scale = None, 0
    text = _without_rounding(text)
    if percent := re.fullmatch(r"(.*?)\s*(?:\\?%|\b(?:percent|percentage|pct)\b)(?:\s+[a-z ]+)?", text, re.IGNORECASE):
        text, scale = percent.group(1), -2
    if based := re.fullmatch(r"(-?[0-9A-F.]*[0-9][0-9A-F.]*)_\{?([0-9]{1,2}|two|eight|ten)\}?", text):
        text, base = based.groups()
        base = _BASES.get(base, base)
    equation = text
    name, text = named(text)
    if words := _BEGINS_WITH_WORDS.fullmatch(text):
        text = words["value"]
    elif (words := _ENDS_IN_UNITS.fullmatch(text)) and not re.search(r"\b[ap]\.?m\b", words["units"], re.IGNORECASE):
        text, units = words["value"], _known_unit(words["units"]) or units
        power = re.match(rf"({'|'.join(_SCALES)})\b", words["units"])
        scale = _SCALES[power.group(1)] if power else scale
        if lead := _BEGINS_WITH_WORDS.fullmatch(text):
            text = lead["value"]
    elif text.lower() in _WORDS:
        text = str(_WORDS.index(text.lower()))
    elif (number := _only_number(text)) is not None:
        text = format(number, "f")
    return Reading(value=text.strip(), scale=scale, units=units, base=base, name=name, equation=equation)


def _only_number(text: str) -> Decimal | None:
    """The number of a sentence that holds one and no formula."""
    sentence = re.search("[A-Za-z]{2}", text) and not re.search(rf"[-+*/^=%\\(<>:]|\b(?:{FUNCTIONS}|not|[ap]m)\b", text)
    return only_number(text) if sentence else None


def split(text: str, at: re.Pattern[str]) -> list[str]:
    """The parts of a text between matches of `at` that stand in no bracket."""
    parts, start, depth = [], 0, 0
    marks = {mark.start(): mark.end() for mark in at.finditer(text)}
    for i, letter in enumerate(text):
        if i in marks and depth == 0:
            parts.append(text[start:i])
            start = marks[i]
        depth += (letter in "([{") - (letter in ")]}")
    return [part.strip() for part in (*parts, text[start:])]


def _without_rounding(text: str) -> str:
    """The exact side of an `\\approx`, or its only one that is a value."""
    parts = split(text, _ABOUT)
    if len(parts) == 1:
        return text
    label = not parts[0] or (_NAME.fullmatch(parts[0]) and not re.fullmatch(r"\\pi|[ei]", parts[0]))
    return parts[1] if label else parts[0]


def named(text: str) -> tuple[str | None, str]:
    """What an equation names (None in words), and the value that it gives it; any other text whole.

    `x = 5`, `5 = x` and `P(A) = 5` name the value, `2x = 5` does not.
    """
    parts = split(text, _EQUALS)
    if len(parts) < 2 or not all(parts):
        return None, text
    if _NAME.fullmatch(parts[0]):
        return _name(parts[0]), parts[-1]
    if len(parts) == 2 and _NAME.fullmatch(parts[1]) and not re.search("[A-Za-z]", parts[0]):
        return _name(parts[1]), parts[0]
    return None, text


def _name(label: str) -> str | None:
    """One spelling of a symbol's name; None for words."""
    if re.search(rf"(?<![\\A-Za-z])(?!(?:{FUNCTIONS})\b)[A-Za-z][a-z]{{2,}}", label):
        return None
    return re.sub(r"[\s{}]|\\m(?=\\angle)|^m(?=\\angle)|\\measured(?=angle)", "", label)


def _known_unit(units: str) -> str | None:
    """One name for all spellings of a unit and its power; None where units are not comparable word for word."""
    found = re.fullmatch(
        r"(?:(?P<square>square|sq)|(?P<cubic>cubic|cu))?\s*(?P<unit>[a-z]+)\s*(?:\^\s*\{?(?P<power>[123])\}?)?",
        units.lower().replace(".", "").strip(),
    )
    if found is None:
        return None
    words = found["unit"] if found["unit"] in _UNITS else found["unit"].removesuffix("s")
    power = "2" if found["square"] else "3" if found["cubic"] else found["power"] or "1"
    return f"{_UNITS[words]}^{power}" if words in _UNITS else None
