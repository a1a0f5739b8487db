"""Whether two values are the same, by math-verify; but not of what it misreads, or would work out for ever.

Decision: math-verify reads all letters as small ones, each letter of a word as a factor, and works everything out. So
words and capitals are told apart here, and sizes are estimated, before it is asked in its process (`_math_pool`).

    verified("0.5", r"\\frac{1}{2}")         # True
    verified("9^{9^{9^{9}}}", "5")            # False
"""

import re
from math import factorial

from verl.utils.reward_score.cot_monitor._math_pool import same_value
from verl.utils.reward_score.cot_monitor._math_reading import FUNCTIONS

_PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}\s+[A-Za-z]{2,}")
"""Two words in a row."""
_WORD = re.compile(rf"(?<![\\A-Za-z])(?!(?:{FUNCTIONS})(?![A-Za-z]))(?:[A-Za-z]{{4,}}|[A-Z][A-Za-z]{{2}})")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\s*\{\w*\*?\}")
_DOTS = re.compile(r"\\[lcd]?dots(?![A-Za-z])|\.\.\.|\N{HORIZONTAL ELLIPSIS}")
_TRANSPOSED = re.compile(r"\^\s*(?:T|\\top|\{\s*(?:T|\\top)\s*\})(?![A-Za-z])")
_LONG_RATIO = re.compile(r":[^:]*:")
_LETTER = re.compile(r"\\math(?:bb|cal|frak)\s*\{[^{}]*\}|\\[A-Za-z]+|[A-Za-z]")
_SPARE_LETTERS = (r"\xi", r"\zeta", r"\eta", r"\kappa", r"\chi", r"\psi", r"\tau", r"\mu", r"\nu", r"\sigma")
_MOST_BITS = 1_000_000
"""Of an integer that is worked out; nobody has a larger one for an answer."""
_MOST_FACTORS = 10_000
"""Of a factorial."""
_LARGE = 10**30
"""What stands for any larger number while sizes are estimated."""
_MOST_ROUNDS = 30
"""In which one level of brackets after the other is worked out."""
_LARGE_EXPONENT = re.compile(r"\^\{[^{}]*[0-9]{7}")
_LARGE_RANGE = re.compile(r"\\(?:sum|prod|[dt]?binom)(?![A-Za-z]).*?[0-9]{6}", re.DOTALL)
_INTEGER_IN_BRACKETS = re.compile(r"\{\s*([0-9]+)\s*\}|\(\s*([0-9]+)\s*\)")
_FACTORIAL = re.compile(r"(?<![0-9.])([0-9]+)\s*!")
_POWER = re.compile(r"(?<![0-9.])([0-9]+)\s*\^\s*([0-9]+)(?!\s*[0-9.^!])")


def verified(one: str, other: str) -> bool | None:
    """What math-verify says, of what it does not misread; None if it could not tell."""
    if any(mark.search(value) for mark in (_PROSE, _LONG_RATIO, _DOTS) for value in (one, other)):
        # It would take each letter of a word for a factor, a:b:c for a quotient, and read over dots.
        return False
    if _words(one) != _words(other) or _is_astronomic(one):
        return False
    return same_value(*_distinct_letters(one, other))


def _is_astronomic(value: str) -> bool:
    """Whether a value takes for ever to be worked out: towers of powers, huge factorials, endless sums."""
    for _ in range(_MOST_ROUNDS):
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
