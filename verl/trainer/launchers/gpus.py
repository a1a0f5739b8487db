"""Which GPUs the students' servers get, and which the training.

One decision: GPUs are taken in the order in which CUDA_VISIBLE_DEVICES names them, the servers' first. What is preset
there is all that there is; without it this machine's GPUs are counted.

    >>> with_variable("4,5,6,7"): split(1, 3, dry_run=False)
    Split(servers=('4',), training=('5', '6', '7'), note=None)
"""

import os
from dataclasses import dataclass

from verl.classmate.errors import ConfigError

VARIABLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, kw_only=True)
class Split:
    """GPUs by their names in CUDA_VISIBLE_DEVICES."""

    servers: tuple[str, ...]
    """Of the students."""
    training: tuple[str, ...]
    """Of the training; empty: the CPU."""
    note: str | None = None
    """What a person should know about them."""


def preset() -> tuple[str, ...] | None:
    """What CUDA_VISIBLE_DEVICES names; None where it is not set."""
    value = os.environ.get(VARIABLE)
    if value is None:
        return None
    names: list[str] = []
    for name in (one.strip() for one in value.split(",")):
        # As CUDA reads it: whatever follows the first that is none is invisible.
        if not name or name.startswith("-"):
            break
        names.append(name)
    return tuple(names)


def split(servers: int, training: int, *, dry_run: bool) -> Split:
    """The GPUs of both parts.

    Args:
        servers: number for the students' servers.
        training: number for the training.
        dry_run: whether the command is only shown; a machine without any GPU will do then.

    Raises:
        ConfigError: there are too few.
    """
    wanted = servers + training
    if not wanted:
        return Split(servers=(), training=())
    named = preset()
    seen = named if named is not None else _of_this_machine()
    note = None
    if len(seen) < wanted and dry_run and not seen:
        note = f"no GPU is visible here; the command is for a machine with {wanted}"
        seen = tuple(map(str, range(wanted)))
    if len(seen) < wanted:
        asked = f"{servers} for the students' servers and {training} to train" if servers else f"{training} to train"
        there = f"{VARIABLE}={','.join(named)} names" if named else "this machine shows"
        raise ConfigError(
            f"{asked} are {wanted} GPUs, but {there} {len(seen)}; write smaller numbers"
            + (" (the first one is the servers')" if servers else "")
        )
    return Split(servers=seen[:servers], training=seen[servers:wanted], note=note)


def _of_this_machine() -> tuple[str, ...]:
    import torch

    return tuple(map(str, range(torch.cuda.device_count())))
