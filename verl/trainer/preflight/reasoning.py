"""Checks of the node `reasoning`, and of a reference that moves.

>>> check_reasoning(config, run)
"""

from collections.abc import Mapping
from typing import Any

from verl.classmate.config import RunConfig
from verl.classmate.errors import ConfigError
from verl.stepwise.config import NODE, ReasoningConfig, this_reasoning


def check_reasoning(config: Mapping[str, Any], run: RunConfig) -> None:
    """What the node `reasoning` asks for can be had.

    Raises:
        ConfigError: naming the key and what to write instead.
    """
    reasoning = this_reasoning(config)
    if reasoning.ref_sync_every:
        _check_sync(config, run)
    longest = run.max_response_length
    if reasoning.overlong_buffer > longest:
        raise ConfigError(
            f"{NODE}.overlong_buffer={reasoning.overlong_buffer} is more than data.max_response_length={longest}; "
            f"write {longest} or less"
        )
    _check_steered(config, reasoning)


def _check_sync(config: Mapping[str, Any], run: RunConfig) -> None:
    key = f"{NODE}.ref_sync_every"
    if "rcl" in config and config["rcl"]["ref_mix"]["enable"]:
        raise ConfigError(f"{key} and rcl.ref_mix.enable=true both move the reference; write {key}=0")
    check_moving_reference(config, run, key, never=f"{key}=0")


def _check_steered(config: Mapping[str, Any], reasoning: ReasoningConfig) -> None:
    """The entropy by which the coefficient is steered is measured."""
    coefficient = config["actor_rollout_ref"]["actor"]["entropy_coeff"]
    if coefficient and reasoning.entropy_coeff.start is not None and reasoning.entropy_coeff.start != coefficient:
        raise ConfigError(
            f"actor_rollout_ref.actor.entropy_coeff={coefficient} and {NODE}.entropy_coeff.start="
            f"{reasoning.entropy_coeff.start} disagree; write only the second"
        )


def check_moving_reference(config: Mapping[str, Any], run: RunConfig, key: str, *, never: str) -> None:
    """There is a reference, and each of its shards is of the same weights as the policy's.

    Args:
        config: the whole, plain.
        run: its typed view.
        key: that moves it.
        never: what to write for one that stays.

    Raises:
        ConfigError: naming what to write instead.
    """
    policy = config["actor_rollout_ref"]
    actor, reference, model = policy["actor"], policy["ref"], policy["model"]
    if not (actor["use_kl_loss"] or run.algorithm.use_kl_in_reward):
        raise ConfigError(
            f"{key} moves a reference, but nothing is compared with one; write "
            f"actor_rollout_ref.actor.use_kl_loss=true, or {never}"
        )
    if (model.get("lora") or {}).get("rank") or model.get("lora_rank") or model.get("lora_adapter_path"):
        raise ConfigError(
            f"{key} needs a reference of its own, but with adapters it is the policy without them; write {never}"
        )
    if not actor["strategy"] == reference["strategy"] == "fsdp2":
        raise ConfigError(
            f"{key} mixes the shards of FSDP2; write actor_rollout_ref.actor.strategy=fsdp2 "
            "actor_rollout_ref.ref.strategy=fsdp2"
        )
    size, other = actor["fsdp_config"]["fsdp_size"], reference["fsdp_config"]["fsdp_size"]
    if size != other:
        raise ConfigError(
            f"{key} needs policy and reference in the same shards; write "
            f"actor_rollout_ref.ref.fsdp_config.fsdp_size={size} (it is {other})"
        )
