"""What is compared: a peer, and who reads the policy's answers.

One decision: an arm is a plain value. The peer's file makes a command of it, and the report finds by its fields what
an arm is to be compared with.

    >>> [arm.name for arm in chosen(["trl/*"])]
    ['trl/none', 'trl/one/batched', ...]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One way of training that is timed."""

    name: str
    """In tables and on the command line: `peer/who reads/how`."""
    peer: Literal["ours", "verl", "trl"]
    """Whose trainer."""
    helpers: int = 0
    """Models that read each answer of the policy."""
    how: Literal["none", "streamed", "batched", "row by row", "reward model"] = "none"
    """streamed: each row when it is written; batched: all rows of a step, then together; row by row: one request after
    the other; reward model: upstream's own, asked by its reward function."""
    engine: Literal["hf", "vllm"] = "hf"
    """Engine of the policy, and of helpers that are no stub."""
    stub: bool = False
    """The helpers wait instead of computing, and cost no CPU."""
    debug: bool = False
    """The whole run in one process (`debug=true`)."""

    @property
    def alone(self) -> str:
        """The name of the arm of this peer in which nobody reads."""
        return f"{self.name.partition('/')[0]}/none"


ARMS = (
    Arm(name="ours/none", peer="ours"),
    Arm(name="trl/none", peer="trl"),
    Arm(name="plain-verl/none", peer="verl"),
    Arm(name="ours/one/streamed", peer="ours", helpers=1, how="streamed"),
    Arm(name="ours/one/batched", peer="ours", helpers=1, how="batched"),
    Arm(name="trl/one/batched", peer="trl", helpers=1, how="batched"),
    Arm(name="trl/one/row-by-row", peer="trl", helpers=1, how="row by row"),
    Arm(name="plain-verl/reward-model", peer="verl", helpers=1, how="reward model"),
    Arm(name="ours/two/streamed", peer="ours", helpers=2, how="streamed"),
    Arm(name="ours/two/batched", peer="ours", helpers=2, how="batched"),
    Arm(name="trl/two/batched", peer="trl", helpers=2, how="batched"),
    Arm(name="trl/two/row-by-row", peer="trl", helpers=2, how="row by row"),
    Arm(name="ours/stub/streamed", peer="ours", helpers=1, how="streamed", stub=True),
    Arm(name="ours/stub/batched", peer="ours", helpers=1, how="batched", stub=True),
    Arm(name="trl/stub/batched", peer="trl", helpers=1, how="batched", stub=True),
    Arm(name="ours-in-process/none", peer="ours", debug=True),
    Arm(name="ours-in-process/one", peer="ours", helpers=1, how="streamed", debug=True),
    Arm(name="ours-vllm/none", peer="ours", engine="vllm"),
    Arm(name="ours-vllm/one/streamed", peer="ours", helpers=1, how="streamed", engine="vllm"),
    Arm(name="ours-vllm/one/batched", peer="ours", helpers=1, how="batched", engine="vllm"),
)
"""In the order in which a pass goes through them: what is compared runs one soon after the other."""


def chosen(patterns: Sequence[str], arms: Sequence[Arm] = ARMS) -> list[Arm]:
    """The arms whose names fit one of the patterns (`*` stands for anything), in their order.

    Raises:
        ValueError: a pattern that no name fits.
    """
    for pattern in patterns:
        if not any(fnmatchcase(arm.name, pattern) for arm in arms):
            raise ValueError(f"--arms {pattern}: no such arm; there are {', '.join(arm.name for arm in arms)}")
    return [arm for arm in arms if any(fnmatchcase(arm.name, pattern) for pattern in patterns)]
