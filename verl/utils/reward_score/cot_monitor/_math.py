"""Mathematical answers: finding them in a text, and whether two are the same.

Decision: math-verify compares, in a process of its own (`_math_pool`). Before that an answer is brought into a form in
which it means one thing: units, currency, markup and the name of the unknown are taken off, percent becomes a scale.
A percent sign is dropped from 1 on, as MATH's own grading does, and means hundredths below; so no answer is right for
both 50 and 0.5. Only a truth with a base, or with a percent sign, may be answered without.
Plain numbers and fractions are compared here, exactly; of those math-verify says the same, as a test shows.

    last_boxed(r"first \\boxed{3}, then \\boxed{\\frac{1}{2}}")     # '\\frac{1}{2}'
    same_answer("0.5", r"50\\%")                                  # True
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from math import factorial

from verl.utils.reward_score.cot_monitor._math_pool import same_value
from verl.utils.reward_score.cot_monitor._numbers import only_number

_NUMBER = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
_PLAIN = re.compile(rf"[-+]?(?:{_NUMBER})\.?")
_FRACTION = re.compile(r"(?P<sign>-?)(?P<whole>[0-9]*)\\[dt]?frac\{(?P<above>[0-9]+)\}\{(?P<below>[0-9]+)\}")
_BOX_OR_BRACE = re.compile(
    r"\\(?:f?boxed|fbox)\s*(?:\{|([-+]?[0-9](?:[0-9.,/]*[0-9])?|[A-Za-z](?![A-Za-z])))|\\[\\{}]|[{}]"
)
_LONGEST = 1000
"""Characters; a longer answer is none, whatever it may come to."""

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
    rf"(?:(?!(?:{_FUNCTIONS})\b)[A-Za-z][A-Za-z']+[:,]?\s+|:\s*)+(?P<value>-?\s*(?:[0-9.]|\\d?frac)[^A-Za-z]*)"
)
_NAME = re.compile(
    r"(?:(?!\\(?:sqrt|[dt]?frac|sum|prod|int|lim|binom|pm|cdot|times|in|cup|cap)(?![A-Za-z]))\\[A-Za-z]++"
    r"|[A-Za-z' ]|_\{?\w++\}?|\(\s*[A-Za-z0-9](?:\s*,\s*[A-Za-z0-9])*\s*\))+"
)
_PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}\s+[A-Za-z]{2,}")
"""Two words in a row."""
_WORD = re.compile(rf"(?<![\\A-Za-z])(?!(?:{_FUNCTIONS})(?![A-Za-z]))(?:[A-Za-z]{{4,}}|[A-Z][A-Za-z]{{2}})")
_SHORT_WORD = re.compile(r"\\(?:text(?:bf|it|rm)?|mathrm|mbox)\s*\{\s*[A-Za-z]{2,3}\s*\}")
"""Letters that are set as a word, so that they are no product."""
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\s*\{\w*\*?\}")
_EQUALS = re.compile(r"(?<![<>!:=\\])=(?!=)")
_WRAPPED = re.compile(r"\\(?:text(?:bf|it|rm)?|math(?:rm|bf)|mbox|operatorname|underline)\s*\{([^{}]*)\}")
_ABOUT = re.compile(r"\\(?:thick)?approx(?:eq)?(?![A-Za-z])|\\simeq(?![A-Za-z])|\N{ALMOST EQUAL TO}")
_COMMA = re.compile(r"(?<![0-9]),|,(?![0-9]{3}(?![0-9]))")
"""A comma that separates no thousands."""
_ORDER = re.compile(r"(<(?!=)|>(?!=)|<=|>=|\\[lg](?:eq?(?:slant)?|t)(?![A-Za-z]))")
_TUPLE = re.compile(r"[(\[].*[)\]]")
_SET_OF_ALL = re.compile(r"^\\\{\s*[A-Za-z]\s*(?:\\in\s*\\mathbb\s*\{?R\}?\s*)?(?:\\mid|\||:)(.*)\\\}$")
_DOTS = re.compile(r"\\[lcd]?dots(?![A-Za-z])|\.\.\.|\N{HORIZONTAL ELLIPSIS}")
_TRANSPOSED = re.compile(r"\^\s*(?:T|\\top|\{\s*(?:T|\\top)\s*\})(?![A-Za-z])")
_LONG_RATIO = re.compile(r":[^:]*:")
_DEGREES_OF_A_FUNCTION = re.compile(
    r"(\\(?:sin|cos|tan|cot|sec|csc)(?:\^\{?-?[0-9]\}?)?\s*[({]?\s*)([0-9]+(?:\.[0-9]+)?)\s*"
    r"(?:\^\s*(?:\{\s*\\circ\s*\}|\\circ)|\\degrees?(?![A-Za-z]))"
)
_REPEATING = re.compile(r"(?<![0-9.])([0-9]*)\.([0-9]*)\\(?:overline|bar)\s*\{([0-9]+)\}")
_PAIR_OF_POINTS = re.compile(r"\\(?:overline|overleftrightarrow)\s*\{\s*([A-Z]{2})\s*\}")
"""A segment or line; it is the same from either end."""
_ANGLE = re.compile(r"\\(?:measured)?angle\s*\{?\s*([A-Z]{3})(?![A-Za-z])\s*\}?")
"""An angle by three points; it is the same from either leg."""
_LETTER = re.compile(r"\\math(?:bb|cal|frak)\s*\{[^{}]*\}|\\[A-Za-z]+|[A-Za-z]")
_SPARE_LETTERS = (r"\xi", r"\zeta", r"\eta", r"\kappa", r"\chi", r"\psi", r"\tau", r"\mu", r"\nu", r"\sigma")
_MOST_ITEMS = 30
"""Items of a list that are compared each with each."""
_ROOT = re.compile(r"\N{SQUARE ROOT}\s*(?:\(([^()]*)\)|\{([^{}]*)\}|([0-9]+(?:\.[0-9]+)?|[A-Za-z]))")
_ROMAN_I = re.compile(r"\\(?:mathrm|text|operatorname)\s*\{\s*i\s*\}")
_IN_DEGREES = re.compile(r"\\circ(?![A-Za-z])|\N{DEGREE SIGN}|\bdegrees?\b|\\degrees?(?![A-Za-z])")
_IN_RADIANS = re.compile(r"(?<![A-Za-z])rad(?:ian)?s?(?![A-Za-z])")
_VECTOR = r"\\(?:vec|overrightarrow|math(?:bf|sf)|bold(?:symbol)?|bm)\s*(?:\{\s*\\?[A-Za-z]+\s*\}|[A-Za-z](?![A-Za-z]))"
_VECTORS = re.compile(rf"{_VECTOR}|\\begin\s*\{{[a-z]?matrix\}}")
_CROSS = re.compile(
    rf"\\times\s*(?![0-9\s])|\N{{MULTIPLICATION SIGN}}\s*(?![0-9\s])"
    rf"|{_VECTOR}(?:\^\{{?[^{{}}\s]{{1,5}}\}}?)?\s*{_VECTOR}"
    r"|\\end\s*\{[a-z]?matrix\}\s*(?:\\cdot\s*)?\\begin\s*\{[a-z]?matrix\}"
)
"""A product of vectors or of matrices, in which the order counts; a scalar product is none."""
_MOST_BITS = 1_000_000
"""Of an integer that is worked out; nobody has a larger one for an answer."""
_MOST_FACTORS = 10_000
"""Of a factorial."""
_LARGE = 10**30
"""What stands for any larger number while sizes are estimated."""
_LARGE_EXPONENT = re.compile(r"\^\{[^{}]*[0-9]{7}")
_LARGE_RANGE = re.compile(r"\\(?:sum|prod|[dt]?binom)(?![A-Za-z]).*?[0-9]{6}", re.DOTALL)
_INTEGER_IN_BRACKETS = re.compile(r"\{\s*([0-9]+)\s*\}|\(\s*([0-9]+)\s*\)")
_FACTORIAL = re.compile(r"(?<![0-9.])([0-9]+)\s*!")
_POWER = re.compile(r"(?<![0-9.])([0-9]+)\s*\^\s*([0-9]+)(?!\s*[0-9.^!])")
_BASES = {"two": "2", "eight": "8", "ten": "10"}


def last_boxed(text: str) -> str | None:
    """What is in the last whole `\\boxed{}`, None if there is none.

    Neighbours joined by "and", "or" or a comma are one answer, `a, b`. `\\fbox{5}` and `\\boxed 5` count too.
    """
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
    for token in re.finditer(_BOX_OR_BRACE, text):
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
    def relation(self) -> bool:
        """Whether it is an equation."""
        return len(_split(self.value, _EQUALS)) > 1


def read(answer: str) -> Reading:
    """What an answer says."""
    return _read(_tidy(answer), "dollar^1" if re.match(r"[\s{]*(?:\\text\s*\{\s*)?-?\\\$", answer) else None)


def _read(text: str, units: str | None = None) -> Reading:
    base, scale = None, 0
    text = _without_rounding(text)
    if percent := re.fullmatch(r"(.*?)\s*(?:\\?%|\b(?:percent|percentage|pct)\b)(?:\s+[a-z ]+)?", text, re.IGNORECASE):
        text, scale = percent.group(1), -2
    if based := re.fullmatch(r"(-?[0-9A-F.]*[0-9][0-9A-F.]*)_\{?([0-9]{1,2}|two|eight|ten)\}?", text):
        text, base = based.groups()
        base = _BASES.get(base, base)
    equation = text
    name, text = _named(text)
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
    sentence = re.search("[A-Za-z]{2}", text) and not re.search(
        rf"[-+*/^=%\\(<>:]|\b(?:{_FUNCTIONS}|not|[ap]m)\b", text
    )
    return only_number(text) if sentence else None


def _tidy(answer: str) -> str:
    """Without markup, spacing and ornaments."""
    text = re.sub(r",\s*\\!\s*(?=[0-9]{3})", ",", _ROMAN_I.sub("i", answer))
    text = _ROOT.sub(lambda found: rf"\sqrt{{{found[1] or found[2] or found[3] or ''}}}", text)
    text = text.replace("\\$", "").replace("{,}", ",").replace("\\&", r"\text{ and }").translate(_SYMBOLS)
    text = re.sub(r"(?<!\\)\\(?:[()\[\]!,]|(?=[0-9]))|\\(?:displaystyle|left|right|[bB]ig[lr]?)(?![A-Za-z])", "", text)
    text = re.sub(r"(?<!\\)\\[;: ~]|\\q?quad(?![A-Za-z])|~", " ", text)
    inner = text
    while (text := _WRAPPED.sub(r" \1 ", inner)) != inner:
        inner = text
    text = re.sub(r"(?<![A-Za-z\\])pi(?![A-Za-z])", r"\\pi ", text)
    text = re.sub(r"\\varnothing(?![A-Za-z])|\\\{\s*\\\}", r"\\emptyset ", text)
    text = _DEGREES_OF_A_FUNCTION.sub(r"\1{\\frac{\2\\pi}{180}}", text)
    text = re.sub(r"\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ)|\\degrees?|\s+degrees?(?![A-Za-z])", "", text)
    text = _REPEATING.sub(lambda found: _fraction(*found.groups()), text)
    text = _PAIR_OF_POINTS.sub(lambda found: "".join(sorted(found.group(1))), text)
    text = _ANGLE.sub(lambda found: rf"\angle {min(found.group(1), found.group(1)[::-1])}", text)
    text = _SET_OF_ALL.sub(r"\1", text.strip())
    text = _joined_inequalities(text)
    if re.search(r"[0-9\\]|\b[A-Za-z]\s+(?:and|or)\s+[A-Za-z]\b", text):
        text = re.sub(r"(?:\s*,)?\s+(?:and|or)\s+(?=[-\\0-9(a-zA-Z]{1,2})", ", ", text)
    text = re.sub(r"(?<=[0-9]) (?=[0-9]{3}(?![0-9]))", "", text)
    text = re.sub(r"(?<![0-9.])([0-9]+)\s+([0-9]+)\s*/\s*([0-9]+)", r"\1\\frac{\2}{\3}", text)
    text = re.sub(r"^(-?)([0-9]+)\s*/\s*([0-9]+)$", r"\1\\frac{\2}{\3}", text.strip())
    text = re.sub(r"([0-9.])[eE]([-+]?[0-9]+)(?![0-9])", r"\1\\times 10^{\2}", text)
    text = re.sub(r"^\s*(?:minus|negative)\s+", "-", text, flags=re.IGNORECASE)
    return re.sub(r"^[\s*_`]+|[\s*`.;:?,]+$", "", re.sub(r"\s+", " ", text))


def _fraction(whole: str, fixed: str, repeated: str) -> str:
    """A repeating decimal as a fraction."""
    size = int(whole + fixed + repeated or "0") - int(whole + fixed or "0")
    return rf"\frac{{{size}}}{{{10 ** len(fixed + repeated) - 10 ** len(fixed)}}}"


def _joined_inequalities(text: str) -> str:
    """`x < 2 or x > 3` as a union of intervals, with "and" as their intersection; any other text as it is."""
    pieces = re.split(r",?\s+(and|or)\s+", text)
    sets = [_interval(piece) for piece in pieces[::2]]
    if len(sets) < 2 or None in sets or len(set(pieces[1::2])) > 1:
        return text
    return (r"\cup " if pieces[1] == "or" else r"\cap ").join(piece for piece in sets if piece)


def _interval(text: str) -> str | None:
    """The interval of one letter that an inequality says; None if it is none."""
    parts = [part.strip() for part in _ORDER.split(text)]
    if len(parts) not in (3, 5) or not all(parts):
        return None
    strict = [re.fullmatch(r"<|>|\\[lg]t", sign) is not None for sign in parts[1::2]]
    less = [sign.startswith(("<", r"\l")) for sign in parts[1::2]]
    if len(parts) == 3:
        (one, other), (up,), (open_,) = parts[::2], less, strict
        if not re.fullmatch("[A-Za-z]", one):
            one, other, up = other, one, not up
        if not re.fullmatch("[A-Za-z]", one):
            return None
        end = "(" if open_ else "[", ")" if open_ else "]"
        return rf"(-\infty, {other}{end[1]}" if up else rf"{end[0]}{other}, \infty)"
    if not re.fullmatch("[A-Za-z]", parts[2]) or len(set(less)) > 1:
        return None
    ends = [(parts[0], strict[0]), (parts[4], strict[1])]
    (low, after), (high, before) = ends if less[0] else ends[::-1]
    return f"{'(' if after else '['}{low}, {high}{')' if before else ']'}"


def _split(text: str, at: re.Pattern[str]) -> list[str]:
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
    parts = _split(text, _ABOUT)
    if len(parts) == 1:
        return text
    label = not parts[0] or (_NAME.fullmatch(parts[0]) and not re.fullmatch(r"\\pi|[ei]", parts[0]))
    return parts[1] if label else parts[0]


def _named(text: str) -> tuple[str | None, str]:
    """What an equation names (None in words), and the value that it gives it; any other text whole.

    `x = 5`, `5 = x` and `P(A) = 5` name the value, `2x = 5` does not.
    """
    parts = _split(text, _EQUALS)
    if len(parts) < 2 or not all(parts):
        return None, text
    if _NAME.fullmatch(parts[0]):
        return _name(parts[0]), parts[-1]
    if len(parts) == 2 and _NAME.fullmatch(parts[1]) and not re.search("[A-Za-z]", parts[0]):
        return _name(parts[1]), parts[0]
    return None, text


def _name(label: str) -> str | None:
    """One spelling of a symbol's name; None for words."""
    if re.search(rf"(?<![\\A-Za-z])(?!(?:{_FUNCTIONS})\b)[A-Za-z][a-z]{{2,}}", label):
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
    if max(len(answer), len(truth)) > _LONGEST:
        return False
    for written, asked in ((answer, truth), (truth, answer)):
        if _IN_DEGREES.search(written) and not _IN_RADIANS.search(written) and _IN_RADIANS.search(asked):
            return False
    one, other = _tidy(answer), _tidy(truth)
    if any(_VECTORS.search(text) and _CROSS.search(text) for text in (answer, truth)):
        return _terms(one) == _terms(other)
    mine, theirs = _items(one, other), _items(other, one)
    if len(mine) == len(theirs) > 1:
        return _same_list(mine, theirs)
    if len(mine) != len(theirs):
        fewest, most = sorted((mine, theirs), key=len)
        # 1, 2 or a = 1, b = 2 for the pair (1, 2).
        return len(fewest) == 1 and bool(_TUPLE.fullmatch(fewest[0])) and _same_pair(_read(fewest[0]), most)
    readings = read(answer), read(truth)
    short_word = _SHORT_WORD.search(answer) or _SHORT_WORD.search(truth)
    if short_word and all(re.fullmatch("[A-Za-z]+", reading.value) for reading in readings):
        return _bare(readings[0].value) == _bare(readings[1].value)
    return _same_reading(*readings)


