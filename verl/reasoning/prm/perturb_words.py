"""Planted errors in the words and in the order of steps. None of them can be told to be false by calculating.

One decision: the words that are put in are words that right solutions use as well, so that no word gives a planted step
away.
"""

import re

from verl.reasoning.prm.perturb_numbers import turned_inequality
from verl.reasoning.prm.planted import Planted, Spot, replaced

_NAME = re.compile(r"\b[A-Z][a-z]{2,}\b|(?<![\w\\])[b-hj-zB-HJ-Z](?![\w'])")
_STARTERS = {"How", "What", "When", "Which", "Who", "Why", "The", "Find", "Each", "There", "She", "They", "His", "Her"}
_QUANTIFIERS = (
    ("at least", "at most"),
    ("more than", "less than"),
    ("more", "fewer"),
    ("all", "some"),
    ("each", "one"),
    ("both", "either"),
    ("every", "one"),
    ("greater", "less"),
    ("before", "after"),
    ("first", "last"),
)
_CONNECTIVES = (
    ("and", "or"),
    ("if", "unless"),
    ("because", "although"),
    ("since", "although"),
    ("with", "without"),
    ("so", "but"),
    ("therefore", "but"),
    ("then", "before"),
)
_CONDITION = re.compile(
    r"(?:,\s+|\s+)(?:if|when|unless|since|because|given that|provided that|except|only|not including)\b[^,.;]*"
    r"|^(?:If|When|Since|Because|Given that)\b[^,.;]*,\s*"
)
_BECAUSE = re.compile(r"\s+(?:because|since)\b")


def variable_swap(spot: Spot) -> Planted | None:
    """Two names, or two variables, change places."""
    asked = set(re.findall(r"\w+", spot.problem))
    # A capital at the beginning of a sentence makes no name: a name is one in the question as well, and only so.
    names = sorted(
        name
        for name in {match[0] for match in _NAME.finditer(spot.body)}
        if len(name) == 1 or (name in asked and name.lower() not in asked and name not in _STARTERS)
    )
    pairs = [(a, b) for a in names for b in names if a < b and (len(a) == 1) == (len(b) == 1)]
    if not pairs:
        return None
    a, b = spot.rng.choice(pairs)
    other = {a: b, b: a}
    text = _NAME.sub(lambda match: other.get(match[0], match[0]), spot.body)
    return _planted(spot, text, {"was": f"{a}, {b}", "is": f"{b}, {a}"})


def inequality_or_quantifier(spot: Spot) -> Planted | None:
    """An inequality is turned round, or "at least" becomes "at most"."""
    return turned_inequality(spot) or _swapped(spot, _QUANTIFIERS)


def connective_flip(spot: Spot) -> Planted | None:
    """The word "and" becomes "or", "because" becomes "although"."""
    return _swapped(spot, _CONNECTIVES)


def dropped_condition(spot: Spot) -> Planted | None:
    """A clause with "if" or "since" is left out."""
    clauses = [match.span() for match in _CONDITION.finditer(spot.body)]
    if not clauses:
        return None
    span = spot.rng.choice(clauses)
    text = replaced(spot.body, span, "")
    return _planted(spot, text[:1].upper() + text[1:], {"was": spot.body[slice(*span)].strip()})


def skipped_step(spot: Spot) -> Planted | None:
    """The step is left out, and the one behind it stands in its place; the last two cannot be."""
    if spot.place + 2 >= len(spot.steps):
        return None
    following = spot.steps[spot.place + 1].rstrip()
    return Planted(text=following + spot.tail, certainty="uncertain", meta={"was": spot.body}, drops_next=True)


def irrelevant(spot: Spot) -> Planted | None:
    """A step from the solution of another problem, as long as this one."""
    fitting = [donor for donor in spot.donors if donor.strip() not in ("", spot.body) and fits_length(spot.body, donor)]
    if not fitting:
        return None
    return _planted(spot, spot.rng.choice(fitting).rstrip(), {"was": spot.body})


def redundant(spot: Spot) -> Planted | None:
    """An earlier step once more: right, and needless."""
    fitting = [step for step in spot.steps[: spot.place] if fits_length(spot.body, step)]
    if not fitting:
        return None
    return Planted(text=spot.rng.choice(fitting).rstrip() + spot.tail, certainty="own", meta={"was": spot.body})


def circular(spot: Spot) -> Planted | None:
    """What the step claims is given as its own reason: right, and empty."""
    reason = _BECAUSE.search(spot.body)
    if reason is None:
        return None
    claim = spot.body[: reason.start()].rstrip(" ,.")
    again = claim[:1].lower() + claim[1:]
    return Planted(
        text=f"{claim}{reason[0]} {again}.{spot.tail}", certainty="own", meta={"was": spot.body[reason.start() :]}
    )


def fits_length(step: str, other: str, share: float = 0.3) -> bool:
    """Whether the letters of one are within 30 % of the other's."""
    return abs(len(other.strip()) - len(step.strip())) <= share * len(step.strip())


def _swapped(spot: Spot, pairs: tuple[tuple[str, str], ...]) -> Planted | None:
    found = [
        (match, new)
        for both in pairs
        for old, new in (both, both[::-1])
        for match in re.finditer(rf"\b{old}\b", spot.body, re.IGNORECASE)
    ]
    if not found:
        return None
    match, new = spot.rng.choice(found)
    by = new.capitalize() if match[0][:1].isupper() else new
    return _planted(spot, replaced(spot.body, match.span(), by), {"was": match[0], "is": by})


def _planted(spot: Spot, text: str, meta: dict[str, str]) -> Planted | None:
    if text == spot.body or not text.strip():
        return None
    return Planted(text=text + spot.tail, certainty="uncertain", meta=meta)
