"""What all advantage estimators share: their input, the group normaliser, the registry, and the rows that are left out.

One decision: an estimator sees the step's whole batch as per-row scalars and masks, so that no statistic can depend on
micro-batches, ranks or row order, and rows without a valid score are excluded here, not hidden behind a number.
Shapes: B rows (prompts x n), R response tokens.

    >>> result = compute_advantage(inputs, AdvantageConfig.build(reward_config, algorithm_config))
    >>> result.advantages_BR, result.metrics["classmate/excluded_groups"]
"""

import dataclasses
import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from verl.classmate.config import AdvantageConfig

logger = logging.getLogger(__name__)
EPSILON = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class AdvantageInputs:
    """One step's rows. Values of rows that are not valid are ignored, whatever they are."""

    base_reward_B: torch.Tensor
    """r, float."""
    classmate_reward_B: torch.Tensor
    """W = gamma C, float, not yet weighted."""
    final_reward_B: torch.Tensor
    """F, float."""
    main_valid_B: torch.Tensor
    """bool; False: no advantage on any token, outside all statistics."""
    classmate_valid_B: torch.Tensor
    """bool; False: outside the statistics of W and F."""
    response_mask_BR: torch.Tensor
    """m: 1 on the policy's tokens."""
    classmate_mask_BR: torch.Tensor
    """k: 1 on the tokens that were handed over."""
    group_B: np.ndarray
    """Prompt of each row (verl's uid), object."""
    padding_B: torch.Tensor | None = None
    """bool; True: a copy that only fills the batch, treated like a row that is not valid."""
    classmate_asked_B: torch.Tensor | None = None
    """bool; rows about which a classmate was asked; None: all."""

    @property
    def main_rows_B(self) -> torch.Tensor:
        """Rows with a valid main reward."""
        valid_B = self.main_valid_B.bool()
        return valid_B if self.padding_B is None else valid_B & ~self.padding_B.bool()

    @property
    def classmate_rows_B(self) -> torch.Tensor:
        """Rows with both rewards."""
        return self.main_rows_B & self.classmate_valid_B.bool()


@dataclass(frozen=True, kw_only=True, eq=False)
class AdvantageResult:
    """What the actor is trained on."""

    advantages_BR: torch.Tensor
    """Per token; 0 outside the response and on rows that are not valid."""
    returns_BR: torch.Tensor
    """The same tensor: there is no critic."""
    metrics: dict[str, float]
    """Statistics of rewards per group and batch."""


Estimator = Callable[[AdvantageInputs, AdvantageConfig], torch.Tensor]
ESTIMATORS: dict[str, Estimator] = {}


def register_estimator(name: str) -> Callable[[Estimator], Estimator]:
    """Adds an estimator to the registry; it returns token advantages (B, R), rows that are not valid included."""

    def add(function: Estimator) -> Estimator:
        ESTIMATORS[name] = function
        return function

    return add


def compute_advantage(inputs: AdvantageInputs, config: AdvantageConfig) -> AdvantageResult:
    """Token advantages of one step by `config.adv_estimator` (spec 4), and metrics.

    If fewer than `min_classmate_valid_fraction` of the asked rows have a classmate score, the classmate component is
    left out of the whole step, which is logged as an error and counted in `classmate/main_only_steps`.
    """
    inputs, main_only = _without_sparse_classmates(inputs, config)
    tokens_BR = ESTIMATORS[config.adv_estimator](inputs, config)
    advantages_BR = torch.where(inputs.main_rows_B.unsqueeze(-1), tokens_BR, torch.zeros_like(tokens_BR))
    metrics = _metrics(inputs, config) | {"classmate/main_only_steps": float(main_only)}
    return AdvantageResult(advantages_BR=advantages_BR, returns_BR=advantages_BR, metrics=metrics)


