"""Planted errors in the numbers of a step.

One decision: what a kind calls `exact` it has checked itself: an equation of the step was true by exact arithmetic, and
now it is false. Everything else is uncertain.
"""

import re

from verl.reasoning.prm.equations import Equation, equations
from verl.reasoning.prm.planted import Certainty, Planted, Spot, replaced

_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w]|\.\d)")
_SIGNS = {"+": "-", "-": "+", "*": "+", "/": "*", "\u00d7": "+", "\u00f7": "*", "\u2212": "+"}
_UNITS = (
    ("hours", "minutes"),
    ("minutes", "seconds"),
    ("days", "weeks"),
    ("weeks", "months"),
    ("months", "years"),
    ("dollars", "cents"),
    ("meters", "kilometers"),
    ("centimeters", "meters"),
    ("inches", "feet"),
    ("grams", "kilograms"),
    ("liters", "milliliters"),
)
_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "\u2264": "\u2265", "\u2265": "\u2264"}


def arithmetic_result(spot: Spot) -> Planted | None:
    """The result of a true equation, and where the step says it again, is another number of as many digits."""
    found = _true(spot)
    if not found:
        return None
    one = spot.rng.choice(found)
    result = _last_number(spot.body, one.right)
    if result is None:
        return None
    old = spot.body[slice(*result)]
    new = _other_number(old, spot)
    rest = re.sub(rf"(?<![\w.]){re.escape(old)}(?![\w]|\.\d)", new, spot.body[result[1] :])
    return _planted(spot, spot.body[: result[0]] + new + rest, {"was": old, "is": new})


def operand_copy(spot: Spot) -> Planted | None:
    """A number that the step takes from before is copied wrongly, and the calculation goes on with it correctly.

    The equation holds, so nothing is false by itself: uncertain.
    """
    found = [one for one in _true(spot) if one.computes and one.left_value is not None]
    if not found:
        return None
    one = spot.rng.choice(found)
    before = spot.problem + " " + " ".join(spot.steps[: spot.place])
    numbers = [m.span() for m in _NUMBER.finditer(spot.body, *one.left)]
    copied = [span for span in numbers if re.search(rf"(?<![\w.]){re.escape(spot.body[slice(*span)])}(?!\w)", before)]
    if not copied:
        return None
    span = spot.rng.choice(copied)
    old = spot.body[slice(*span)]
    new = _other_number(old, spot)
    changed = replaced(spot.body, span, new)
    again = next((e for e in equations(changed) if e.start == one.start and e.left_value is not None), None)
    result = None if again is None else _last_number(changed, again.right)
    if again is None or result is None or again.left_value is None or again.left_value.denominator != 1:
        return None
    return _planted(spot, replaced(changed, result, str(again.left_value)), {"was": old, "is": new}, "uncertain")


def sign_flip(spot: Spot) -> Planted | None:
    """A sign of a true equation is another one; the result stays."""
    places = [
        at for one in _true(spot) for at in range(*one.left) if spot.body[at] in _SIGNS and _between(spot.body, at)
    ]
    if not places:
        return None
    at = spot.rng.choice(places)
    sign = spot.body[at]
    return _planted(spot, replaced(spot.body, (at, at + 1), _SIGNS[sign]), {"was": sign, "is": _SIGNS[sign]})


def unit_or_percent(spot: Spot) -> Planted | None:
    """A percent sign is lost, or a unit is taken for another one."""
    percents = [match.span() for match in re.finditer(r"(?<=\d)\\?%", spot.body)]
    if percents:
        span = spot.rng.choice(percents)
        return _planted(spot, replaced(spot.body, span, ""), {"was": "%", "is": ""})
    pairs = [pair for both in _UNITS for pair in (both, both[::-1]) if re.search(rf"\b{pair[0]}\b", spot.body)]
    if not pairs:
        return None
    old, new = spot.rng.choice(pairs)
    return _planted(spot, re.sub(rf"\b{old}\b", new, spot.body), {"was": old, "is": new}, "uncertain")


def contradiction(spot: Spot) -> Planted | None:
    """The step says of an earlier equation that it has another result."""
    earlier = [
        (text, one)
        for text in spot.steps[: spot.place]
        for one in equations(text)
        if one.status == "true" and one.computes and one.relation == "="
    ]
    if not earlier:
        return None
    text, one = spot.rng.choice(earlier)
    result = _last_number(text, one.right)
    if result is None:
        return None
    old = text[slice(*result)]
    changed = replaced(text, result, _other_number(old, spot)).rstrip()
    return _planted(spot, changed, {"was": old}, _falsity(text, changed))


def turned_inequality(spot: Spot) -> Planted | None:
    """An inequality of numbers is turned round."""
    places = [m for m in re.finditer(r"<=|>=|[<>\u2264\u2265]", spot.body) if m[0] in _TURNED]
    if not places:
        return None
    match = spot.rng.choice(places)
    return _planted(
        spot, replaced(spot.body, match.span(), _TURNED[match[0]]), {"was": match[0], "is": _TURNED[match[0]]}
    )


def _planted(spot: Spot, text: str, meta: dict[str, str], certainty: Certainty | None = None) -> Planted | None:
    if text == spot.body:
        return None
    return Planted(text=text + spot.tail, certainty=certainty or _falsity(spot.body, text), meta=meta)


def _falsity(before: str, after: str) -> Certainty:
    """Exact if all that could be checked was true, and something is false now."""
    was = [one.status for one in equations(before) if one.status != "unknown"]
    now = [one.status for one in equations(after)]
    sound = bool(was) and set(was) <= {"true", "rounded"}
    return "exact" if sound and "false" in now else "uncertain"


def _true(spot: Spot) -> list[Equation]:
    return [one for one in equations(spot.body) if one.status == "true" and one.computes and one.relation == "="]


def _last_number(text: str, span: tuple[int, int]) -> tuple[int, int] | None:
    """The only number of a side; None for a side that is a calculation."""
    numbers = [match.span() for match in _NUMBER.finditer(text, *span)]
    return numbers[0] if len(numbers) == 1 else None


def _other_number(old: str, spot: Spot) -> str:
    """Another number of as many digits: off by one or ten, two digits swapped, or one digit different."""
    if "." in old:
        whole, digits = old.split(".")
        return f"{whole}.{_other_number(digits, spot)}"
    value, size = int(old), len(old)
    near = {value + 1, value - 1, value + 2, value - 2, value + 10, value - 10}
    near |= {int(old[:at] + old[at + 1] + old[at] + old[at + 2 :]) for at in range(size - 1)}
    near |= {int(replaced(old, (at, at + 1), str(spot.rng.randrange(10)))) for at in range(size)}
    fits = sorted(one for one in near if one != value and one >= 0 and len(str(one)) == size)
    if not fits:
        return str((value + 1) % 10**size).zfill(size)
    return str(spot.rng.choice(fits)).zfill(size)


def _between(text: str, at: int) -> bool:
    """Whether a sign stands between two operands, and not before a number."""
    before = text[:at].rstrip()
    return bool(before) and (before[-1].isalnum() or before[-1] in ")}%")
