"""What a teaching world is: everything that determines its rows and its teachers. The students are the same for all.

spec = TeachingWorldSpec(seed=1, mix=Mix(right_share=1.0))
spec.short()            # the same with a few rows and steps, for tests
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from verl.classmate.errors import ConfigError
from verl.data_preprocessing.embedded_models import ModelSpec
from verl.data_preprocessing.teaching_world.students import STUDENTS, Student

_SHORT_STEPS = 2


@dataclass(frozen=True, kw_only=True)
class Mix:
    """Shares of what a teacher says in its supervised warm-up, before RL finds out what helps.

    Raises:
        ConfigError: they are no shares of one whole.
    """

    fitting: float = 0.25
    """What the plan asks for: nothing where it is sound."""
    nothing: float = 0.15
    """No advice, whatever the plan."""
    anything: float = 0.45
    """Any sentence."""
    tells: float = 0.15
    """A result with its working."""
    right_share: float = 0.6
    """Share of these results that are right."""

    def __post_init__(self) -> None:
        shares = self.shares
        if min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
            raise ConfigError(f"mix: {shares} are no shares of 1; write four such as 0.25,0.15,0.45,0.15")
        if not 0 <= self.right_share <= 1:
            raise ConfigError(f"right_share: {self.right_share:g} is no share; write a number from 0 to 1")

    @property
    def shares(self) -> tuple[float, float, float, float]:
        """The four shares in their order."""
        return self.fitting, self.nothing, self.anything, self.tells


@dataclass(frozen=True, kw_only=True)
class TeachingWorldSpec:
    """Everything that determines a world of one seed."""

    seed: int = 0
    """Seed of problems, teachers and warm-up rows."""
    train_rows: int = 1024
    """Problems to train a teacher on."""
    test_rows: int = 256
    """Held-out problems; no two numbers are in both."""
    warmup_rows: int = 6144
    """Rows of the supervised warm-up."""
    offtask_rows: int = 128
    """One-digit sums, which the base teacher knows too."""
    mix: Mix = field(default_factory=Mix)
    """Advice in the warm-up."""
    teacher: ModelSpec = field(
        default_factory=lambda: ModelSpec(
            name="teacher", tokenizer="bpe", vocab_size=420, hidden_size=64, layers=3, steps=600
        )
    )
    """The base teacher."""
    warm_steps: int = 800
    """Steps of a teacher that is taught beyond the warm-up in one go (`teacher_warm`)."""
    measured: int = 256
    """Held-out problems that students and teachers are measured on; half as many under each sentence."""
    students: Sequence[Student] = tuple(STUDENTS.values())
    """Frozen students, the same for all seeds."""

    def __post_init__(self) -> None:
        for name in ("train_rows", "test_rows", "warmup_rows", "offtask_rows"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: {getattr(self, name)} leaves a file empty; write 1 or more")

    def short(self) -> "TeachingWorldSpec":
        """The same world with a few rows, and models that were hardly taught."""

        def hardly(model: ModelSpec) -> ModelSpec:
            return dataclasses.replace(model, steps=_SHORT_STEPS, batch_size=8)

        return dataclasses.replace(
            self,
            train_rows=16,
            test_rows=8,
            warmup_rows=32,
            offtask_rows=8,
            teacher=hardly(self.teacher),
            warm_steps=_SHORT_STEPS,
            measured=8,
            students=tuple(dataclasses.replace(one, model=hardly(one.model)) for one in self.students),
        )
