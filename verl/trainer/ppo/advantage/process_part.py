"""What the estimators with rewards of steps have in common: sums over steps to come, baselines, and the guards.

One decision: the guards act on advantages, behind whatever an estimator makes of the rewards, so that none of them can
be left out by a new estimator. Shapes: B rows, R response tokens; a reward of a step stands on the step's last token.

    >>> with_process(outcome_BR, sums_to_come(rewards_BR), inputs, config)

Specification of the pipeline, section 7.4; docs/reasoning_rl.md#rewards-of-steps
"""

import math

import torch

from verl.classmate.algorithm_config import AdvantageConfig
from verl.trainer.ppo.advantage.base import AdvantageInputs
from verl.trainer.ppo.advantage.normalise import EPSILON, fused_size, groups_of, main_component, normaliser


def process_rows(inputs: AdvantageInputs) -> torch.Tensor:
    """bool (B,): rows that have rewards of steps, and a valid main reward."""
    if inputs.process_valid_B is None:
        return torch.zeros_like(inputs.main_rows_B)
    return inputs.main_rows_B & inputs.process_valid_B.bool()


def step_ends(inputs: AdvantageInputs) -> torch.Tensor:
    """bool (B, R): last tokens of the steps that have a reward."""
    if inputs.step_end_BR is None:
        return torch.zeros_like(inputs.response_mask_BR, dtype=torch.bool)
    return inputs.step_end_BR.bool() & process_rows(inputs).unsqueeze(-1)


def step_rewards(inputs: AdvantageInputs) -> torch.Tensor:
    """float64 (B, R): the rewards of these steps, 0 elsewhere."""
    ends_BR = step_ends(inputs)
    if inputs.process_reward_BR is None:
        return torch.zeros(ends_BR.shape, dtype=torch.float64)
    return torch.where(ends_BR, inputs.process_reward_BR.double(), 0.0)


def sums_to_come(values_BR: torch.Tensor) -> torch.Tensor:
    """(B, R): the sum of a token's value and of all behind it."""
    return values_BR.flip(-1).cumsum(-1).flip(-1)


def less_baseline(rewards_BR: torch.Tensor, inputs: AdvantageInputs) -> torch.Tensor:
    """(B, R): rewards less what the other answers to the prompt earn per token, times the tokens of the step.

    A baseline per step would pay for writing more or fewer steps. A row without another one of its prompt has 0.
    """
    ends_BR, valid_B = step_ends(inputs), process_rows(inputs)
    # Tokens between turns are nobody's.
    tokens_BR = inputs.response_mask_BR.double().cumsum(-1)
    until_BR = torch.where(ends_BR, tokens_BR, 0.0).cummax(-1).values
    before_BR = torch.nn.functional.pad(until_BR[:, :-1], (1, 0))
    length_BR = torch.where(ends_BR, tokens_BR - before_BR, 0.0)
    rate_B = rewards_BR.sum(-1) / inputs.response_mask_BR.double().sum(-1).clamp(min=1)
    result_BR = torch.zeros_like(rewards_BR)
    for rows in groups_of(inputs.group_B, valid_B):
        if len(rows) < 2:
            continue
        others_B = (rate_B[rows].sum() - rate_B[rows]) / (len(rows) - 1)
        result_BR[rows] = torch.where(ends_BR[rows], rewards_BR[rows] - others_B[:, None] * length_BR[rows], 0.0)
    return result_BR


def leave_one_out(inputs: AdvantageInputs, config: AdvantageConfig) -> torch.Tensor:
    """(B, R): F, or r on rows without it, less the mean of the prompt's other answers; on every token of the response.

    Constant and single groups as with the estimators grpo*.
    """
    normalise = normaliser(config, divide_by_std=False)
    fused_B = normalise(inputs.final_reward_B, inputs.fused_rows_B, inputs.group_B, fused_size(inputs, config))
    main_B = main_component(inputs, normalise)
    for values_B, valid_B in ((fused_B, inputs.fused_rows_B), (main_B, inputs.main_rows_B)):
        for rows in groups_of(inputs.group_B, valid_B):
            values_B[rows] *= len(rows) / max(1, len(rows) - 1)
    return torch.where(inputs.fused_rows_B, fused_B, main_B).unsqueeze(-1) * inputs.response_mask_BR


def with_process(
    outcome_BR: torch.Tensor, process_BR: torch.Tensor, inputs: AdvantageInputs, config: AdvantageConfig
) -> torch.Tensor:
    """The outcome's advantage and the steps', through the guards of `config.process`. (B, R).

    A row without rewards of steps keeps its outcome's advantage as it is. `inputs.told` gets the coefficient, and what
    the guards did.

    Args:
        outcome_BR: of the outcome.
        process_BR: of the steps, not yet multiplied.
        inputs: the step's rows.
        config: with the node `reward_model.process`.
    """
    options, rows_B = config.process, process_rows(inputs)
    if not bool(rows_B.any()):
        return outcome_BR
    outcome = outcome_BR.double()
    carries_BR = inputs.response_mask_BR.bool() & rows_B.unsqueeze(-1)
    wanted_BR = torch.where(carries_BR, process_BR.double(), 0.0)
    right_B = torch.zeros_like(rows_B) if inputs.main_correct_B is None else inputs.main_correct_B.bool()
    kept_BR = wanted_BR
    if options.outcome_gate:
        kept_BR = torch.where(right_B.unsqueeze(-1), kept_BR, kept_BR.clamp(max=0))
    counted_BR = inputs.response_mask_BR.bool() & inputs.main_rows_B.unsqueeze(-1)
    spread = float(outcome[counted_BR].var(unbiased=False))
    size = float(kept_BR[counted_BR].square().mean())
    coef = options.coef
    if options.max_share_of_variance is not None and size > 0:
        coef = min(coef, math.sqrt(options.max_share_of_variance * spread / size))
    kept_BR = coef * kept_BR
    if options.outcome_gate:
        kept_BR = torch.maximum(kept_BR, _lowest(outcome, right_B, inputs))
    inputs.told["reasoning/process_coef"] = coef
    share = float(kept_BR[counted_BR].square().mean()) / spread if spread > 0 else 0.0
    inputs.told["reasoning/process_share_of_variance"] = share
    changed_BR = (kept_BR - coef * wanted_BR).abs() > EPSILON
    inputs.told["reasoning/process_gated"] = float(changed_BR[carries_BR].double().mean())
    # To the last bit the outcome's where steps add nothing.
    return torch.where(kept_BR == 0, outcome, outcome + kept_BR).to(outcome_BR.dtype)


def _lowest(outcome_BR: torch.Tensor, right_B: torch.Tensor, inputs: AdvantageInputs) -> torch.Tensor:
    """(B, R), 0 or less: how far steps may take a right answer down; -inf where no answer to the prompt is wrong."""
    lowest_BR = torch.full_like(outcome_BR, -math.inf)
    for rows in groups_of(inputs.group_B, inputs.main_rows_B):
        right, wrong = rows[right_B[rows]], rows[~right_B[rows]]
        if len(right) and len(wrong):
            mask_BR = inputs.response_mask_BR[wrong].bool()
            best = outcome_BR[wrong].masked_fill(~mask_BR, -math.inf).max()
            lowest_BR[right] = (best - outcome_BR[right]).clamp(max=0)
    return lowest_BR
