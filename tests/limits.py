"""How long a test may take before it counts as hanging, by its kind.

One decision: a limit is at least four times what the slowest test of its kind takes on two idle cores: room for a
slower machine, and for the fixtures that a test is the first to need. Only what hangs takes longer, and it must not
take longer than all the rest. A test that needs more says so with `pytest.mark.timeout`.

    >>> time_limit("tests/classmate/test_cot.py::test_a", frozenset())
    180
"""

ORDINARY_S = 180
"""Seconds at most. The slowest, which wait for processes that import verl, took 90 on two cores under ten times the
load that they can bear."""

SLOW_S = 480
"""Of tests marked `slow`, which start Ray or servers; the slowest took 90 there."""

TRAINING_S = 900
"""Of tests in `tests/e2e`, which train once or twice, each for one or two minutes on two cores of their own."""

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
    # The commands of the documents are run, a training among them.
    if nodeid.startswith(("tests/e2e/", "tests/test_docs.py")):
        return TRAINING_S
    return SLOW_S if "slow" in marks else ORDINARY_S
