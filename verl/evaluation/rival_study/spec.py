"""A study of rivals as data: what `study.spec` has, and arms that fine-tune on the policy's own accepted traces.

One decision: an arm that samples and fine-tunes differs from another in its acceptance tests and its rounds alone. How
much it may sample is no setting: as many tokens as the study's RL with classmates drew with the same seed.

    study = STUDIES["transfer"]
    study.arm("rft_reader").accepts            # ('readers',)
    study.paced_by                             # the arm of RL with classmates
"""

from dataclasses import dataclass, replace
from typing import Literal

from verl.evaluation.study.spec import Arm, Study, short_world

Method = Literal["none", "rl", "rft"]
"""Nothing is trained; RL by an entry point; rejection fine-tuning."""
Test = Literal["readers", "sound", "worked"]
"""What a trace must pass beside its right answer. `readers`: each classmate answers right from the thought. `sound`: no
step of it is wrong. `worked`: it is sound, and the steps are there."""
NUMBERS = (
    "tokens_sampled",
    "tokens_trained",
    "tokens_read",
    "sampled",
    "kept",
    "kept_right",
    "kept_approved",
    "kept_sound",
    "unanswered",
    "sound",
    "sound_when_right",
    "follows_hint",
)
"""What a rival's result has beside a study's numbers; `numbers.py` explains them."""


@dataclass(frozen=True, kw_only=True)
class RivalArm(Arm):
    """One way to spend the tokens.

    Raises:
        ValueError: acceptance by readers without classmates, or tests or rounds where nothing is fine-tuned.
    """

    method: Method
    """How the policy is changed."""
    accepts: tuple[Test, ...] = ()
    """`rft`: what a trace must pass beside its right answer."""
    rounds: int = 1
    """`rft`: in how many rounds the tokens are spent; each samples with the policy of the round before."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method != "rft" and (self.accepts or self.rounds != 1):
            raise ValueError(f"arm {self.name}: accepts and rounds belong to method='rft'; leave them out")
        if "readers" in self.accepts and not self.classmates:
            raise ValueError(f"arm {self.name}: nobody approves; write classmates, or leave 'readers' out of accepts")
        if self.rounds < 1:
            raise ValueError(f"arm {self.name}: {self.rounds} rounds; write 1 or more")


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """How an arm samples traces and learns from those that are accepted."""

    samples: int = 4
    """Traces of a problem, drawn at temperature 1."""
    lr: float = 1e-3
    """Peak learning rate of AdamW: linear warm-up, then linear decay to 0."""
    epochs: int = 4
    """Passes over the accepted traces of all rounds so far."""
    batch_size: int = 32
    """Traces an update."""


@dataclass(frozen=True, kw_only=True)
class RivalStudy(Study):
    """Arms in one world, each over all seeds."""

    arms: tuple[RivalArm, ...]  # type: ignore[assignment]
    """In the order of tables."""
    paced_by: RivalArm
    """The RL arm whose sampled tokens are the budget of the fine-tuning arms, seed by seed; it is trained where one of
    them is among `arms`, even if it is not."""
    fine_tuning: FineTuning = FineTuning()
    """Shared by all arms that fine-tune."""

    def arm(self, name: str) -> RivalArm:
        """The arm of a name. Raises KeyError if there is none."""
        return {arm.name: arm for arm in self.arms}[name]

    def is_measured(self, measure: str) -> bool:
        """Whether runs have a number of this name."""
        return measure in NUMBERS or super().is_measured(measure)

    def short(self) -> "RivalStudy":
        """Two arms, the pace and the fine-tuning one with the most tests, and two seeds of a small world: for CI.

        Its models are taught too little to show anything.
        """
        rival = max((arm for arm in self.arms if arm.method == "rft"), key=lambda arm: (len(arm.accepts), arm.rounds))
        names = (self.paced_by.name, rival.name)
        arms = tuple(arm for arm in self.arms if arm.name in names)
        return replace(
            self,
            arms=arms,
            name=f"{self.name}_short",
            world=short_world(self.world, {*self.paced_by.classmates, *rival.classmates}),
            seeds=self.seeds[:2],
            steps=2,
        )