def _terms(text: str) -> list[str]:
    """The terms of a sum, each as it is written, in any order; marks of vectors say nothing here."""
    plain = re.sub(r"\\(?:vec|overrightarrow|bold(?:symbol)?|bm|mathsf)(?![A-Za-z])|[{}\s]", "", text)
    return sorted(re.findall(r"[-+]?[^-+]+", plain if plain.startswith("-") else f"+{plain}"))


def _items(text: str, other: str) -> list[str]:
    """What is listed, by commas, in the braces of a set, or by a plus or minus; one item if there is no list."""
    if text.startswith(r"\{") and text.endswith(r"\}") and not other.startswith(("(", "[")):
        inside = text[2:-2].strip()
        text = text if re.search(r"\||:|\\mid|\\[{}]", inside) else inside
    items = []
    for item in _split(text, _COMMA):
        if item.count(r"\pm") == 1:
            items += [re.sub(r"\\pm\s*", "+", item).removeprefix("+").replace(r"\mp", "-")]
            items += [re.sub(r"\\pm\s*", "-", item).replace(r"\mp", "+")]
        else:
            items.append(item)
    return items


def _same_list(mine: list[str], theirs: list[str]) -> bool | None:
    """Whether every item has one of its own on the other side.

    The order counts where the items of one side have names and those of the other have not, and for letters and words:
    a question that asks for several in an order must not be answered by any other.
    """
    if len(mine) > _MOST_ITEMS:
        return [_bare(item) for item in mine] == [_bare(item) for item in theirs]
    readings, left = [_read(item) for item in mine], [_read(item) for item in theirs]
    names = [{reading.name for reading in side} - {None} for side in (readings, left)]
    ordered = all(re.fullmatch("[A-Za-z ]+", reading.value) for reading in left)
    if ordered or (min(map(len, names)) == 0 and max(map(len, names)) > 1):
        return _all(_same_reading(one, other) for one, other in zip(readings, left, strict=True))
    if 0 in map(len, names) or len(names[0] | names[1]) == 1:
        # x = 1, 2: the name is said once, and is that of all.
        readings, left = ([replace(reading, name=None) for reading in side] for side in (readings, left))
    unknown = False
    for reading in readings:
        for i, other in enumerate(left):
            same = _same_reading(reading, other)
            unknown |= same is None
            if same:
                del left[i]
                break
        else:
            return None if unknown else False
    return True


