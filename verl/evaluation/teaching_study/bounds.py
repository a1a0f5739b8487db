"""Which values the numbers of a study of teachers can have.

One decision: a result whose share is no share is refused where it is read, since a table would show it as a finding.

    >>> refuse_impossible("x.json", {"teacher.weak.w": 1.2})
    Traceback (most recent call last):
    ValueError: x.json: teacher.weak.w=1.2 is no number from 0 to 1; remove the file, and run its study again
"""

import math
from collections.abc import Mapping

BOUNDS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("b", "w", "NDR", "NDR_c", "harm", "leak", "empty", "broken", "before", "after"), (0.0, 1.0)),
    **dict.fromkeys(("APG", "clean"), (-1.0, 1.0)),
    **dict.fromkeys(("tokens", "length"), (0.0, math.inf)),
}
"""Measure, the last part of a number's name -> least and most. TES has none."""

_ROUNDING = 1e-9


def refuse_impossible(where: str, numbers: Mapping[str, float]) -> None:
    """Refuses shares that are none, gains that no share can make, and negative lengths.

    Args:
        where: the file, for the message.
        numbers: by name, as `numbers_of` has them.

    Raises:
        ValueError: naming the first one.
    """
    for name, value in numbers.items():
        least, most = BOUNDS.get(name.rpartition(".")[2], (-math.inf, math.inf))
        if not least - _ROUNDING <= value <= most + _ROUNDING:
            allowed = f"from {least:g} to {most:g}" if most < math.inf else f"of {least:g} or more"
            raise ValueError(
                f"{where}: {name}={value:g} is no number {allowed}; remove the file, and run its study again"
            )