def group_normalise(
    values_B: torch.Tensor,
    valid_B: torch.Tensor,
    group_B: np.ndarray,
    *,
    divide_by_std: bool,
    singleton: str,
    snap_constant: bool = False,
) -> torch.Tensor:
    """A(x) of spec 4.1 over the valid rows of each group; 0 on all others. Float32 (B,).

    The arithmetic is upstream's `compute_grpo_outcome_advantage`, to the last bit. Upstream leaves rounding noise of
    about 1e-2 in groups of equal rewards such as 0.1; `snap_constant` makes these exactly 0, which a batch
    normalisation needs, since it would blow the noise up when all groups are constant.
    """
    result_B = torch.zeros_like(values_B, dtype=torch.float32)
    for rows in groups_of(group_B, valid_B):
        x = values_B[rows].float()
        if len(rows) < 2:
            result_B[rows] = x / (1 + EPSILON) if divide_by_std else x
            if singleton == "zero":
                result_B[rows] = 0.0
        elif snap_constant and bool((x == x[0]).all()):
            result_B[rows] = 0.0
        else:
            centred = x - torch.mean(x)
            result_B[rows] = centred / (torch.std(x) + EPSILON) if divide_by_std else centred
    return result_B


def groups_of(group_B: np.ndarray, valid_B: torch.Tensor) -> list[torch.Tensor]:
    """Row numbers of the valid rows of each group, in order of appearance."""
    rows: dict[object, list[int]] = {}
    for row in torch.nonzero(valid_B).flatten().tolist():
        rows.setdefault(group_B[row], []).append(row)
    return [torch.tensor(members) for members in rows.values()]


def _without_sparse_classmates(inputs: AdvantageInputs, config: AdvantageConfig) -> tuple[AdvantageInputs, bool]:
    asked_B = inputs.main_rows_B if inputs.classmate_asked_B is None else inputs.main_rows_B & inputs.classmate_asked_B
    asked, valid = int(asked_B.sum()), int(inputs.classmate_rows_B.sum())
    if not asked or valid >= config.min_classmate_valid_fraction * asked:
        return inputs, False
    logger.error(
        "only %d of %d rows have a classmate score, fewer than min_classmate_valid_fraction=%s: this step trains on "
        "the main reward alone",
        valid,
        asked,
        config.min_classmate_valid_fraction,
    )
    none_B = torch.zeros_like(inputs.classmate_rows_B)
    return dataclasses.replace(inputs, classmate_valid_B=none_B), True


def _metrics(inputs: AdvantageInputs, config: AdvantageConfig) -> dict[str, float]:
    main = _reward_metrics("main", inputs.base_reward_B, inputs.main_rows_B, inputs.group_B)
    weighted_B = config.classmate_reward_weight * inputs.classmate_reward_B
    classmate = _reward_metrics("classmate", weighted_B, inputs.classmate_rows_B, inputs.group_B, prefix="weighted_")
    groups = len(groups_of(inputs.group_B, inputs.main_rows_B))
    usable = sum(len(rows) >= 2 for rows in groups_of(inputs.group_B, inputs.classmate_rows_B))
    return main | classmate | {"classmate/excluded_groups": float(groups - usable)}


def _reward_metrics(
    name: str, values_B: torch.Tensor, valid_B: torch.Tensor, group_B: np.ndarray, prefix: str = ""
) -> dict[str, float]:
    if not bool(valid_B.any()):
        return {}
    groups = [values_B[rows].float() for rows in groups_of(group_B, valid_B)]
    means = torch.stack([x.mean() for x in groups])
    stds = torch.stack([x.std() if len(x) > 1 else torch.zeros(()) for x in groups])
    metrics = {f"critic/{prefix}{name}_group_reward_std/mean": float(stds.mean())}
    per_row = values_B[valid_B].float()
    for key, values in ((f"batch_{name}_reward", per_row), (f"{prefix}{name}_group_reward_mean", means)):
        metrics |= {
            f"critic/{key}/mean": float(values.mean()),
            f"critic/{key}/max": float(values.max()),
            f"critic/{key}/min": float(values.min()),
        }
    return metrics
