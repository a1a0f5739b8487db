"""A mathematical answer without markup, spacing and ornaments, so that two spellings of one become one.

tidy(r"$\\left(3, 1/2\\right)$.")                             # '(3, 1/2)'
tidy(r"x < 2 \\text{ or } x > 3")                             # '(-\\infty, 2)\\cup (3, \\infty)'
"""

import re

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
_WRAPPED = re.compile(r"\\(?:text(?:bf|it|rm)?|math(?:rm|bf)|mbox|operatorname|underline)\s*\{([^{}]*)\}")
_ORDER = re.compile(r"(<(?!=)|>(?!=)|<=|>=|\\[lg](?:eq?(?:slant)?|t)(?![A-Za-z]))")
_SET_OF_ALL = re.compile(r"^\\\{\s*[A-Za-z]\s*(?:\\in\s*\\mathbb\s*\{?R\}?\s*)?(?:\\mid|\||:)(.*)\\\}$")
_DEGREES_OF_A_FUNCTION = re.compile(
    r"(\\(?:sin|cos|tan|cot|sec|csc)(?:\^\{?-?[0-9]\}?)?\s*[({]?\s*)([0-9]+(?:\.[0-9]+)?)\s*"
    r"(?:\^\s*(?:\{\s*\\circ\s*\}|\\circ)|\\degrees?(?![A-Za-z]))"
)
_REPEATING = re.compile(r"(?<![0-9.])([0-9]*)\.([0-9]*)\\(?:overline|bar)\s*\{([0-9]+)\}")
_PAIR_OF_POINTS = re.compile(r"\\(?:overline|overleftrightarrow)\s*\{\s*([A-Z]{2})\s*\}")
"""A segment or line; it is the same from either end."""
_ANGLE = re.compile(r"\\(?:measured)?angle\s*\{?\s*([A-Z]{3})(?![A-Za-z])\s*\}?")
"""An angle by three points; it is the same from either leg."""
_ROOT = re.compile(r"\N{SQUARE ROOT}\s*(?:\(([^()]*)\)|\{([^{}]*)\}|([0-9]+(?:\.[0-9]+)?|[A-Za-z]))")
_ROMAN_I = re.compile(r"\\(?:mathrm|text|operatorname)\s*\{\s*i\s*\}")


def tidy(answer: str) -> str:
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
