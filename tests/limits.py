"""How long a test may take before it counts as hanging, by its kind.

One decision: a limit is several times what the slowest test of its kind takes on two idle cores, where the whole of
`tests/run.sh` takes some twenty minutes: room for a machine that is four times slower, and for the fixtures that a test
is the first to need. A test that needs more says so with `pytest.mark.timeout`.

    >>> time_limit("tests/classmate/test_cot.py::test_a", frozenset())
    180
"""

ORDINARY_S = 180
"""Seconds at most; the slowest take 30, most of it imports in processes of their own."""

SLOW_S = 480
"""Of tests marked `slow`, which start Ray or servers; the slowest take 90."""

TRAINING_S = 900
"""Of tests in `tests/e2e`, which train once or twice; a training takes about 60 to 120."""

LONG_S = 1800
"""Of tests marked `long`."""


def time_limit(nodeid: str, marks: frozenset[str]) -> int:
    """Seconds that a test may take, with its fixtures.

    Args:
        nodeid: as pytest writes it.
        marks: names of its markers.
    """
    if "long" in marks:
        return LONG_S
    if nodeid.startswith("tests/e2e/"):
        return TRAINING_S
    return SLOW_S if "slow" in marks else ORDINARY_S
