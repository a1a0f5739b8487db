"""GDPO (arXiv 2601.05242) with a main and a classmate component: normalise each in its group, add, normalise the batch.

One decision: one mean and one standard deviation serve tokens that carry all components (the CoT that was handed over)
and tokens that carry the main one only, so that no sequence mixes two scales. The weight w multiplies the
normalised component; on the raw reward the group's standard deviation would cancel it.

Where the parts cancel in nearly all rows, their sum has next to no deviation. Tokens that carry the main part alone
would be divided by it, and get advantages of a million. The deviation therefore counts as at least a tenth of the main
part's.

    >>> compute_advantage(inputs, AdvantageConfig(adv_estimator="gdpo_classmate", classmate_reward_weight=0.5))

docs/method.md#how-it-becomes-an-advantage-algorithmadv_estimator
"""

import torch

from verl.classmate.algorithm_config import AdvantageConfig
from verl.trainer.ppo.advantage.base import AdvantageInputs
from verl.trainer.ppo.advantage.normalise import EPSILON, components

LEAST_SPREAD = 0.1
"""Of the batch's standard deviation, as a share of the main part's."""

ROUNDING = 2.0**-30
"""Of the batch's mean, as a share of its largest value: what the float64 normaliser leaves of 0, at most."""


def gdpo_classmate(inputs: AdvantageInputs, config: AdvantageConfig) -> torch.Tensor:
    """Z k + Z' (1 - k) m in mode `classmate_partial`, Z m in mode `all`. Returns (B, R)."""
    return gdpo(inputs, config, batch_norm=config.gdpo_batch_norm)


def gdpo(inputs: AdvantageInputs, config: AdvantageConfig, *, batch_norm: str) -> torch.Tensor:
    """The sum of the components, normalised over the batch by `sequence`, by `token` or not at all (`none`). (B, R)."""
    parts = components(inputs, config, divide_by_std=config.gdpo_group_norm == "std")
    main_B = config.main_reward_weight * parts.main_B
    consistency_B = config.consistency_reward_weight * parts.consistency_B
    weight = config.classmate_reward_weight
    sum_BR = main_B.unsqueeze(-1) + weight * parts.classmate_BR + consistency_B.unsqueeze(-1)
    tokens_BR = torch.where(parts.carriers_BR, sum_BR, main_B.unsqueeze(-1))
    if batch_norm == "sequence":
        sum_B = main_B + weight * parts.classmate_B + consistency_B
        sample, main = sum_B[inputs.main_rows_B], main_B[inputs.main_rows_B]
        tokens_BR = _standardise(tokens_BR, sample, main)
    elif batch_norm == "token":
        counted_BR = inputs.response_mask_BR.bool() & inputs.main_rows_B.unsqueeze(-1)
        main_BR = main_B.unsqueeze(-1).expand_as(tokens_BR)
        tokens_BR = _standardise(tokens_BR, tokens_BR[counted_BR], main_BR[counted_BR])
    return tokens_BR * inputs.response_mask_BR


def _standardise(tokens_BR: torch.Tensor, sample: torch.Tensor, main: torch.Tensor) -> torch.Tensor:
    """By mean and unbiased standard deviation of `sample`; unchanged if it has fewer than 2 values.

    `main` is the main part alone of what is in `sample`.
    """
    if sample.numel() < 2:
        return tokens_BR
    spread = torch.maximum(sample.std(), LEAST_SPREAD * main.std())
    mean = sample.mean()
    if mean.abs() <= ROUNDING * sample.abs().max():
        # Over sequences it is 0, each part being centred in its group; rows without variance are to get exactly 0.
        mean = torch.zeros_like(mean)
    return (tokens_BR - mean) / (spread + EPSILON)
