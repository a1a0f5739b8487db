"""A study as data: a world, arms of training in it, and seeds.

Decision: what makes an arm is Hydra overrides of the ordinary entry points, so that everything an arm does can be typed
by hand. What a study adds is only where the models, the rows and the run folder lie (`runs.py`).

    study = STUDIES["cot_transfer"]
    study.arm("two").overrides
    study.settings_of(study.arm("two"))          # all that is typed, but for the paths
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

from verl.data_preprocessing.worlds.spec import Reader, WorldSpec
from verl.evaluation.study.summary import PERCENTS

Entry = Literal["baseline", "classmates"]
"""Whether the verifier's reward is all there is, or classmates read."""

MODULES: dict[Entry, tuple[str, ...]] = {
    "baseline": ("verl.trainer.qwen_main_ppo",),
    "classmates": ("verl.trainer.classmate_cot_main_ppo", "--config-name=classmate_cot_ppo_trainer"),
}
"""What stands behind `python -m` for each."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One way to train.

    Raises:
        ValueError: a name that cannot be a file's, or a baseline with classmates.
    """

    name: str
    """What it is called on the command line and in file names; letters, digits and `_`."""
    title: str
    """What it is called in a table."""
    entry: Entry
    """Which entry point trains."""
    classmates: tuple[str, ...] = ()
    """Names of the world's readers that are asked in training, whatever their role."""
    overrides: tuple[str, ...] = ()
    """What else makes the arm: Hydra overrides."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w+", self.name):
            raise ValueError(f"arm {self.name!r}: cannot be a file's name; write letters, digits and _")
        if self.entry == "baseline" and self.classmates:
            raise ValueError(f"arm {self.name}: a baseline has no classmates; write entry='classmates'")


@dataclass(frozen=True, kw_only=True)
class Study:
    """Arms of training in one world, each over all seeds.

    Raises:
        ValueError: a name that cannot be a file's, two arms of one name, a classmate that the world has not, or a
            learner's arm that there is not.
    """

    name: str
    """What it is called on the command line and in file names; letters, digits and `_`."""
    world: WorldSpec
    """The world; its seed is replaced by each seed of the study. All seeds share its readers."""
    arms: tuple[Arm, ...]
    """In the order of tables."""
    seeds: tuple[int, ...]
    """Seeds of the world's rows and policy, of training and of sampling."""
    steps: int
    """Training steps of each run."""
    settings: tuple[str, ...]
    """Hydra overrides that all arms share."""
    strips_by_clause: bool = True
    """Whether the answer is stripped off a thought by the rule of `reward_model...strip_answer`, beside the task's own.
    That rule leaves out whole clauses; a thought that is a single one, as in `uneven_steps`, would vanish."""
    learner_arms: tuple[str, ...] = ()
    """Arms for which it is measured from how many samples a reader learns the texts."""
    learner_samples: tuple[int, ...] = (0, 64, 256, 1024, 2048)
    """After how many samples the learner is asked, ascending."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w+", self.name):
            raise ValueError(f"study {self.name!r}: cannot be a file's name; write letters, digits and _")
        names = [arm.name for arm in self.arms]
        if len(set(names)) < len(names):
            raise ValueError(f"study {self.name}: two arms have the same name")
        readers = [reader.model.name for reader in self.world.readers]
        for arm in self.arms:
            for name in arm.classmates:
                if name not in readers:
                    raise ValueError(f"arm {arm.name}: no reader {name} in the world; use {', '.join(readers)}")
        for name in self.learner_arms:
            if name not in names:
                raise ValueError(f"study {self.name}: learner_arms has {name}, which is no arm")

    def arm(self, name: str) -> Arm:
        """The arm of a name. Raises KeyError if there is none."""
        return {arm.name: arm for arm in self.arms}[name]

    def world_of(self, seed: int) -> WorldSpec:
        """The world of a seed."""
        return replace(self.world, seed=seed)

    def reader(self, name: str) -> Reader:
        """The reader of a name. Raises KeyError if there is none."""
        return {reader.model.name: reader for reader in self.world.readers}[name]

    def is_measured(self, measure: str) -> bool:
        """Whether runs have a number of this name: one of `RunResult.numbers`, or a point of a curve."""
        readers = "|".join(re.escape(one.model.name) for one in self.world.readers)
        samples = "|".join(map(str, self.learner_samples))
        possible = [
            r"(start_)?(accuracy|tokens|unseen|unseen_raw|style_\w+)",
            rf"(reads|reads_full|alone)_({readers})",
            rf"curves\.({readers})\.({'|'.join(map(str, PERCENTS))})",
            rf"classmates|insider_gap|samples_to_learn|learner_({samples})",
        ]
        return any(re.fullmatch(one, measure) for one in possible)

    def settings_of(self, arm: Arm) -> tuple[str, ...]:
        """All overrides of an arm, but for paths and seeds; where a key comes twice, the arm's wins."""
        mine = {_key(override) for override in arm.overrides}
        shared = tuple(override for override in self.settings if _key(override) not in mine)
        # Only the last step is saved: nothing but the final policy is needed, and a run takes a few minutes.
        last = (f"trainer.total_training_steps={self.steps}", f"trainer.save_freq={self.steps}")
        return (*shared, *arm.overrides, *last)

    def of_arms(self, names: tuple[str, ...]) -> "Study":
        """The same with these arms only, in the order of the study."""
        kept = tuple(arm for arm in self.arms if arm.name in names)
        return replace(self, arms=kept, learner_arms=tuple(n for n in self.learner_arms if n in names))

    def with_steps(self, steps: int) -> "Study":
        """The same with other training steps, under a name that says so."""
        return self if steps == self.steps else replace(self, name=f"{self.name}_{steps}_steps", steps=steps)

    def short(self) -> "Study":
        """Two arms (the baseline and two classmates) and two seeds of a small world, real in every part: for CI.

        Its models are taught too little to show anything. Raises ValueError for a study without these arms.
        """
        missing = [name for name in _SHORT_ARMS if name not in [arm.name for arm in self.arms]]
        if missing:
            raise ValueError(f"{self.name} has no short form, since it has no arm {missing[0]}; leave --short out")
        wanted = {name for arm in self.arms if arm.name in _SHORT_ARMS for name in arm.classmates}
        return replace(
            self.of_arms(_SHORT_ARMS),
            name=f"{self.name}_short",
            world=short_world(self.world, wanted),
            seeds=self.seeds[:2],
            steps=4,
            learner_arms=_SHORT_ARMS[:1],
            learner_samples=(0, 32, 64),
        )


_SHORT_ARMS = ("baseline", "two")


def short_world(world: WorldSpec, readers: Collection[str]) -> WorldSpec:
    """A small form of a world with these readers and one unseen one, all hardly taught."""
    unseen = [reader.model.name for reader in world.readers if reader.role == "unseen"][:1]
    kept = tuple(r for r in world.readers if r.model.name in {*readers, *unseen})
    return replace(
        world,
        # A folder of its own.
        name=f"{world.name}_short",
        train_rows=256,
        val_rows=64,
        policy=replace(world.policy, steps=world.policy.steps // 8),
        readers=tuple(replace(r, model=replace(r.model, steps=r.model.steps // 8)) for r in kept),
    )


def _key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]
