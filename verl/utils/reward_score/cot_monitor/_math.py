"""Mathematical answers: finding them in a text, and whether two are the same.

Decision: math-verify compares, in a process of its own (`_math_pool`). Before that an answer is brought into a form in
which it means one thing: units, currency, markup and the name of the unknown are taken off, percent becomes a scale.
Plain numbers and fractions are compared here, exactly; of those math-verify says the same, as a test shows.

    last_boxed(r"first \\boxed{3}, then \\boxed{\\frac{1}{2}}")     # '\\frac{1}{2}'
    same_answer(r"50\\%", "0.5")                                  # True
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

from verl.utils.reward_score.cot_monitor._math_pool import same_value
from verl.utils.reward_score.cot_monitor._numbers import only_number

_NUMBER = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
_PLAIN = re.compile(rf"[-+]?(?:{_NUMBER})\.?")
_FRACTION = re.compile(r"(?P<sign>-?)(?P<whole>[0-9]*)\\[dt]?frac\{(?P<above>[0-9]+)\}\{(?P<below>[0-9]+)\}")
_LONGEST = 1000
"""Characters; a longer answer is none, whatever it may come to."""
_DECIMALS = 6
"""Decimal places to which math-verify compares; within them exact equality is the same."""

_SYMBOLS = str.maketrans(
    {
        "\N{MINUS SIGN}": "-",
        "\N{EN DASH}": "-",
        "\N{MULTIPLICATION SIGN}": r"\times ",
        "\N{MIDDLE DOT}": r"\cdot ",
        "\N{DOT OPERATOR}": r"\cdot ",
        "\N{DIVISION SIGN}": "/",
        "\N{GREEK SMALL LETTER PI}": r"\pi ",
        "\N{INFINITY}": r"\infty ",
        "\N{UNION}": r"\cup ",
        "\N{LESS-THAN OR EQUAL TO}": r"\le ",
        "\N{GREATER-THAN OR EQUAL TO}": r"\ge ",
        "\N{ELEMENT OF}": r"\in ",
        "\N{SUPERSCRIPT TWO}": "^2",
        "\N{SUPERSCRIPT THREE}": "^3",
        "\N{DEGREE SIGN}": r"^\circ",
        "\N{VULGAR FRACTION ONE HALF}": r"\frac{1}{2}",
        "\N{VULGAR FRACTION ONE QUARTER}": r"\frac{1}{4}",
        "\N{VULGAR FRACTION THREE QUARTERS}": r"\frac{3}{4}",
        "\N{NO-BREAK SPACE}": " ",
        "\N{NARROW NO-BREAK SPACE}": " ",
        **dict.fromkeys("$€£¥₹", ""),
    }
)
_WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_FUNCTIONS = r"(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|log|ln|exp|sqrt|pi|mod|max|min|gcd|lcm|inf|infty|infinity|i|e"
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
    rf"(?:(?!(?:{_FUNCTIONS})\b)[A-Za-z][A-Za-z']+[:,]?\s+|:\s*)+(?P<value>-?\s*(?:[0-9.]|\\d?frac)[^A-Za-z]*)"
)
_NAME = re.compile(r"(?:\\[A-Za-z]++|[A-Za-z' ]|_\{?\w++\}?|\(\s*[A-Za-z0-9](?:\s*,\s*[A-Za-z0-9])*\s*\))+")
_PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}\s+[A-Za-z]{2,}")
"""Two words in a row."""
_EQUALS = re.compile(r"(?<![<>!:=\\])=(?!=)")


def last_boxed(text: str) -> str | None:
    """What is in the last whole `\\boxed{}`; neighbours joined by "and", "or" or a comma are one answer, `a, b`."""
    boxes = _boxes(text)
    if not boxes:
        return None
    start, _, content = boxes[-1]
    contents = [content]
    for before_start, before_end, before in reversed(boxes[:-1]):
        glue = re.sub(r"\\text\s*\{([^{}]*)\}|\\[(),;\s]|[$\s]", r"\1", text[before_end:start])
        if not re.fullmatch(r"(?:,|,?and|,?or)(?:[A-Za-z]=)?", glue):
            break
        start = before_start
        contents.append(before)
    return ", ".join(reversed(contents)).strip()


def _boxes(text: str) -> list[tuple[int, int, str]]:
    """Start, end and content of every whole box without a box in it, in one pass."""
    boxes = []
    # Of every open brace: where its box starts (None: no box), where its content does, whether it holds a box.
    open_braces: list[tuple[int | None, int, bool]] = []
    for token in re.finditer(r"\\(?:f?boxed|fbox)\s*(?:\{|([0-9]))|\\[\\{}]|[{}]", text):
        if token.group().startswith("\\") and token.group()[1:] not in ("\\", "{", "}"):
            if token.group(1):
                boxes.append((token.start(), token.end(), token.group(1)))
            else:
                open_braces.append((token.start(), token.end(), False))
        elif token.group() == "{":
            open_braces.append((None, token.end(), False))
        elif token.group() == "}" and open_braces:
            start, inside, holds_box = open_braces.pop()
            if start is not None and not holds_box:
                boxes.append((start, token.end(), text[inside : token.start()]))
            if open_braces and (start is not None or holds_box):
                open_braces[-1] = (*open_braces[-1][:2], True)
    return boxes


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

    @cached_property
    def decimal(self) -> Decimal | None:
        """The value if it is a plain number of so few decimal places that math-verify does not round it."""
        if not _PLAIN.fullmatch(self.value):
            return None
        number = Decimal(self.value.rstrip(".").replace(",", ""))
        exponent = number.as_tuple().exponent
        return number if isinstance(exponent, int) and -exponent <= _DECIMALS else None

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
    def relation(self) -> bool:
        """Whether it is an equation."""
        return bool(_EQUALS.search(self.value))


def read(answer: str) -> Reading:
    """What an answer says."""
    text, units, base, scale = _tidy(answer), None, None, 0
    if percent := re.fullmatch(r"(.*?)\s*(?:\\?%|\b(?:percent|percentage|pct)\b)(?:\s+[a-z ]+)?", text, re.IGNORECASE):
        text, scale = percent.group(1), -2
    if based := re.fullmatch(r"(-?[0-9A-F.]*[0-9][0-9A-F.]*)_\{?([0-9]{1,2}|two|eight|ten)\}?", text):
        text, base = based.groups()
    text = _last_side(text)
    if words := _BEGINS_WITH_WORDS.fullmatch(text):
        text = words["value"]
    elif (words := _ENDS_IN_UNITS.fullmatch(text)) and not re.search(r"\b[ap]\.?m\b", words["units"], re.IGNORECASE):
        text, units = words["value"], _known_unit(words["units"])
        power = re.match(rf"({'|'.join(_SCALES)})\b", words["units"])
        scale = _SCALES[power.group(1)] if power else scale
        if lead := _BEGINS_WITH_WORDS.fullmatch(text):
            text = lead["value"]
    elif text.lower() in _WORDS:
        text = str(_WORDS.index(text.lower()))
    elif (number := _only_number(text)) is not None:
        text = format(number, "f")
    return Reading(value=text.strip(), scale=scale, units=units, base=base)


def _only_number(text: str) -> Decimal | None:
    """The number of a sentence that holds one and no formula."""
    sentence = re.search("[A-Za-z]{2}", text) and not re.search(
        rf"[-+*/^=%\\(<>:]|\b(?:{_FUNCTIONS}|not|[ap]m)\b", text
    )
    return only_number(text) if sentence else None


def _tidy(answer: str) -> str:
    """Without markup, spacing and ornaments."""
    text = answer.replace("\\$", "").replace("{,}", ",").translate(_SYMBOLS)
    text = re.sub(r"(?<!\\)\\(?:[()\[\]!,]|(?=[0-9]))|\\(?:displaystyle|left|right|[bB]ig[lr]?)(?![A-Za-z])", "", text)
    text = re.sub(r"(?<!\\)\\[;: ~]|\\q?quad(?![A-Za-z])|~", " ", text)
    wrapped, inner = re.compile(r"\\(?:text(?:bf|it|rm)?|math(?:rm|bf)|mbox|operatorname)\s*\{([^{}]*)\}"), text
    while (text := wrapped.sub(r" \1 ", inner)) != inner:
        inner = text
    text = re.sub(r"\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ)|\\degrees?|\s+degrees?(?![A-Za-z])", "", text)
    text = re.sub(r"\s+(?:and|or)\s+(?=[-\\0-9(a-zA-Z]{1,2})", ", ", text) if re.search(r"[0-9\\]", text) else text
    text = re.sub(r"(?<=[0-9]) (?=[0-9]{3}(?![0-9]))", "", text)
    text = re.sub(r"(?<![0-9.])([0-9]+)\s+([0-9]+)\s*/\s*([0-9]+)", r"\1\\frac{\2}{\3}", text)
    text = re.sub(r"^(-?)([0-9]+)\s*/\s*([0-9]+)$", r"\1\\frac{\2}{\3}", text.strip())
    text = re.sub(r"([0-9.])[eE]([-+]?[0-9]+)(?![0-9])", r"\1\\times 10^{\2}", text)
    text = re.sub(r"^\s*(?:minus|negative)\s+", "-", text, flags=re.IGNORECASE)
    return re.sub(r"^[\s*_`]+|[\s*`.;:?,]+$", "", re.sub(r"\s+", " ", text))


def _last_side(text: str) -> str:
    """What stands behind a name, `x =` or `Total cost =`; any other equation whole."""
    parts = [part.strip() for part in _EQUALS.split(text)]
    several = "," in re.sub(_NUMBER, "", re.sub(r"\([^()]*\)", "", text))
    if several:
        # x = 1, x = 2: two values of one unknown.
        named = [re.fullmatch(r"\s*([A-Za-z])\s*=([^=]+)", part) for part in text.split(",")]
        if all(named) and len({part[1] for part in named if part}) == 1:
            return ",".join(part[2] for part in named if part)
        return text
    return parts[-1] if len(parts) > 1 and all(parts) and _NAME.fullmatch(parts[0]) else text


def _known_unit(units: str) -> str | None:
    """One name for all spellings of a unit; None where units are not comparable word for word."""
    words = units.lower().replace(".", "")
    words = words if words in _UNITS else words.removesuffix("s")
    return _UNITS.get(words)


def same_answer(answer: str, truth: str) -> bool | None:
    """Whether an answer is the true one; None if math-verify could not tell.

    Args:
        answer: what was marked as the answer, in LaTeX or in words.
        truth: the same of the reference.

    Raises:
        RuntimeError: math-verify cannot be started.
    """
    if answer.strip() == truth.strip():
        return bool(answer.strip())
    if len(answer) > _LONGEST:
        return False
    one, other = read(answer), read(truth)
    if not one.value or not other.value:
        return False
    for name in ("units", "base"):
        if None not in (mine := getattr(one, name), theirs := getattr(other, name)) and mine != theirs:
            return False
    if one.brackets != other.brackets and "{" in (one.brackets, other.brackets) and one.brackets and other.brackets:
        return False
    if one.scale and other.scale and one.scale != other.scale:
        return _same(_scaled(one), _scaled(other))
    as_written = _same(one, other)
    if as_written or one.scale == other.scale:
        return as_written
    scaled = _same(_scaled(one), _scaled(other))
    return scaled or (None if as_written is None else scaled)


def _scaled(reading: Reading) -> Reading:
    """With the scale multiplied in."""
    if not reading.scale:
        return reading
    if reading.decimal is not None:
        return Reading(value=format(reading.decimal.scaleb(reading.scale), "f"))
    return Reading(value=rf"({reading.value})\cdot 10^{{{reading.scale}}}")


def _same(one: Reading, other: Reading) -> bool | None:
    if _bare(one.value) == _bare(other.value):
        return True
    for exact in ("decimal", "ratio"):
        if None not in (mine := getattr(one, exact), theirs := getattr(other, exact)):
            return mine == theirs
    if one.relation and not other.relation:
        # An equation is the answer 7 only if each of its sides is.
        sides = [_same(read(side), other) for side in _EQUALS.split(one.value)]
        return False if False in sides else None if None in sides else True
    if _PROSE.search(one.value) or _PROSE.search(other.value):
        # math-verify would take each letter for an unknown.
        return False
    return same_value(one.value, other.value)


def _bare(value: str) -> str:
    """Without blanks that mean nothing; words in small letters."""
    bare = re.sub(r"(?<![A-Za-z0-9])\s+|\s+(?![A-Za-z0-9])", "", value)
    return bare.casefold() if re.fullmatch(r"[A-Za-z ]{2,}", bare) else bare