def _same_pair(pair: Reading, items: list[str]) -> bool | None:
    """Whether a tuple holds the items of a list in their order, under the same names if both sides have any."""
    named = [_named(item) for item in items]
    names = {f"({','.join(name or '?' for name, _ in named)})", pair.name} if any(name for name, _ in named) else set()
    if len(names - {None}) > 1:
        return False
    return _same_value(pair.value, f"({', '.join(value for _, value in named)})")


def _all(verdicts: Iterable[bool | None]) -> bool | None:
    """True if all are; None if that depends on one that is not known."""
    found = list(verdicts)
    return False if False in found else None if None in found else True


def _same_reading(one: Reading, other: Reading) -> bool | None:
    if not one.value or not other.value:
        return False
    if None not in (one.units, other.units) and one.units != other.units:
        return False
    # The base may be left out where the question asks for it, which only its truth can tell.
    if one.base != other.base and one.base is not None and (other.base, one.base) != (None, "10"):
        return False
    if one.brackets != other.brackets and "{" in (one.brackets, other.brackets) and one.brackets and other.brackets:
        return False
    if one.name and other.name and not _same_name(one.name, other.name):
        return _same_value(one.equation, other.equation)
    if (one.name and other.relation) or (one.relation and other.name):
        return _same_value(one.equation, other.equation)
    if one.scale == other.scale:
        return _same(one, other)
    percent = one if one.scale == -2 else other
    if {one.scale, other.scale} != {0, -2} or not _from_one_on(percent):
        return _same(_scaled(one), _scaled(other))
    as_written = _same(one, other)
    if as_written or percent is one:
        return as_written
    scaled = _same(_scaled(one), _scaled(other))
    return scaled or (None if as_written is None else scaled)


