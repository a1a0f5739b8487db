"""From the rows of the transfer queue to what the estimators see.

One decision: which fields a run's rows must have follows from its options, here and nowhere else.

    >>> rows = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=["uid", *row_fields(config)])
    >>> inputs = inputs_from_rows(rows.to_padded_tensor(), uids, padding_B, config)
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from verl.classmate.algorithm_config import AdvantageConfig
from verl.classmate.record import RowRecord
from verl.trainer.ppo.advantage.base import AdvantageInputs


class Greedy(NamedTuple):
    """Rewards of a prompt's greedy response, which `remax` samples as a baseline."""

    base: float
    """r."""
    final: float
    """F; NaN where it lacks a part."""

    @classmethod
    def of_row(cls, row: Mapping[str, Any], config: AdvantageConfig) -> "Greedy | None":
        """From the row's `GREEDY_FIELDS`; None if it could not be scored."""
        if not row["main_valid"]:
            return None
        whole = row["classmate_valid"] and (row["consistency_valid"] or not config.add_consistency_reward)
        return cls(float(row["base_reward"]), float(row["final_reward"]) if whole else math.nan)


GREEDY_FIELDS = ("base_reward", "final_reward", "main_valid", "classmate_valid", "consistency_valid")
"""Fields of a row that `Greedy.of_row` reads."""


def row_fields(config: AdvantageConfig) -> list[str]:
    """Names of the fields that `inputs_from_rows` reads."""
    fields = [
        "response_mask",
        "classmate_mask",
        "base_reward",
        "classmate_reward",
        "final_reward",
        "main_valid",
        "classmate_valid",
        "classmate_asked",
        "main_correct",
    ]
    if config.add_consistency_reward:
        fields += ["consistency_reward", "consistency_valid"]
    if config.per_segment:
        fields += ["classmate_segments", "segment_rewards"]
    if config.placebo:
        fields += ["gamma", "rollout"]
    if config.adv_estimator == "gae":
        fields.append("values")
    if config.process.model is not None:
        fields += ["step_ends", "process_rewards", "process_valid"]
    return fields


def inputs_from_rows(
    rows: Mapping[str, torch.Tensor],
    group_B: np.ndarray,
    padding_B: torch.Tensor,
    config: AdvantageConfig,
    *,
    greedy: Mapping[str, Greedy] | None = None,
) -> AdvantageInputs:
    """The step's rows from padded tensors by field name.

    Args:
        rows: (B,) scalars; (B, R) masks, `classmate_segments` and `values`; (B, K) `segment_rewards`.
        group_B: uid of each row.
        padding_B: rows that only fill the batch.
        config: which parts there are.
        greedy: rewards of the greedy responses by uid, for `remax`.
    """
    response_mask_BR = rows["response_mask"]
    width = response_mask_BR.shape[1]
    more: dict[str, Any] = {}
    if config.add_consistency_reward:
        more["consistency_reward_B"] = rows["consistency_reward"].float()
        more["consistency_valid_B"] = rows["consistency_valid"].bool()
    if config.per_segment:
        more["segment_BR"] = fit_width(rows["classmate_segments"], width) * response_mask_BR
        more["segment_reward_BK"] = rows["segment_rewards"].float()
    if config.placebo:
        more["gamma_B"], more["rollout_B"] = rows["gamma"].float(), rows["rollout"]
    if config.adv_estimator == "gae":
        more["values_BR"] = fit_width(rows["values"], width).float()
    if config.process.model is not None:
        more["step_end_BR"] = fit_width(rows["step_ends"], width) * response_mask_BR
        more["process_reward_BR"] = fit_width(rows["process_rewards"], width).float()
        more["process_valid_B"] = rows["process_valid"].bool()
    if greedy is not None:
        rewards = [greedy.get(uid, Greedy(math.nan, math.nan)) for uid in group_B]
        more["greedy_base_B"], more["greedy_final_B"] = torch.tensor(rewards, dtype=torch.float32).unbind(-1)
    return AdvantageInputs(
        base_reward_B=rows["base_reward"].float(),
        classmate_reward_B=rows["classmate_reward"].float(),
        final_reward_B=rows["final_reward"].float(),
        main_valid_B=rows["main_valid"].bool(),
        classmate_valid_B=rows["classmate_valid"].bool(),
        response_mask_BR=response_mask_BR,
        classmate_mask_BR=fit_width(rows["classmate_mask"], width) * response_mask_BR,
        group_B=group_B,
        padding_B=padding_B,
        classmate_asked_B=rows["classmate_asked"].bool(),
        main_correct_B=rows["main_correct"].bool(),
        **more,
    )


def fit_width(values_BX: torch.Tensor, width: int) -> torch.Tensor:
    """Pads with zeros or cuts to `width`: a padding row carries the masks of the row that it copies."""
    if values_BX.shape[1] >= width:
        return values_BX[:, :width]
    return torch.nn.functional.pad(values_BX, (0, width - values_BX.shape[1]))


def with_advantage(
    record: RowRecord,
    advantages_R: torch.Tensor,
    classmate_mask_R: torch.Tensor,
    segment_R: torch.Tensor | None = None,
) -> RowRecord:
    """A row as it was trained on: its advantage off and on the tokens that were handed over, and on each segment.

    Most estimators give all of these tokens the same advantage; the mean is recorded, None where there is no token.
    Tokens between the answer's turns are nobody's.
    """
    written_R = torch.ones(len(advantages_R), dtype=torch.bool)
    if record.answer.turns:
        written_R[:] = False
        for first, end in record.answer.turns:
            written_R[first:end] = True

    def mean(chosen_R: torch.Tensor) -> float | None:
        chosen = advantages_R[chosen_R[: len(advantages_R)] & written_R]
        return float(chosen.double().mean()) if chosen.numel() else None

    on_segments = None
    if segment_R is not None:
        on_segments = tuple(mean(segment_R == number) for number in range(1, len(record.segment_rewards) + 1))
    steps = record.steps
    if steps is not None and steps.ends:
        first, means = 0, []
        for end in steps.ends:
            means.append(float(advantages_R[first : end + 1].double().mean()))
            first = end + 1
        steps = replace(steps, advantages=tuple(means))
    return replace(
        record,
        steps=steps,
        has_advantage=True,
        advantage=mean(classmate_mask_R == 0),
        advantage_on_cot=mean(classmate_mask_R == 1),
        advantage_on_segments=on_segments,
    )
