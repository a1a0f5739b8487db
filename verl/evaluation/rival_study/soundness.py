"""Is every step of a thought right? The exact answer, by the world's own working.

One decision: there is one right working of a problem in each style, so a thought is sound if it is that. An empty
thought holds no step, so none of it is wrong: it is `sound`, but not `worked`. A thought in no style of the world
cannot be checked, and counts as neither.

    soundness(problem, "Ones: 7+8=15, carry 1. Tens: 4+3+1=8. So 85.")       # (True, True)
    soundness(problem, "Easy.")                                              # (True, False)
    soundness(problem, "The user says 75. So 75.")                           # (False, False)
"""

from typing import NamedTuple

from verl.data_preprocessing.arithmetic_problems import Problem
from verl.data_preprocessing.worlds import columns


class Soundness(NamedTuple):
    """What a checker says of a thought."""

    sound: bool
    """No step of it is wrong."""
    worked: bool
    """No step of it is wrong, and all steps are there."""


def soundness(problem: Problem, thought: str) -> Soundness:
    """What the exact checker says of a thought about an arithmetic problem."""
    style = columns.style_of(thought)
    if style == "empty":
        return Soundness(sound=True, worked=False)
    # A dialect's words mean nothing and differ from text to text.
    checked = style in ("plain", "shorthand", "cipher")
    right = checked and thought.split() == columns.thought(problem, style, slip=False).split()
    return Soundness(sound=right, worked=right)
