"""GRPO on the fused reward where the classmates read, on the main reward elsewhere.

One decision: with segments every segment is fused with its row's main reward, and all segments of a prompt are one
group, so that a segment is compared with those of the other responses and of its own.

    >>> compute_advantage(inputs, AdvantageConfig(adv_estimator="grpo_w_classmate"))

docs/method.md#how-it-becomes-an-advantage-algorithmadv_estimator
"""

import torch

from verl.classmate.algorithm_config import AdvantageConfig
from verl.trainer.ppo.advantage.base import AdvantageInputs
from verl.trainer.ppo.advantage.normalise import (
    carriers,
    fused_size,
    normalise_segments,
    normaliser,
    on_tokens,
    segment_rows,
)


def grpo_w_classmate(inputs: AdvantageInputs, config: AdvantageConfig) -> torch.Tensor:
    """A(F) k + A(r) (1 - k) m, in mode `all` A(F) m; A(r) on rows without classmate score. (B, R)."""
    normalise = normaliser(config, divide_by_std=config.norm_adv_by_std_in_grpo)
    main_BR = normalise(inputs.base_reward_B, inputs.main_rows_B, inputs.group_B).unsqueeze(-1)
    if inputs.segment_BR is None:
        size_B = fused_size(inputs, config)
        fused_BR = normalise(inputs.final_reward_B, inputs.fused_rows_B, inputs.group_B, size_B).unsqueeze(-1)
        has_fused_BR = inputs.fused_rows_B.unsqueeze(-1)
    else:
        valid_BK = segment_rows(inputs) & inputs.fused_rows_B.unsqueeze(-1)
        fused_BK, size_BK = _fused_segments(inputs, config)
        fused_BK = normalise_segments(fused_BK, valid_BK, inputs.group_B, normalise, size_BK)
        fused_BR = on_tokens(fused_BK, inputs.segment_BR)
        has_fused_BR = on_tokens(valid_BK, inputs.segment_BR)
    tokens_BR = torch.where(carriers(inputs, config) & has_fused_BR, fused_BR, main_BR)
    return tokens_BR * inputs.response_mask_BR


def _fused_segments(inputs: AdvantageInputs, config: AdvantageConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """F of each segment (B, K), by `reward_fusion`, and the size of its terms."""
    assert inputs.segment_reward_BK is not None
    weight = config.classmate_reward_weight
    main_share = 1 - weight if config.reward_fusion == "weighted_average" else 1.0
    # In float64: what float32 rounds of a sum, nearly constant groups take for differences.
    terms = [main_share * inputs.base_reward_B.double().unsqueeze(-1), weight * inputs.segment_reward_BK.double()]
    if inputs.consistency_reward_B is not None:
        terms.append(config.consistency_reward_weight * inputs.consistency_reward_B.double().unsqueeze(-1))
    fused_BK, size_BK = terms[0], terms[0].abs()
    for term_BK in terms[1:]:
        fused_BK, size_BK = fused_BK + term_BK, size_BK + term_BK.abs()
    return fused_BK, size_BK