def _from_one_on(reading: Reading) -> bool:
    """Whether it is a number that is 1 or more in size: of such the percent sign may be left out or added.

    So says MATH's own grading, of all numbers; smaller ones are often fractions, of which a percentage is a hundredth.
    """
    if reading.decimal is not None:
        return abs(reading.decimal) >= 1
    return reading.ratio is not None and abs(reading.ratio) >= 1


def _same_name(one: str, other: str) -> bool:
    """Whether two names may stand for the same; `y` and `f(x)` do."""
    graphs = [name == "y" or re.fullmatch(r"[A-Za-z]\(x\)", name) for name in (one, other)]
    return one == other or (all(graphs) and "y" in (one, other))


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
        return _all(_same(_read(side), other) for side in _split(one.value, _EQUALS))
    if other.relation and not one.relation:
        return False
    return _same_value(one.value, other.value)


def _same_value(one: str, other: str) -> bool | None:
    """What math-verify says, of what it does not misread."""
    if any(mark.search(value) for mark in (_PROSE, _LONG_RATIO, _DOTS) for value in (one, other)):
        # It would take each letter of a word for a factor, a:b:c for a quotient, and read over dots.
        return False
    if _words(one) != _words(other) or _is_astronomic(one):
        return False
    return same_value(*_distinct_letters(one, other))


