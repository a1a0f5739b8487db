"""Advantage estimators, one per file; importing this package registers ours with upstream.

One decision: ours get the components as they are (`AdvantageInputs`), since upstream's signature has room for one.

    >>> from verl.trainer.ppo.advantage import AdvantageInputs, compute_advantage
"""

from verl.trainer.ppo.advantage import upstream_registry  # noqa: F401  (registers them)
from verl.trainer.ppo.advantage.base import AdvantageInputs, AdvantageResult
from verl.trainer.ppo.advantage.compute import compute_advantage
from verl.trainer.ppo.advantage.normalise import group_normalise
from verl.trainer.ppo.advantage.rows import inputs_from_rows, row_fields

__all__ = [
    "AdvantageInputs",
    "AdvantageResult",
    "compute_advantage",
    "group_normalise",
    "inputs_from_rows",
    "row_fields",
]
