"""What a peer's file is told of a run, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.bench.compare.workload import LIMITS, Workload


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of one arm."""

    workload: Workload
    """What it works on."""
    lengths: str
    """`equal` or `real`."""
    steps: int
    """Training steps."""
    folder: Path
    """Its own and empty; gets what the run writes."""

    @property
    def limit(self) -> int:
        """Most tokens of an answer."""
        return LIMITS[self.lengths]

    @property
    def steps_file(self) -> Path:
        """Gets a line `{"step", "s"}` at the end of each step."""
        return self.folder / "steps.jsonl"

    @property
    def mapping(self) -> Path:
        """Where the servers of stubs are looked up."""
        return self.folder / "mapping.json"


@dataclass(frozen=True, kw_only=True)
class Start:
    """How it is started."""

    command: list[str]
    """Program and arguments."""
    environment: Mapping[str, str]
    """What is added to the environment."""
