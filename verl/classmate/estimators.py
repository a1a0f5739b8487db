"""The advantage estimators by name, ours and upstream's, and what is known of each before a step is made.

One decision: an estimator of ours is one line in `ESTIMATORS` and one file of its name in
`verl/trainer/ppo/advantage/`, with a function of its name, which `compute.py` there finds. What each does is told under
`AlgorithmConfig.adv_estimator`.

    >>> ESTIMATORS["gdpo_wo_bn"].decoupled, ESTIMATORS["rloo"].ours
    (True, False)
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EstimatorTraits:
    """What an estimator can follow."""

    ours: bool = False
    """Whether it is written here and sees the reward's parts; upstream's see the fused scalar."""
    decoupled: bool = False
    """Whether it normalises the classmate reward on its own."""
    weighs_main: bool = False
    """Whether it has a weight for the main component."""
    fuses_segments: bool = False
    """Whether it fuses the reward of each segment of the CoT with the main one."""
    compares_group: bool = False
    """Whether it compares a row with the others of its prompt."""
    takes_cost: bool = False
    """Whether tokens can have a cost of their own, such as the KL to the reference."""
    takes_process: bool = False
    """Whether it adds rewards of the steps of an answer."""
    centres_batch: bool = False
    """Of upstream's: whether it takes the batch's mean off every row."""


_GDPO = EstimatorTraits(ours=True, decoupled=True, weighs_main=True, compares_group=True)
_PROCESS = EstimatorTraits(ours=True, compares_group=True, takes_process=True)

ESTIMATORS: Mapping[str, EstimatorTraits] = {
    "gdpo_classmate": _GDPO,
    "gdpo_wo_bn": _GDPO,
    "grpo_main_classmate_separated": EstimatorTraits(ours=True, decoupled=True, compares_group=True),
    "grpo_w_classmate": EstimatorTraits(ours=True, fuses_segments=True, compares_group=True),
    "grpo": EstimatorTraits(ours=True, compares_group=True, takes_cost=True),
    "process_grpo": _PROCESS,
    "min_form": _PROCESS,
    "prime": _PROCESS,
    "gae": EstimatorTraits(takes_cost=True),
    "rloo": EstimatorTraits(compares_group=True, takes_cost=True),
    "remax": EstimatorTraits(),
    "reinforce_plus_plus": EstimatorTraits(centres_batch=True, takes_cost=True),
    "reinforce_plus_plus_baseline": EstimatorTraits(compares_group=True, centres_batch=True),
    "opo": EstimatorTraits(compares_group=True),
    "gpg": EstimatorTraits(compares_group=True),
    "grpo_passk": EstimatorTraits(compares_group=True),
    "rloo_vectorized": EstimatorTraits(compares_group=True),
    "grpo_vectorized": EstimatorTraits(compares_group=True),
}
"""By the names that `algorithm.adv_estimator` takes, in the order in which they are told."""

OUR_ESTIMATORS = tuple(name for name, one in ESTIMATORS.items() if one.ours)
PROCESS_ESTIMATORS = tuple(name for name, one in ESTIMATORS.items() if one.takes_process)
DECOUPLED_ESTIMATORS = tuple(name for name, one in ESTIMATORS.items() if one.decoupled)
