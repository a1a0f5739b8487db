"""The advantages of a batch, from its rows' fields, with upstream's rollout correction.

Decision: fields in, fields out, so that the queue of a run on Ray and the batch of `debug=true` are treated alike.

    >>> fields = needed_fields(advantage_config, config)
    >>> rows = tq.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=fields)
    >>> fields = batch_advantages(rows, padding_B, config, advantage_config, {}, metrics)
    >>> fields["advantages"]                                      # nested (B, R)
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from omegaconf import DictConfig
from tensordict import TensorDict
from transfer_queue import KVBatchMeta

from verl.classmate.algorithm_config import AdvantageConfig
from verl.protocol import DataProto
from verl.teaching.config import this_teaching
from verl.teaching.taught import GATE_FIELDS
from verl.trainer.ppo.advantage import compute_advantage, inputs_from_rows, row_fields
from verl.trainer.ppo.advantage.outcome_gate import taught_inputs
from verl.trainer.ppo.advantage.rows import Greedy
from verl.trainer.ppo.kl_in_reward import kl_cost
from verl.trainer.ppo.process_guard import ProcessGuard
from verl.trainer.ppo.queue_rows import put_fields
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
from verl.workers.utils.padding import response_to_nested


def needed_fields(advantage: AdvantageConfig, config: DictConfig) -> list[str]:
    """Fields of a row that `batch_advantages` reads; not every run has all log-probs.

    Args:
        advantage: the typed `algorithm` node.
        config: of the run.
    """
    gate = () if this_teaching(config) is None else GATE_FIELDS
    kl = ("ref_log_prob",) if advantage.use_kl_in_reward else ()
    return ["uid", "rm_scores", "rollout_log_probs", "old_log_probs", *kl, *row_fields(advantage), *gate]


def advantages_in_queue(
    batch: KVBatchMeta,
    config: DictConfig,
    advantage: AdvantageConfig,
    greedy: Mapping[str, Greedy],
    metrics: dict[str, Any],
    kl_controller: Any = None,
    guard: ProcessGuard | None = None,
) -> KVBatchMeta:
    """Adds `batch_advantages` to the rows of a batch in upstream's queue; arguments as there."""
    fields = needed_fields(advantage, config)
    rows = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    padding_B = torch.tensor([bool(tag.get("is_padding", False)) for tag in batch.tags])
    fields_of = batch_advantages(rows, padding_B, config, advantage, greedy, metrics, kl_controller, guard)
    return put_fields(batch, fields_of)


def batch_advantages(
    rows: TensorDict,
    padding_B: torch.Tensor,
    config: DictConfig,
    advantage: AdvantageConfig,
    greedy: Mapping[str, Greedy],
    metrics: dict[str, Any],
    kl_controller: Any = None,
    guard: ProcessGuard | None = None,
) -> dict[str, torch.Tensor]:
    """`advantages` and `returns`, nested (B, R), and with rollout correction its masks and weights.

    Args:
        rows: their `needed_fields`, nested; `uid` is taken out.
        padding_B: rows that only fill the batch.
        config: of the run.
        advantage: the typed `algorithm` node.
        greedy: rewards of the greedy rows by prompt, for `remax`.
        metrics: gets statistics of rewards and of the correction.
        kl_controller: upstream's, where the KL to the reference is a cost of the reward.
        guard: says which rows keep their rewards of steps.
    """
    nested_mask = rows["response_mask"]
    uids = np.array(rows.pop("uid").tolist(), dtype=object)
    data = DataProto(batch=rows.to_padded_tensor())

    output_fields = ["advantages", "returns"]
    correction = config.algorithm.get("rollout_correction", None)
    # Without the engine's log-probs (rollout.calculate_log_probs=false) there is nothing to correct with.
    told = {"rollout_log_probs", "old_log_probs"} <= set(data.batch.keys())
    if correction is not None and not correction.get("bypass_mode", False) and told:
        data, correction_metrics = compute_rollout_correction_and_add_to_batch(data, correction)
        metrics.update(correction_metrics)
        output_fields.append("response_mask")
        if "rollout_is_weights" in data.batch:
            output_fields.append("rollout_is_weights")

    baselines = greedy if advantage.adv_estimator == "remax" else None
    inputs = inputs_from_rows(data.batch, uids, padding_B, advantage, greedy=baselines)
    if advantage.use_kl_in_reward:
        kind, left_out_B = config.algorithm.kl_penalty, ~inputs.main_rows_B
        cost_BR = kl_cost(data.batch, left_out_B, kind, kl_controller, metrics)
        inputs = dataclasses.replace(inputs, cost_BR=cost_BR)
    teaching = this_teaching(config)
    if teaching is not None:
        inputs, taught = taught_inputs(inputs, data.batch, teaching)
        metrics.update(taught)
    if guard is not None:
        inputs = guard.admitted(inputs, metrics)
    result = compute_advantage(inputs, advantage, config.algorithm)
    metrics.update(result.metrics)
    data.batch["advantages"], data.batch["returns"] = result.advantages_BR, result.returns_BR
    return {field: response_to_nested(data.batch[field], nested_mask) for field in output_fields}
