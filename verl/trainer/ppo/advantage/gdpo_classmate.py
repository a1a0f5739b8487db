"""GDPO (arXiv 2601.05242) with a main and a classmate component: normalise each in its group, add, normalise the batch.

One decision: one mean and one standard deviation serve tokens that carry both components (the CoT that was handed over)
and tokens that carry the main one only, so that no sequence mixes two scales (spec 4.3). The weight w multiplies the
normalised component; on the raw reward the group's standard deviation would cancel it.

    >>> compute_advantage(inputs, AdvantageConfig(adv_estimator="gdpo_classmate", classmate_reward_weight=0.5))
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from verl.classmate.config import AdvantageConfig, algorithm_from_mapping
from verl.trainer.ppo.advantage.base import (
    EPSILON,
    AdvantageInputs,
    compute_advantage,
    group_normalise,
    register_estimator,
)
from verl.trainer.ppo.core_algos import register_adv_est


@register_estimator("gdpo_classmate")
def gdpo_classmate(inputs: AdvantageInputs, config: AdvantageConfig) -> torch.Tensor:
    """Z k + Z' (1 - k) m in mode `classmate_partial`, Z m in mode `all` (spec 4.2). Returns (B, R)."""

    def normalise(values_B: torch.Tensor, valid_B: torch.Tensor) -> torch.Tensor:
        return group_normalise(
            values_B,
            valid_B,
            inputs.group_B,
            divide_by_std=config.gdpo_group_norm == "std",
            singleton=config.singleton_group,
            snap_constant=config.gdpo_batch_norm != "none",
        )

    main_B = config.main_reward_weight * normalise(inputs.base_reward_B, inputs.main_rows_B)
    classmate_B = normalise(inputs.classmate_reward_B, inputs.classmate_rows_B)
    sum_B = main_B + config.classmate_reward_weight * classmate_B

    on_cot_BR = inputs.response_mask_BR.bool()
    if config.token_level_classmate_reward_mode == "classmate_partial":
        on_cot_BR = on_cot_BR & inputs.classmate_mask_BR.bool()
    tokens_BR = torch.where(on_cot_BR, sum_B.unsqueeze(-1), main_B.unsqueeze(-1))
    if config.gdpo_batch_norm == "sequence":
        tokens_BR = _standardise(tokens_BR, sum_B[inputs.main_rows_B])
    elif config.gdpo_batch_norm == "token":
        counted_BR = inputs.response_mask_BR.bool() & inputs.main_rows_B.unsqueeze(-1)
        tokens_BR = _standardise(tokens_BR, tokens_BR[counted_BR])
    return tokens_BR * inputs.response_mask_BR


def _standardise(tokens_BR: torch.Tensor, sample: torch.Tensor) -> torch.Tensor:
    """By mean and unbiased standard deviation of `sample`; unchanged if it has fewer than 2 values."""
    if sample.numel() < 2:
        return tokens_BR
    return (tokens_BR - sample.mean()) / (sample.std() + EPSILON)


@register_adv_est("gdpo_classmate")
def gdpo_classmate_from_tokens(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: np.ndarray,
    config: Mapping[str, Any] | None = None,
    *,
    classmate_reward: torch.Tensor | None = None,
    classmate_mask: torch.Tensor | None = None,
    classmate_valid: torch.Tensor | None = None,
    main_valid: torch.Tensor | None = None,
    reward_options: Mapping[str, Any] | None = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same estimator behind upstream's registry (`core_algos.get_adv_estimator_fn("gdpo_classmate")`).

    Upstream's trainer passes the first four arguments only: then the given reward is the one component.

    Args:
        token_level_rewards: (B, R), summed per row to r.
        response_mask: (B, R).
        index: (B,) uid of each row.
        config: the node `algorithm`.
        classmate_reward: (B,) W; None: no classmate component.
        classmate_mask: (B, R) k; None: the whole response.
        classmate_valid, main_valid: (B,) bool; None: all.
        reward_options: fields of `AdvantageConfig` from the node `reward_model`, such as classmate_reward_weight.
    """
    reward_B = token_level_rewards.sum(dim=-1)
    all_B = torch.ones_like(reward_B, dtype=torch.bool)
    algorithm = algorithm_from_mapping(dict(config or {}) | {"adv_estimator": "gdpo_classmate"})
    options = AdvantageConfig(
        adv_estimator="gdpo_classmate",
        gdpo_batch_norm=algorithm.gdpo_batch_norm,
        gdpo_group_norm=algorithm.gdpo_group_norm,
        singleton_group=algorithm.singleton_group,
        **dict(reward_options or {}),
    )
    inputs = AdvantageInputs(
        base_reward_B=reward_B,
        classmate_reward_B=torch.zeros_like(reward_B) if classmate_reward is None else classmate_reward,
        final_reward_B=reward_B,
        main_valid_B=all_B if main_valid is None else main_valid,
        classmate_valid_B=(all_B if classmate_valid is None else classmate_valid)
        if classmate_reward is not None
        else ~all_B,
        response_mask_BR=response_mask,
        classmate_mask_BR=response_mask if classmate_mask is None else classmate_mask,
        group_B=index,
        classmate_asked_B=~all_B if classmate_reward is None else None,
    )
    result = compute_advantage(inputs, options)
    return result.advantages_BR, result.returns_BR
