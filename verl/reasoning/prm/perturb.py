"""Plants an error in a right solution: thirteen kinds, and what makes sure that the planted step is wrong.

One decision: a planted step is called wrong only if exact arithmetic says so or if no completion from it ends right.
It is never called wrong because of how the spliced solution ends, and what is merely needless (`redundant`,
`circular`) never is.

    >>> plant("What is 3 + 4?", ["3 + 4 = 7.\\n", "Answer: 7"], 0, "arithmetic_result", random.Random(0))
    Planted(text='3 + 4 = 9.\\n', certainty='exact', ...)
"""

import random
from collections.abc import Sequence
from dataclasses import replace

from verl.classmate.errors import ConfigError
from verl.reasoning.prm import perturb_numbers as numbers
from verl.reasoning.prm import perturb_words as words
from verl.reasoning.prm.planted import Kind, Planted, Spot

KINDS: dict[str, Kind] = {
    "arithmetic_result": numbers.arithmetic_result,
    "operand_copy": numbers.operand_copy,
    "sign_flip": numbers.sign_flip,
    "unit_or_percent": numbers.unit_or_percent,
    "variable_swap": words.variable_swap,
    "inequality_or_quantifier": words.inequality_or_quantifier,
    "connective_flip": words.connective_flip,
    "dropped_condition": words.dropped_condition,
    "skipped_step": words.skipped_step,
    "circular": words.circular,
    "redundant": words.redundant,
    "irrelevant": words.irrelevant,
    "contradiction": numbers.contradiction,
}
"""All of spec 3.4 B."""
KINDS_OF: dict[str, tuple[str, ...]] = {
    "arithmetic_error": ("arithmetic_result", "operand_copy", "sign_flip", "unit_or_percent"),
    "logic_error": (
        "variable_swap",
        "inequality_or_quantifier",
        "connective_flip",
        "dropped_condition",
        "contradiction",
    ),
    "irrelevant_step": ("irrelevant",),
    "incomplete_step": ("skipped_step",),
    "circular_reasoning": ("circular", "redundant"),
}
"""The original document's five names."""


def kinds_of(names: Sequence[str]) -> tuple[str, ...]:
    """The kinds that names stand for, each once.

    Raises:
        ConfigError: an unknown name.
    """
    found: dict[str, None] = {}
    for name in names:
        if name not in KINDS and name not in KINDS_OF:
            raise ConfigError(
                f"PRMConfig.perturbation_types has {name!r}: write some of {', '.join([*KINDS_OF, *KINDS])}"
            )
        found.update(dict.fromkeys(KINDS_OF.get(name, (name,))))
    return tuple(found)


def plant(
    problem: str, steps: Sequence[str], place: int, kind: str, rng: random.Random, donors: Sequence[str] = ()
) -> Planted | None:
    """A wrong step in place of a right one; None if this step cannot be wrong in this way.

    The planted step is of the same form: within 30 % of its length, with the blanks behind it.

    Args:
        problem: the question.
        steps: of a solution that was verified.
        place: of the step, from 0.
        kind: of `KINDS`.
        rng: decides what is changed.
        donors: steps of other problems' solutions, for `irrelevant`.

    Raises:
        IndexError: there is no such step.
    """
    spot = Spot(problem=problem, steps=tuple(steps), place=place, rng=rng, donors=donors)
    if not spot.body:
        return None
    made = KINDS[kind](spot)
    if made is None or not words.fits_length(spot.body, made.text) or made.text.strip() == spot.body.strip():
        return None
    return replace(made, kind=kind, place=place)


def spliced(steps: Sequence[str], planted: Planted) -> tuple[str, ...]:
    """The solution with the planted step; the steps behind it are the old ones."""
    behind = planted.place + 1 + int(planted.drops_next)
    return (*steps[: planted.place], planted.text, *steps[behind:])


def plant_several(
    problem: str,
    steps: Sequence[str],
    kinds: Sequence[str],
    count: int,
    rng: random.Random,
    donors: Sequence[str] = (),
) -> list[Planted]:
    """At most so many planted steps, of kinds and places that are drawn; no two are alike."""
    pairs = [(place, kind) for place in range(len(steps)) for kind in kinds]
    rng.shuffle(pairs)
    found: dict[tuple[int, str], Planted] = {}
    used: dict[str, int] = {}
    while pairs and len(found) < count:
        # The kind that was planted least comes first, so that one that fits everywhere does not crowd out the others.
        pairs.sort(key=lambda pair: used.get(pair[1], 0))
        place, kind = pairs.pop(0)
        made = plant(problem, steps, place, kind, rng, donors)
        if made is not None and (place, made.text) not in found:
            found[place, made.text] = made
            used[kind] = used.get(kind, 0) + 1
    return list(found.values())
