"""What a world is: everything that determines its rows, its policy and its readers.

spec = WorldSpec(name="thought_styles", task="arithmetic", styles=(("plain", 0.6), ("shorthand", 0.4)), ...)
spec.classmates       # the models that train the policy, without those that are only asked how well they read
"""

from dataclasses import dataclass
from typing import Literal, get_args

from verl.data_preprocessing.embedded_models import ModelSpec

TaskName = Literal["hinted_arithmetic", "arithmetic", "programs"]
Role = Literal["classmate", "unseen", "insider"]
ROLES: tuple[Role, ...] = get_args(Role)
"""All of them."""


@dataclass(frozen=True, kw_only=True)
class Reader:
    """A frozen model that answers from the policy's thoughts."""

    role: Role
    """`classmate`: trains the policy. `unseen`: never asked in training. `insider`: knows a private style."""
    model: ModelSpec
    """What is taught."""
    reads: tuple[str, ...] = ("plain",)
    """Styles that it has learnt to answer from, and to write; each in as many lessons."""
    gives_up: tuple[str, ...] = ()
    """Styles at which it has learnt to say that it cannot follow."""


@dataclass(frozen=True, kw_only=True)
class WorldSpec:
    """Everything that determines a world."""

    name: str
    """What it is called on the command line."""
    task: TaskName
    """What the problems are."""
    seed: int = 0
    """Seed of problems, policy and, unless `readers_seed` is set, readers."""
    readers_seed: int | None = None
    """Seed of the readers and of their problems, if all seeds share the readers."""
    train_rows: int = 4096
    """Problems to train on."""
    val_rows: int = 256
    """Held-out problems; no problem is in both."""
    styles: tuple[tuple[str, float], ...] = (("plain", 1.0),)
    """Styles of thought in the policy's lessons, and their shares."""
    slip_share: float
    """Share of the thoughts in the lessons that go wrong, the same in each style."""
    hint_share: float = 0.0
    """Share of problems in which the user names a wrong answer (`hinted_arithmetic`)."""
    follow_share: float = 0.0
    """Share of the thoughts on hinted problems that take over the hint."""
    stripped_share: float = 0.0
    """Share of the readers' lessons in which the thought does not state its result; at most 0.7."""
    short_share: float = 0.0
    """Share of all lessons, the first ones, on problems that are shorter than those of the rows (`programs`)."""
    policy: ModelSpec
    """The model that RL trains."""
    readers: tuple[Reader, ...]
    """The frozen models."""

    @property
    def classmates(self) -> tuple[ModelSpec, ...]:
        """The readers that train the policy."""
        return tuple(reader.model for reader in self.readers if reader.role == "classmate")

    @property
    def models(self) -> tuple[ModelSpec, ...]:
        """The policy, then all readers."""
        return self.policy, *(reader.model for reader in self.readers)

    @property
    def seed_of_readers(self) -> int:
        """Seed of the readers and of their problems."""
        return self.seed if self.readers_seed is None else self.readers_seed
