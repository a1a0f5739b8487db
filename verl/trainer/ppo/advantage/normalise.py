"""The group normaliser A(x) and what it makes of each part of the reward.

One decision: a part that belongs to segments of the CoT and one that belongs to all of it become the same thing here,
an advantage on every token, so that no estimator has to know which it is.

    >>> parts = components(inputs, config, divide_by_std=True)
    >>> parts.main_B.unsqueeze(-1) + parts.carriers_BR * parts.classmate_BR

docs/method.md#how-it-becomes-an-advantage-algorithmadv_estimator
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from verl.classmate.algorithm_config import AdvantageConfig
from verl.trainer.ppo.advantage.base import AdvantageInputs

EPSILON = 1e-6

SAME = 2.0**-20
"""Rewards of a group are the same if their range is this part of their size, or less: about a millionth. Those computed
along different paths differ by some float32 roundings, 2**-24 each; a thousandth on a scale of ten is 2**-13."""


class Normaliser(Protocol):
    """`group_normalise` with its options."""

    def __call__(
        self, values: torch.Tensor, valid: torch.Tensor, group: np.ndarray, size: torch.Tensor | None = None
    ) -> torch.Tensor:
        """A(x), (B,)."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Components:
    """Each part of the reward, normalised on its own; 0 on rows that lack it. Not weighted."""

    main_B: torch.Tensor
    """A(r)."""
    classmate_B: torch.Tensor
    """A(W); with segments the mean over the row's own."""
    classmate_BR: torch.Tensor
    """A(W), with segments that of the token's own."""
    consistency_B: torch.Tensor
    """A(K)."""
    carriers_BR: torch.Tensor
    """bool; tokens that carry more than the main part."""


def components(inputs: AdvantageInputs, config: AdvantageConfig, *, divide_by_std: bool) -> Components:
    """Group-normalises every part of the reward, with `classmate_advantage_clamp: non_neg_cl` applied."""
    normalise = normaliser(config, divide_by_std=divide_by_std)
    if inputs.segment_BR is None:
        classmate_B = normalise(inputs.classmate_reward_B, inputs.classmate_rows_B, inputs.group_B)
        if config.classmate_advantage_clamp == "non_neg_cl":
            classmate_B = classmate_B.clamp(min=0)
        classmate_BR = classmate_B.unsqueeze(-1).expand_as(inputs.response_mask_BR)
    else:
        assert inputs.segment_reward_BK is not None
        valid_BK = segment_rows(inputs)
        classmate_BK = normalise_segments(inputs.segment_reward_BK, valid_BK, inputs.group_B, normalise)
        if config.classmate_advantage_clamp == "non_neg_cl":
            classmate_BK = classmate_BK.clamp(min=0)
        classmate_B = classmate_BK.sum(-1) / valid_BK.sum(-1).clamp(min=1)
        classmate_BR = on_tokens(classmate_BK, inputs.segment_BR)
    main_B = main_component(inputs, normalise)
    consistency_B = torch.zeros_like(main_B)
    if inputs.consistency_reward_B is not None:
        consistency_B = normalise(inputs.consistency_reward_B, inputs.consistency_rows_B, inputs.group_B)
    return Components(
        main_B=main_B,
        classmate_B=classmate_B,
        classmate_BR=classmate_BR,
        consistency_B=consistency_B,
        carriers_BR=carriers(inputs, config),
    )


def main_component(inputs: AdvantageInputs, normalise: Normaliser) -> torch.Tensor:
    """A(r), through the gate where there is one. (B,)"""
    main_B = normalise(inputs.base_reward_B, inputs.main_rows_B, inputs.group_B)
    return main_B if inputs.gate is None else inputs.gate(main_B, inputs)


def carriers(inputs: AdvantageInputs, config: AdvantageConfig) -> torch.Tensor:
    """bool (B, R): k, the tokens of any segment, or all of the response."""
    response_BR = inputs.response_mask_BR.bool()
    if config.token_level_classmate_reward_mode == "all":
        return response_BR
    handed_over_BR = inputs.classmate_mask_BR if inputs.segment_BR is None else inputs.segment_BR
    return response_BR & handed_over_BR.bool()


