"""A batch that is trained on in one optimizer step: the log-probs before the update are those of the update itself.

Decision: upstream runs the policy over each batch for `old_log_probs` before it trains. Where one step follows, the
training pass computes the same numbers, so that pass is left out: the loss takes its own log-probs, without gradient,
and the ratio of PPO is exactly 1. What upstream measured on the first pass, the entropy and how far the rollout
engine's probabilities are from the trainer's, is measured on the second.

    >>> needs_old_log_probs(config, run.reward, run.algorithm, rows=64, dropout=False)
    False
"""

import copy
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from tensordict import TensorDict

from verl.classmate.algorithm_config import AlgorithmConfig
from verl.classmate.config import ClassmateRewardModelConfig
from verl.trainer.ppo.core_algos import agg_loss
from verl.trainer.resources.model_sizes import model_config, with_defaults
from verl.utils import tensordict_utils as tu
from verl.utils.metric import AggregationType, Metric
from verl.workers.engine.fsdp.policy_engine import ENTROPY_ASIDE
from verl.workers.utils.padding import no_padding_2_padding, response_from_nested

ENTROPY_COEFF = "entropy_coeff"
"""Of a batch's extra information: the coefficient of the entropy in its loss."""

_ROWS = "entropy_rows"
"""Share of a batch's rows that have tokens, of which alone the mean entropy is taken."""

_AGREEMENT = "engine_agreement/"
"""Sums over tokens of a_i, the trainer's probability, and b_i, the engine's, on their way out of the workers."""


def needs_old_log_probs(
    config: Any, reward: ClassmateRewardModelConfig, algorithm: AlgorithmConfig, *, rows: int, dropout: bool
) -> bool:
    """Whether a batch needs a pass for `old_log_probs` before its update.

    Args:
        config: of the run; of it only upstream's keys are read.
        reward: its typed node `reward_model`.
        algorithm: its typed node `algorithm`.
        rows: of the batch, padding included.
        dropout: whether the policy's training pass differs from its other passes.
    """
    actor, correction = config.actor_rollout_ref.actor, config.algorithm.rollout_correction or {}
    asked_for = (
        algorithm.old_log_prob == "always",
        algorithm.use_kl_in_reward,
        reward.rollout_is_threshold is not None,
        any(correction.get(name) for name in ("rollout_is", "rollout_rs", "bypass_mode")),
        # The update sees the masks that are left, and the metrics are of all tokens.
        reward.token_level_main_reward_mode != "all_tokens",
    )
    one_step = actor.ppo_epochs == 1 and rows == actor.ppo_mini_batch_size * config.actor_rollout_ref.rollout.n
    distilled = bool((config.get("distillation") or {}).get("enabled", False))
    known_engine = actor.strategy in ("fsdp", "fsdp2") and config.trainer.device in ("cpu", "cuda")
    return any(asked_for) or not one_step or distilled or dropout or not known_engine


def has_dropout(model_config: Mapping[str, Any]) -> bool:
    """Whether a model's config drops something out while it trains, parts like `text_config` included."""
    return any(
        has_dropout(value)
        if isinstance(value, Mapping)
        else isinstance(value, int | float) and value > 0 and ("drop" in name and not name.startswith("classifier"))
        for name, value in model_config.items()
    )


def drops_out(model: Any) -> bool:
    """Whether the policy's training pass differs from its other passes; so taken where it cannot be known.

    Args:
        model: the config's node `actor_rollout_ref.model`.
    """
    found = model_config(model.path)
    whole = found and with_defaults({**found, **(model.get("override_config") or {})})
    return whole is None or has_dropout(whole)


