"""Advantage estimators, one per file; importing this package registers them here and, where new, with upstream.

One decision: ours get the two components as they are (`AdvantageInputs`), since upstream's signature has room for one.

    >>> from verl.trainer.ppo.advantage import AdvantageInputs, compute_advantage
"""

from verl.trainer.ppo.advantage import gdpo_classmate, grpo  # noqa: F401  (registers them)
from verl.trainer.ppo.advantage.base import (
    ESTIMATORS,
    AdvantageInputs,
    AdvantageResult,
    compute_advantage,
    group_normalise,
)

__all__ = ["ESTIMATORS", "AdvantageInputs", "AdvantageResult", "compute_advantage", "group_normalise"]
