"""What has to be done before a run can start: a world built, rows prepared. Each a plain command of its own.

>>> Step(title="builds the teaching world", argv=("python", "-m", WORLD_BUILDER, "--local_dir", "data/teaching_world"))
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Step:
    """One command."""

    title: str
    """What it does, for a person."""
    argv: tuple[str, ...]
    """Program and arguments."""
