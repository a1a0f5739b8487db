"""A study of teachers as data: a teaching world, arms of training in it, and seeds.

Decision: an arm is Hydra overrides of the ordinary entry point, and is evaluated by the ordinary command, so that
everything that a study does can be typed by hand. What it adds is where models, rows and runs lie (`runs.py`).

    study = STUDIES["adaptive_teaching"]
    study.settings_of(study.arm("penalty_2"))          # all that is typed, but for the paths
"""

import re
from dataclasses import dataclass, replace

from verl.data_preprocessing.teaching_world.spec import TeachingWorldSpec


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One way to train a teacher.

    Raises:
        ValueError: a name that cannot be a file's.
    """

    name: str
    """What it is called on the command line and in file names; letters, digits and `_`."""
    title: str
    """What it is called in a table."""
    overrides: tuple[str, ...] = ()
    """What makes the arm: Hydra overrides."""
    controls: tuple[str, ...] = ("null",)
    """What its teacher is compared with: values of the evaluation's `--controls`."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w+", self.name):
            raise ValueError(f"arm {self.name!r}: cannot be a file's name; write letters, digits and _")


@dataclass(frozen=True, kw_only=True)
class TeachingStudy:
    """Arms of training in one teaching world, each over all seeds.

    Raises:
        ValueError: a name that cannot be a file's, or two arms of one name.
    """

    name: str
    """What it is called on the command line and in file names; letters, digits and `_`."""
    world: TeachingWorldSpec
    """The world; its seed is replaced by each seed of the study. All seeds share its students."""
    students: tuple[str, ...]
    """Names of the world's students that the teacher is trained with; the others are unseen."""
    arms: tuple[Arm, ...]
    """In the order of tables."""
    seeds: tuple[int, ...]
    """Seeds of the world's rows and teacher, and of training."""
    steps: int
    """Training steps of each run."""
    items: int
    """Held-out questions of an evaluation."""
    settings: tuple[str, ...]
    """Hydra overrides that all arms share."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w+", self.name):
            raise ValueError(f"study {self.name!r}: cannot be a file's name; write letters, digits and _")
        names = [arm.name for arm in self.arms]
        if len(set(names)) < len(names):
            raise ValueError(f"study {self.name}: two arms have the same name")

    @property
    def unseen(self) -> tuple[str, ...]:
        """Names of the students that the teacher is not trained with."""
        return tuple(one.name for one in self.world.students if one.name not in self.students)

    def arm(self, name: str) -> Arm:
        """The arm of a name. Raises KeyError if there is none."""
        return {arm.name: arm for arm in self.arms}[name]

    def of_arms(self, names: tuple[str, ...]) -> "TeachingStudy":
        """The same with these arms only, in the order of the study."""
        return replace(self, arms=tuple(arm for arm in self.arms if arm.name in names))

    def world_of(self, seed: int) -> TeachingWorldSpec:
        """The world of a seed."""
        return replace(self.world, seed=seed)

    def is_measured(self, measure: str) -> bool:
        """Whether runs have a number of this name; they are explained in `numbers.py`."""
        students = "|".join(re.escape(one.name) for one in self.world.students)
        tutors = "teacher|untrained|null|reveal|fixed_all|fixed_own"
        numbers = "APG|NDR|NDR_c|harm|TES|b|w|leak|empty|broken|clean|tokens|length"
        of_tutor = rf"({tutors})\.({students}|trained|unseen|all)\.({numbers})"
        return re.fullmatch(rf"{of_tutor}|offtask\.(before|after)", measure) is not None

    def settings_of(self, arm: Arm) -> tuple[str, ...]:
        """All overrides of an arm, but for paths and seeds."""
        # Only the last step is saved: nothing but the final teacher is evaluated.
        last = (f"trainer.total_training_steps={self.steps}", f"trainer.save_freq={self.steps}")
        return (*self.settings, *arm.overrides, *last)

    def short(self) -> "TeachingStudy":
        """Two arms and two seeds of a small world, real in every part: for CI. Its models are hardly taught."""
        return replace(
            self,
            name=f"{self.name}_short",
            world=self.world.short(),
            arms=self.arms[:2],
            seeds=self.seeds[:2],
            steps=2,
            items=4,
        )
