"""Whether a step's rows split: over ranks, into mini-batches and micro-batches, and by tokens.

>>> check_batch_sizes(config)                                 # raises ConfigError
"""

import contextlib
import importlib.util
import math
from collections.abc import Mapping
from typing import Any

from verl.classmate.errors import ConfigError
from verl.classmate.typed import value_at
from verl.trainer.preflight.data import count_rows
from verl.trainer.run.choices import has_critic, prompts_that_split
from verl.workers.classmates.placement import trainer_gpus

_SHARE = "actor_rollout_ref.rollout.gpu_memory_utilization"


def check_sequence_parallel(config: Mapping[str, Any]) -> None:
    """With Ulysses each rank gets a piece of every sequence; upstream joins the pieces in flash-attention only.

    With any other attention each rank would attend to its own piece of a sequence, without an error.

    Raises:
        ConfigError: naming the key and what to write instead.
    """
    ranks = trainer_gpus(config)
    policy = config["actor_rollout_ref"]
    trained = [
        ("actor_rollout_ref.actor", policy["actor"], "actor_rollout_ref.model", policy["model"]),
        ("actor_rollout_ref.ref", policy["ref"], "actor_rollout_ref.model", policy["model"]),
        ("critic", config["critic"], "critic.model", config["critic"]["model"]),
    ]
    for node, settings, model_node, model in trained:
        width = sequence_parallel(settings)
        if width == 1:
            continue
        key = f"{node}.ulysses_sequence_parallel_size"
        attention = (model.get("override_config") or {}).get("attn_implementation") or "flash_attention_2"
        if importlib.util.find_spec("flash_attn") is None:
            attention = "sdpa"
        if not attention.startswith("flash_attention"):
            raise ConfigError(
                f"{key}={width} needs flash-attention, but attention here is {attention}, with which each rank would "
                f"see only its own piece of a sequence; write {key}=1"
            )
        if not model.get("use_remove_padding"):
            raise ConfigError(
                f"{key}={width} needs sequences without padding; write {model_node}.use_remove_padding=true"
            )
        if ranks % width:
            raise ConfigError(
                f"{key}={width} does not divide the trainer's {ranks} GPUs; write {key}={math.gcd(ranks, width)}"
            )


def sequence_parallel(trained: Mapping[str, Any]) -> int:
    """Ranks that share a sequence; upstream reads either of two places."""
    nodes = (trained, trained.get("fsdp_config") or {}, trained.get("fsdp") or {})
    return max(node.get("ulysses_sequence_parallel_size") or 1 for node in nodes)