def fused_size(inputs: AdvantageInputs, config: AdvantageConfig) -> torch.Tensor:
    """(B,): at least the largest term of F, whatever the fusion; for `constant`, since the terms may cancel."""
    size_B = inputs.base_reward_B.abs() + inputs.final_reward_B.abs()
    if inputs.consistency_reward_B is not None:
        size_B = size_B + (config.consistency_reward_weight * inputs.consistency_reward_B).abs()
    return size_B


def normaliser(config: AdvantageConfig, *, divide_by_std: bool, exact: bool = True) -> Normaliser:
    """`group_normalise` with the options of `config`."""

    def normalise(
        values: torch.Tensor, valid: torch.Tensor, group: np.ndarray, size: torch.Tensor | None = None
    ) -> torch.Tensor:
        return group_normalise(
            values,
            valid,
            group,
            size_B=size,
            divide_by_std=divide_by_std,
            singleton=config.singleton_group,
            exact=exact,
        )

    return normalise


def segment_rows(inputs: AdvantageInputs) -> torch.Tensor:
    """bool (B, K): segments with a reward."""
    assert inputs.segment_reward_BK is not None
    return inputs.classmate_rows_B.unsqueeze(-1) & ~torch.isnan(inputs.segment_reward_BK)


def normalise_segments(
    values_BK: torch.Tensor,
    valid_BK: torch.Tensor,
    group_B: np.ndarray,
    normalise: Normaliser,
    size_BK: torch.Tensor | None = None,
) -> torch.Tensor:
    """(B, K): each segment of each row is one member of its prompt's group."""
    rows, segments = values_BK.shape
    size = None if size_BK is None else size_BK.flatten()
    flat = normalise(values_BK.flatten(), valid_BK.flatten(), np.repeat(group_B, segments), size)
    return flat.view(rows, segments)


def on_tokens(values_BK: torch.Tensor, segment_BR: torch.Tensor) -> torch.Tensor:
    """(B, R): the value of each token's segment, 0 on tokens of none."""
    with_none = torch.nn.functional.pad(values_BK, (1, 0))
    return with_none.gather(1, segment_BR.long())


def group_normalise(
    values_B: torch.Tensor,
    valid_B: torch.Tensor,
    group_B: np.ndarray,
    *,
    divide_by_std: bool,
    singleton: str,
    size_B: torch.Tensor | None = None,
    exact: bool = True,
) -> torch.Tensor:
    """A(x) over the valid rows of each group; 0 on all others. (B,), float64, or float32 if not `exact`.

    The arithmetic is upstream's `compute_grpo_outcome_advantage`, in float32 to the last bit, but for constant groups,
    where it leaves rounding noise of any size up to 1: they get exactly 0. Just above that limit float32 still gets the
    mean wrong by as much as the rows differ, and a batch normalisation blows up what it leaves where parts cancel.

    Args:
        values_B: x.
        valid_B: rows that count.
        group_B: prompt of each row.
        divide_by_std: whether D is the standard deviation, or 1.
        singleton: `zero` or `raw`, for groups with fewer than 2 valid rows.
        size_B: see `constant`.
        exact: compute in float64, not in upstream's float32.
    """
    number = torch.float64 if exact else torch.float32
    result_B = torch.zeros_like(values_B, dtype=number)
    for rows in groups_of(group_B, valid_B):
        x = values_B[rows].to(number)
        if len(rows) < 2:
            result_B[rows] = x / (1 + EPSILON) if divide_by_std else x
            if singleton == "zero":
                result_B[rows] = 0.0
        elif constant(values_B[rows], None if size_B is None else size_B[rows]):
            result_B[rows] = 0.0
        else:
            centred = x - torch.mean(x)
            result_B[rows] = centred / (torch.std(x) + EPSILON) if divide_by_std else centred
    return result_B


def constant(values: torch.Tensor, size: torch.Tensor | None = None) -> bool:
    """Whether a group's values are the same but for rounding.

    Args:
        values: one per row.
        size: how large the terms are that each is the sum of, where they may cancel; None: as the value itself.
    """
    wide = values.double()
    largest = (wide if size is None else size.double()).abs().max()
    return bool(wide.max() - wide.min() <= SAME * largest)


def groups_of(group_B: np.ndarray, valid_B: torch.Tensor) -> list[torch.Tensor]:
    """Row numbers of the valid rows of each group, in order of appearance."""
    rows: dict[object, list[int]] = {}
    for row in torch.nonzero(valid_B).flatten().tolist():
        rows.setdefault(group_B[row], []).append(row)
    return [torch.tensor(members) for members in rows.values()]