def _is_astronomic(value: str) -> bool:
    """Whether a value takes for ever to be worked out: towers of powers, huge factorials, endless sums."""
    for _ in range(_MOST_ITEMS):
        before = value
        value = _INTEGER_IN_BRACKETS.sub(lambda found: f" {found[1] or found[2]} ", value)
        if any(_factorial(found[1]) is None for found in _FACTORIAL.finditer(value)):
            return True
        value = _FACTORIAL.sub(lambda found: str(_factorial(found[1])), value)
        if any(_power(*found.groups()) is None for found in _POWER.finditer(value)):
            return True
        value = _POWER.sub(lambda found: str(_power(*found.groups())), value)
        if _LARGE_EXPONENT.search(value) or re.search(r"\^\s*[0-9]{7}", value) or _LARGE_RANGE.search(value):
            return True
        if value == before:
            return False
    return False


def _factorial(number: str) -> int | None:
    """At most `_LARGE`; None if it is too large to be worked out."""
    if len(number) > len(str(_MOST_FACTORS)) or int(number) > _MOST_FACTORS:
        return None
    return _LARGE if int(number) > 28 else min(_LARGE, factorial(int(number)))


def _power(base: str, exponent: str) -> int | None:
    """As `_factorial`."""
    if int(base) < 2 or int(exponent) == 0:
        return int(base) if int(exponent) else 1
    bits = int(exponent) * int(base).bit_length()
    return None if bits > _MOST_BITS else _LARGE if bits > 100 else min(_LARGE, int(base) ** int(exponent))


