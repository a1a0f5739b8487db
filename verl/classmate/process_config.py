"""The node `reward_model.process`: a frozen model that rewards each step of an answer, and what keeps it in bounds.

One decision: the guards are on by default. A reward of steps ranks and filters well and is exploited soon when it is
trained on, so it may move a policy only as far as the outcome agrees.

    reward_model.process.model=reasoning_output/prm/model algorithm.adv_estimator=process_grpo

docs/reasoning_rl.md
"""

from dataclasses import dataclass, field

from verl.classmate.specs import Placement
from verl.classmate.typed import COUNT, FRACTION, require

NODE = "reward_model.process"

FEWEST_STEPS = 5
"""Of training, over which a rise and a fall are told from noise."""


@dataclass(frozen=True, kw_only=True)
class ProcessRewardConfig:
    """Rewards of steps, for the estimators process_grpo, min_form and prime."""

    model: str | None = None
    """Folder of a process reward model, with its `prm.json`, as `verl.reasoning.prm` saves them; null: steps have no
    rewards."""
    coef: float = field(default=1.0, metadata={"at_least": 0, "write": "1.0"})
    """What the advantage of the steps is multiplied by before it is added to that of the outcome; at most, see the
    next."""
    max_share_of_variance: float | None = field(default=0.3, metadata={"above": 0, "write": "0.3, or null"})
    """The coefficient is lowered in a step until the mean square of what steps add is no more than this share of the
    variance of the outcome's advantage, over the tokens of the batch; null: it never is."""
    outcome_gate: bool = True
    """On a wrong answer steps earn nothing and may only cost; on a right one they never take the advantage below the
    best of the wrong answers to the same prompt."""
    max_step_growth: float | None = field(default=0.5, metadata={"at_least": 0, "write": "0.5, or null"})
    """Answers with more steps than 1 + this times their mean number in the run's first step, or fewer than that number
    divided by it, have no rewards of steps, so that more or fewer steps do not pay; null: all have."""
    stop_after: int = field(default=20, metadata={"at_least": 0, "write": "20 (0: never)"})
    """The run ends with an error when over so many steps of training the reward of the steps has risen and the share of
    right answers has fallen, both beyond what noise explains (3 standard errors of a straight line); 0: never."""
    max_junk_score: float = field(default=0.2, metadata={**FRACTION, "write": "0.2"})
    """A run starts only if the model gives texts like "thanks" less than this; 1: any model will do."""
    min_form_temperature: float = field(default=0.1, metadata={"above": 0, "write": "0.1"})
    """min_form: the lower, the more the worst step alone counts."""
    placement: Placement | None = None
    """Of its engines, colocated or dedicated; null: as the classmates'."""
    replicas: int | None = field(default=None, metadata=COUNT)
    """Engines that share its requests; null: if it is colocated, one for each of the policy's GPUs; else one."""

    def __post_init__(self) -> None:
        require(
            self.stop_after == 0 or self.stop_after >= FEWEST_STEPS,
            f"{NODE}.stop_after: {self.stop_after} steps tell no rise from noise; write {FEWEST_STEPS} or more, or 0",
        )
        require(self.model is None or self.model.strip() != "", f"{NODE}.model: is empty; write a folder, or null")
