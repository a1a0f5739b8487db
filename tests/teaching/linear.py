"""Whether a function's time grows with its text's length and no faster.

>>> assert_linear(lambda text: text.count("a"), "ab ")
"""

import time
from collections.abc import Callable

SIZE = 200_000
"""Characters of the longer text."""
RATIO = 10.0
"""Most that four times the text may take; a quadratic function takes 16."""
FLOOR = 0.1
"""Seconds below which a ratio says nothing; a quadratic function takes minutes for the longer text."""


def assert_linear(function: Callable[[str], object], unit: str) -> None:
    """Compares the processor time for a text of repeated units with that for a quarter of it."""

    def seconds(size: int) -> float:
        text = (unit * (size // len(unit) + 1))[:size]
        begin = time.thread_time()
        function(text)
        return time.thread_time() - begin

    short = min(seconds(SIZE // 4) for _ in range(2))
    long = min(seconds(SIZE) for _ in range(2))
    assert long < FLOOR or long / max(short, 1e-9) < RATIO, (unit, short, long)
