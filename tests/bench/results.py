"""A line of the comparison's results, for tests."""

from typing import Any


def result(arm: str, seconds: float, **more: Any) -> dict[str, Any]:
    """A line of the results file."""
    numbers = {"step_s": [seconds], "median_s": seconds, "cpu_s": 3.0, "pss_mib": 1000, "start_s": 20.0}
    return {"arm": arm, "lengths": "equal", "repeat": 0, "versions": {"torch": "2.13.0+cpu"}} | numbers | more
