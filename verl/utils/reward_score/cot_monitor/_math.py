"""Whether two mathematical answers are the same.

Decision: what an answer says (`_math_reading`) decides first, then math-verify on the values (`_math_value`). A percent
sign is dropped from 1 on, as MATH's own grading does, and means hundredths below; so no answer is right for both 50 and
0.5. Only a truth with a base, or with a percent sign, may be answered without.
Plain numbers and fractions are compared here, exactly; of those math-verify says the same, as a test shows.

    same_answer("0.5", r"50\\%")              # True
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from verl.utils.reward_score.cot_monitor._math_markup import tidy
from verl.utils.reward_score.cot_monitor._math_reading import Reading, named, read, read_tidied, split
from verl.utils.reward_score.cot_monitor._math_value import verified

_LONGEST = 1000
"""Characters; a longer answer is none, whatever it may come to."""
_SHORT_WORD = re.compile(r"\\(?:text(?:bf|it|rm)?|mathrm|mbox)\s*\{\s*[A-Za-z]{2,3}\s*\}")
"""Letters that are set as a word, so that they are no product."""
_COMMA = re.compile(r"(?<![0-9]),|,(?![0-9]{3}(?![0-9]))")
"""A comma that separates no thousands."""
_TUPLE = re.compile(r"[(\[].*[)\]]")
_MOST_ITEMS = 30
"""Items of a list that are compared each with each."""
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
    one, other = tidy(answer), tidy(truth)
    if any(_VECTORS.search(text) and _CROSS.search(text) for text in (answer, truth)):
        return _terms(one) == _terms(other)
    mine, theirs = _items(one, other), _items(other, one)
    if len(mine) == len(theirs) > 1:
        return _same_list(mine, theirs)
    if len(mine) != len(theirs):
        fewest, most = sorted((mine, theirs), key=len)
        # 1, 2 or a = 1, b = 2 for the pair (1, 2).
        return len(fewest) == 1 and bool(_TUPLE.fullmatch(fewest[0])) and _same_pair(read_tidied(fewest[0]), most)
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
    for item in split(text, _COMMA):
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
    readings, left = [read_tidied(item) for item in mine], [read_tidied(item) for item in theirs]
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
    parts = [named(item) for item in items]
    names = {f"({','.join(name or '?' for name, _ in parts)})", pair.name} if any(name for name, _ in parts) else set()
    if len(names - {None}) > 1:
        return False
    return verified(pair.value, f"({', '.join(value for _, value in parts)})")


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
        return verified(one.equation, other.equation)
    if (one.name and other.relation) or (one.relation and other.name):
        return verified(one.equation, other.equation)
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
        return _all(_same(read_tidied(side), other) for side in one.sides)
    if other.relation and not one.relation:
        return False
    return verified(one.value, other.value)


def _bare(value: str) -> str:
    """Without blanks that mean nothing; words in small letters."""
    bare = re.sub(r"(?<![A-Za-z0-9])\s+|\s+(?![A-Za-z0-9])", "", value)
    return bare.casefold() if re.fullmatch(r"[A-Za-z ]{2,}", bare) else bare