def _words(value: str) -> list[str]:
    """Words and names of three or more points, in which the order of the letters counts."""
    return sorted(word.casefold() for word in _WORD.findall(_ENVIRONMENT.sub(" ", value)))


def _distinct_letters(*values: str) -> list[str]:
    """With a Greek letter for each capital whose small letter occurs too: math-verify reads all letters as small ones.

    A primed or transposed letter becomes one with an index, as both marks are read over.
    """
    letters = {token for value in values for token in _LETTER.findall(value)}
    unused = [letter for letter in _SPARE_LETTERS if letter not in letters]
    capitals = sorted(letter for letter in letters if letter.isupper() and letter.lower() in letters)
    new = {letter: f"{spare} " for letter, spare in zip(capitals, unused, strict=False)}
    marked = [re.sub(r"(?<![A-Za-z\\])([A-Za-z])('+)", lambda m: f"{m[1]}_{{{'q' * len(m[2])}}}", v) for v in values]
    marked = [_TRANSPOSED.sub("_{tt}", value) for value in marked]
    return [_LETTER.sub(lambda token: new.get(token.group(), token.group()), value) for value in marked]


def _bare(value: str) -> str:
    """Without blanks that mean nothing; words in small letters."""
    bare = re.sub(r"(?<![A-Za-z0-9])\s+|\s+(?![A-Za-z0-9])", "", value)
    return bare.casefold() if re.fullmatch(r"[A-Za-z ]{2,}", bare) else bare