def check_engine_settings(config: Mapping[str, Any]) -> None:
    """The policy's engine, and batches that are filled by tokens, have room for the longest row.

    Raises:
        ConfigError: naming the key and what to write instead.
    """
    share = value_at(config, _SHARE)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise ConfigError(
            f"{_SHARE}={share} is not a share of a GPU's memory; write {_SHARE}=0.5, or another number between 0 and "
            "1, or null"
        )
    data, nodes = config["data"], config["actor_rollout_ref"]
    row = data["max_prompt_length"] + data["max_response_length"]
    key = "actor_rollout_ref.rollout.max_model_len"
    if (limit := nodes["rollout"]["max_model_len"]) is not None and limit < row:
        raise ConfigError(
            f"{key}={limit} is less than data.max_prompt_length + data.max_response_length = {row} tokens; write "
            f"{key}={row}, or null"
        )
    critic = config["critic"] if has_critic(config) else {}
    by_tokens = (
        ("actor_rollout_ref.actor.ppo_max", nodes["actor"], "use_dynamic_bsz", True),
        ("actor_rollout_ref.rollout.log_prob_max", nodes["rollout"], "log_prob_use_dynamic_bsz", True),
        ("actor_rollout_ref.ref.log_prob_max", nodes["ref"], "log_prob_use_dynamic_bsz", nodes["actor"]["use_kl_loss"]),
        ("critic.ppo_max", critic, "use_dynamic_bsz", bool(critic)),
    )
    for name, node, switch, is_used in by_tokens:
        key = f"{name}_token_len_per_gpu"
        tokens = node.get(key.rpartition(".")[2])
        # The ranks that share a sequence share its tokens.
        width = sequence_parallel(nodes["actor"] if name.startswith("actor_rollout_ref") else node)
        needed = -(-row // width)
        if is_used and node.get(switch) and (type(tokens) is not int or tokens < needed):
            raise ConfigError(
                f"{key}={tokens} is less than the longest row, {needed} tokens on a GPU (data.max_prompt_length + "
                f"data.max_response_length); write {key}={needed} or more"
            )


def check_batch_sizes(config: Mapping[str, Any]) -> None:
    """Batch sizes that upstream would only stumble over deep inside a step.

    Raises:
        ConfigError: naming the key and a value that fits.
    """
    train = config["data"]["train_batch_size"]
    mini = config["actor_rollout_ref"]["actor"]["ppo_mini_batch_size"]
    if train < mini:
        raise ConfigError(
            f"actor_rollout_ref.actor.ppo_mini_batch_size={mini} is larger than data.train_batch_size={train}; "
            f"write actor_rollout_ref.actor.ppo_mini_batch_size={train} or less"
        )
    _check_ranks_share_rows(config)
    _check_micro_batches(config)


def _check_ranks_share_rows(config: Mapping[str, Any]) -> None:
    """Every rank gets the same number of rows, as upstream asserts later with a message of its own."""
    nodes = config["actor_rollout_ref"]
    rollouts, ranks = nodes["rollout"]["n"], trainer_gpus(config)
    step = prompts_that_split(ranks, rollouts)
    # The ranks that share a sequence share its rows.
    split = ranks // sequence_parallel(nodes["actor"])
    sizes = [("actor_rollout_ref.actor.ppo_mini_batch_size", nodes["actor"]["ppo_mini_batch_size"], split)]
    if not nodes["actor"]["use_dynamic_bsz"]:
        sizes.insert(0, ("data.train_batch_size", config["data"]["train_batch_size"], ranks))
    for key, size, pieces in sizes:
        if size * rollouts % pieces:
            raise ConfigError(
                f"{key}={size} x actor_rollout_ref.rollout.n={rollouts} = {size * rollouts} rows cannot be divided "
                f"evenly among {pieces} ranks; write {key}={max(size - size % step, step)}, or another multiple of "
                f"{step}"
            )


def check_rows(config: Mapping[str, Any]) -> None:
    """The data suffice for a mini-batch, and for a batch that is divided evenly among the ranks.

    Comes after `check_batch_sizes`.

    Raises:
        ConfigError: with sizes that are possible.
    """
    rows = None
    # What is wrong with the files is told by their own check.
    with contextlib.suppress(ConfigError, TypeError):
        rows = count_rows(config["data"], "train_files")
    if not rows:
        return
    rollout, actor = config["actor_rollout_ref"]["rollout"], config["actor_rollout_ref"]["actor"]
    ranks = trainer_gpus(config)
    step = prompts_that_split(ranks, rollout["n"])
    if rows < step:
        fewer = next(one for one in range(ranks, 0, -1) if prompts_that_split(one, rollout["n"]) <= rows)
        nodes = "" if config["trainer"]["nnodes"] == 1 else " trainer.nnodes=1"
        more = -(-rollout["n"] // ranks) * ranks
        raise ConfigError(
            f"data.train_files has {rows} rows, and no batch of {rows} prompts or fewer, times "
            f"actor_rollout_ref.rollout.n={rollout['n']}, can be divided evenly among {ranks} ranks; write "
            f"actor_rollout_ref.rollout.n={more} or trainer.n_gpus_per_node={fewer}{nodes}"
        )
    mini, batch = actor["ppo_mini_batch_size"], config["data"]["train_batch_size"]
    if rows < batch and config["data"]["train_max_samples"] <= 0:
        fitting = rows - rows % step
        key = "actor_rollout_ref.actor.ppo_mini_batch_size"
        too_large, smaller = (f" and {key}={mini}", f" {key}={fitting}") if rows < mini else ("", "")
        raise ConfigError(
            f"data.train_files has {rows} rows, fewer than data.train_batch_size={batch}{too_large}; write "
            f"data.train_batch_size={fitting}{smaller}"
        )


def _check_micro_batches(config: Mapping[str, Any]) -> None:
    """Every rank's rows split into whole micro-batches, as upstream asserts where a batch does not grow by tokens."""
    nodes = config["actor_rollout_ref"]
    actor, rollout, ref = nodes["actor"], nodes["rollout"], nodes["ref"]
    # The ranks that share a sequence share its rows.
    ranks = trainer_gpus(config) // sequence_parallel(actor)
    mini = actor["ppo_mini_batch_size"] * rollout["n"]
    unit = math.lcm(ranks, mini)
    rows = -(-config["data"]["train_batch_size"] * rollout["n"] // unit) * unit
    log_prob, ppo = "log_prob_micro_batch_size_per_gpu", "ppo_micro_batch_size_per_gpu"
    policy, critic = "actor_rollout_ref", config["critic"]
    checks = (
        (f"{policy}.actor.{ppo}", actor[ppo], mini, actor["use_dynamic_bsz"]),
        (f"{policy}.rollout.{log_prob}", rollout[log_prob], rows, rollout["log_prob_use_dynamic_bsz"]),
        (f"{policy}.ref.{log_prob}", ref[log_prob], rows, ref["log_prob_use_dynamic_bsz"] or not actor["use_kl_loss"]),
        (f"critic.{ppo}", critic[ppo], mini, critic["use_dynamic_bsz"] or not has_critic(config)),
    )
    for key, micro, total, exempt in checks:
        if not exempt and micro is not None and (total // ranks) % micro:
            raise ConfigError(
                f"{key}={micro} does not divide the {total // ranks} rows of a rank (batch size x rollout.n); write "
                f"{key}={math.gcd(total // ranks, micro)}"
            )