def with_own_log_probs(ppo_loss: Callable[..., Any]) -> Callable[..., Any]:
    """Upstream's `ppo_loss`, which takes the update's own log-probs where a batch has no `old_log_probs`."""

    @functools.wraps(ppo_loss)
    def loss(config: Any, model_output: dict[str, Any], data: TensorDict, dp_group: Any = None) -> tuple[Any, dict]:
        entropy = model_output.pop(ENTROPY_ASIDE, None)
        config, told = with_step_numbers(config, data)
        if "old_log_probs" in data:
            value, metrics = ppo_loss(config, model_output, data, dp_group)
            return value, metrics | told
        own = model_output["log_probs"].detach()
        data["old_log_probs"] = response_from_nested(own, data["response_mask"])
        value, metrics = ppo_loss(config, model_output, data, dp_group)
        mask_BR = data["response_mask"].to_padded_tensor(0).bool()
        if entropy is not None:
            mean = agg_loss(
                loss_mat=no_padding_2_padding(entropy, data),
                loss_mask=mask_BR,
                loss_agg_mode=config.loss_agg_mode,
                **config.global_batch_info,
            )
            metrics["entropy"] = Metric(AggregationType.SUM, mean)
            if config.loss_agg_mode.startswith("seq-mean"):
                # Upstream's first pass leaves out rows that only fill the batch, its loss counts them.
                rows, of_all = mask_BR.any(dim=1).sum(), config.global_batch_info["global_batch_size"]
                metrics[_ROWS] = Metric(AggregationType.SUM, rows / of_all * config.global_batch_info["dp_size"])
        if "rollout_log_probs" in data:
            engine_BR = data["rollout_log_probs"].to_padded_tensor(0)
            own_BR = no_padding_2_padding(own, data)
            metrics |= _agreement_sums(own_BR[mask_BR], engine_BR[mask_BR], ranks=data["dp_size"])
        return value, metrics | told

    return loss


def with_step_numbers(config: Any, data: TensorDict) -> tuple[Any, dict[str, float]]:
    """The actor's config with the coefficient of the entropy that the batch brings, and metrics that tell, from where
    the loss is computed, that one and the temperature of its log-probs."""
    coefficient = tu.get_non_tensor_data(data, ENTROPY_COEFF, default=None)
    if coefficient is None:
        return config, {}
    if coefficient != config.entropy_coeff:
        # Upstream's configs refuse a new value; what it keeps in `global_batch_info` stays shared.
        config = copy.copy(config)
        object.__setattr__(config, "entropy_coeff", coefficient)
    temperature = tu.get_non_tensor_data(data, "temperature", default=1.0)
    return config, {"loss_entropy_coeff": float(coefficient), "loss_temperature": float(temperature)}


def _agreement_sums(own: torch.Tensor, engine: torch.Tensor, *, ranks: int) -> dict[str, Metric]:
    """What `take_agreement` needs, for the tokens (T) of a micro-batch; upstream takes the mean of ranks' sums."""
    a, b = own.double().exp(), engine.double().exp()
    apart = (a - b).abs()
    terms = {"n": torch.ones_like(a), "a": a, "b": b, "ab": a * b, "aa": a * a, "bb": b * b}
    terms |= {"apart": apart, "apart2": apart * apart}
    sums = {_AGREEMENT + name: Metric(AggregationType.SUM, term.sum() * ranks) for name, term in terms.items()}
    largest = apart.max() if len(apart) else torch.tensor(0.0)
    return {**sums, f"{_AGREEMENT}max": Metric(AggregationType.MAX, largest)}


def take_agreement(metrics: dict[str, Any], *, prefix: str) -> None:
    """Turns the sums that the update has left, in place, into the metrics of upstream's first pass: the entropy of rows
    that have tokens, and the metrics of `calculate_debug_metrics`.

    Args:
        metrics: of the update.
        prefix: which upstream has put before the names.
    """
    share = float(metrics.pop(f"{prefix}{_ROWS}", 1.0))
    if share > 0 and f"{prefix}entropy" in metrics:
        metrics[f"{prefix}entropy"] /= share
    name = f"{prefix}{_AGREEMENT}"
    sums = {key.removeprefix(name): float(metrics.pop(key)) for key in list(metrics) if key.startswith(name)}
    if not sums:
        return
    n, nan = sums["n"], float("nan")
    told = {"max": nan, "mean": nan, "std": nan}
    correlation = nan
    if n > 0:
        told |= {"max": sums["max"], "mean": sums["apart"] / n}
        spreads = [sums[2 * x] - sums[x] ** 2 / n for x in "ab"]
        # Less is what rounding leaves of probabilities that are all the same.
        if all(spread > 1e-12 * sums[2 * x] for x, spread in zip("ab", spreads, strict=True)):
            correlation = (sums["ab"] - sums["a"] * sums["b"] / n) / math.sqrt(math.prod(spreads))
    if n > 1:
        told["std"] = (max(0.0, sums["apart2"] - sums["apart"] ** 2 / n) / (n - 1)) ** 0.5
    metrics |= {f"training/rollout_probs_diff_{key}": value for key, value in told.items()}
    metrics["training/rollout_probs_diff_valid"] = int(n > 0)
    metrics["training/rollout_actor_probs_pearson_corr"] = correlation
