"""What all advantage estimators share: their input and their result.

One decision: an estimator sees the step's whole batch as per-row scalars and masks, so that no statistic can depend on
micro-batches, ranks or row order, and rows without a valid score are excluded here, not hidden behind a number.
Shapes: B rows (prompts x n), R response tokens, K segments of a CoT.

    >>> def max_of_both(inputs: AdvantageInputs, config: AdvantageConfig) -> torch.Tensor: ...    # max_of_both.py
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from verl.classmate.algorithm_config import AdvantageConfig


class OutcomeGate(Protocol):
    """What corrects the advantages of the main part where all of a group's answers come to the same."""

    def __call__(self, advantages_B: torch.Tensor, inputs: "AdvantageInputs") -> torch.Tensor:
        """The corrected advantages, (B,)."""
        ...


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
    """bool; rows about which a classmate's answer was to count; None: all."""
    main_correct_B: torch.Tensor | None = None
    """bool; r without format reaches the threshold; None: in no row."""
    gamma_B: torch.Tensor | None = None
    """The condition's factor, NaN where there is none; needed by the placebo alone."""
    rollout_B: torch.Tensor | None = None
    """int; which of the answers to its prompt a row is; needed by the placebo alone."""
    consistency_reward_B: torch.Tensor | None = None
    """K, float; None: there is no such component."""
    consistency_valid_B: torch.Tensor | None = None
    """bool; False: outside the statistics of K and F."""
    segment_BR: torch.Tensor | None = None
    """int; segment of each token, from 1, 0 for none; None: W belongs to all tokens that were handed over."""
    segment_reward_BK: torch.Tensor | None = None
    """Reward of each segment times gamma, float; NaN where it is missing or there is no such segment."""
    values_BR: torch.Tensor | None = None
    """The critic's values, for `gae`."""
    gate: "OutcomeGate | None" = None
    """What a teacher's rows are compared by beside their rewards; None: nothing."""
    cost_BR: torch.Tensor | None = None
    """What each token costs, taken off F and r, for estimators with `takes_cost`; None: nothing."""
    greedy_base_B: torch.Tensor | None = None
    """r of the prompt's greedy response, for `remax`; NaN: it has none, and the row no advantage."""
    greedy_final_B: torch.Tensor | None = None
    """F of the prompt's greedy response, for `remax`; NaN where it lacks a part."""
    step_end_BR: torch.Tensor | None = None
    """1 on the last token of each step of the response; None: steps have no rewards."""
    process_reward_BR: torch.Tensor | None = None
    """Reward of each step on its last token, float; needs `step_end_BR`."""
    process_valid_B: torch.Tensor | None = None
    """bool; False: the steps of the row could not be scored, and it has its outcome alone."""
    told: dict[str, float] = dataclasses.field(default_factory=dict)
    """Gets what an estimator found on the way, by the names of the metrics."""

    @property
    def main_rows_B(self) -> torch.Tensor:
        """Rows with a valid main reward."""
        valid_B = self.main_valid_B.bool()
        return valid_B if self.padding_B is None else valid_B & ~self.padding_B.bool()

    @property
    def classmate_rows_B(self) -> torch.Tensor:
        """Rows with both rewards."""
        return self.main_rows_B & self.classmate_valid_B.bool()

    @property
    def consistency_rows_B(self) -> torch.Tensor:
        """Rows with a consistency reward."""
        if self.consistency_valid_B is None:
            return torch.zeros_like(self.main_rows_B)
        return self.main_rows_B & self.consistency_valid_B.bool()

    @property
    def fused_rows_B(self) -> torch.Tensor:
        """Rows whose F has all of its parts, and a baseline with all of them where the estimator takes one."""
        fused_B = self.classmate_rows_B
        if self.consistency_valid_B is not None:
            fused_B = fused_B & self.consistency_rows_B
        if self.greedy_final_B is not None:
            fused_B = fused_B & ~torch.isnan(self.greedy_final_B)
        return fused_B

    def without_classmates(self) -> "AdvantageInputs":
        """The same rows with nothing but their main reward."""
        none_B = torch.zeros_like(self.main_rows_B)
        return dataclasses.replace(
            self,
            classmate_valid_B=none_B,
            consistency_valid_B=None if self.consistency_valid_B is None else none_B,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class AdvantageResult:
    """What the actor is trained on."""

    advantages_BR: torch.Tensor
    """Per token; 0 outside the response and on rows that are not valid."""
    returns_BR: torch.Tensor
    """What a critic is trained on; where there is none, the same tensor."""
    metrics: dict[str, float]
    """Statistics of rewards per group and batch."""


Estimator = Callable[[AdvantageInputs, AdvantageConfig], torch.Tensor]
"""An estimator of ours: token advantages (B, R), rows that are not valid included."""
