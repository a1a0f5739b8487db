"""Checks before anything heavy starts: each mistake is one line that says what to do, within seconds, nothing written.

Decision: what would fail or hang deep inside a run is looked for here, on the real files and tokenizers.

    >>> check(config, reward_config, needs_classmates=True)          # raises ConfigError
"""

import contextlib
import importlib.util
import io
import logging
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from verl.classmate.config import ClassmateRewardModelConfig
from verl.classmate.errors import ConfigError
from verl.classmate.frozen import POLICY, frozen_classmates, frozen_models
from verl.trainer.preflight import agents as preflight_agents
from verl.trainer.preflight import data as preflight_data
from verl.trainer.preflight import judges as preflight_judges
from verl.trainer.preflight import models as preflight_models
from verl.trainer.preflight import templates as preflight_templates
from verl.trainer.resources.plan import certain_memory_gib, memory_gib, needed_gpus, needed_ray_cpus
from verl.trainer.run.checkpoints import check_ranks, checkpoint_to_resume, latest_step
from verl.trainer.run.choices import prompts_that_split
from verl.trainer.run.loggers import check_loggers
from verl.workers.classmates.placement import (
    assign_gpus,
    engines,
    gpu_memory_share,
    resolved_engine,
    resolved_schedule,
    taking_turns,
    trainer_gpus,
)

_SUPPORTED_STRATEGIES = ("fsdp", "fsdp2")
_SUPPORTED_ROLLOUTS = ("hf", "vllm")

_SHARE = "actor_rollout_ref.rollout.gpu_memory_utilization"

_AT_LEAST_ONE = (
    "data.train_batch_size",
    "data.max_prompt_length",
    "data.max_response_length",
    "actor_rollout_ref.rollout.n",
    "actor_rollout_ref.rollout.agent.num_workers",
    "actor_rollout_ref.actor.ppo_mini_batch_size",
    "actor_rollout_ref.actor.ppo_epochs",
    "trainer.n_gpus_per_node",
    "trainer.nnodes",
    "trainer.total_epochs",
)
"""Keys that must hold an integer of 1 or more."""

_NULL_OR_AT_LEAST_ONE = (
    "data.gen_batch_size",
    "data.val_batch_size",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu",
    "actor_rollout_ref.rollout.max_model_len",
    "actor_rollout_ref.actor.ulysses_sequence_parallel_size",
    "actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size",
    "actor_rollout_ref.ref.ulysses_sequence_parallel_size",
    "critic.ulysses_sequence_parallel_size",
    "critic.ppo_epochs",
    "critic.ppo_micro_batch_size_per_gpu",
    "trainer.total_training_steps",
)
"""Keys that may be null too."""


def check(config: Mapping[str, Any], reward: ClassmateRewardModelConfig, *, needs_classmates: bool) -> None:
    """Runs every check; `config` is the resolved config as a plain mapping.

    Raises:
        ConfigError: for the first thing that would make the run fail.
    """
    with quiet():
        _check(config, reward, needs_classmates)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps libraries from talking: a mistake is one line on the terminal, and no log is open yet."""
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _check(config: Mapping[str, Any], reward: ClassmateRewardModelConfig, needs_classmates: bool) -> None:
    check_supported(config, reward)
    if needs_classmates and not reward.classmates:
        raise ConfigError(
            "no classmate is configured; write reward_model.classmate_model_name_or_path_list=[MODEL,...], or train "
            "without classmates by python -m verl.trainer.qwen_main_ppo"
        )
    check_lora(config)
    check_counts(config)
    check_sequence_parallel(config)
    check_names(config)
    check_resume(config)
    check_debug(config, reward)
    check_devices(config, reward)
    check_batch_sizes(config)
    check_engine_settings(config)
    check_loggers(_get(config, "trainer.logger"))
    custom = preflight_data.custom_scale(config, reward)
    preflight_data.check_files(config["data"], verified=custom is None)
    check_rows(config)
    preflight_data.check_batch(config["data"])
    if custom is None:
        preflight_data.check_sandbox(config["data"], reward)
        preflight_data.check_lowest_scores(config["data"], reward)
    else:
        preflight_data.check_custom_scale(custom, reward)
    preflight_agents.check(config)
    preflight_judges.check(config, reward)
    _check_models(config, reward)
    check_memory(config, reward)
    check_with_verl(config)


def _get(config: Mapping[str, Any], key: str) -> Any:
    node: Any = config
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            raise ConfigError(f"{key} is missing; write +{key}=VALUE, or leave out what removes it")
        node = node[part]
    return node


def check_supported(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> None:
    """Training backends, engines and combinations that exist here.

    Raises:
        ConfigError: naming the key and what to write instead.
    """
    choices = {
        "model_engine": ("dp",),
        "actor_rollout_ref.actor.strategy": _SUPPORTED_STRATEGIES,
        "actor_rollout_ref.ref.strategy": _SUPPORTED_STRATEGIES,
        "actor_rollout_ref.rollout.name": _SUPPORTED_ROLLOUTS,
        # It reorders rows without telling the queue.
        "algorithm.use_pf_ppo": (False,),
        "trainer.console": ("auto", "rich", "plain"),
        "trainer.resume_mode": ("auto", "disable", "resume_path"),
    }
    for key, supported in choices.items():
        value = _get(config, key)
        if value not in supported:
            raise ConfigError(f"{key}={value} is not supported here; write one of: {', '.join(map(str, supported))}")
    if config["algorithm"]["adv_estimator"] == "remax" and config["algorithm"]["filter_groups"]["enable"]:
        raise ConfigError(
            "algorithm.filter_groups.enable=true filters by groups, which remax does not have; write false, or "
            "algorithm.adv_estimator=rloo"
        )
    rollout = config["actor_rollout_ref"]["rollout"]["name"]
    backends = [("actor_rollout_ref.rollout.name", rollout)]
    backends += [("reward_model.classmate_backend", resolved_engine(one)) for one in frozen_classmates(reward)]
    for key, engine in backends:
        if engine == "vllm" and importlib.util.find_spec("vllm") is None:
            raise ConfigError(f"{key}={engine}, but vLLM is not installed; run `bash install.sh`, or write {key}=hf")
    if config["trainer"]["deterministic"] and (
        any(engine not in ("hf", POLICY) for _, engine in backends) or config["trainer"]["device"] != "cpu"
    ):
        raise ConfigError(
            "trainer.deterministic=true needs hardware=cpu, actor_rollout_ref.rollout.name=hf and "
            "reward_model.classmate_backend=hf; vLLM's batches depend on timing"
        )


def check_lora(config: Mapping[str, Any]) -> None:
    """The embedded engine takes whole weights, and would only say so when the first ones are sent.

    Raises:
        ConfigError: naming the key that merges them.
    """
    policy = config["actor_rollout_ref"]
    lora, rank = policy["model"].get("lora") or {}, policy["model"].get("lora_rank") or 0
    if rank and policy["rollout"]["name"] == "hf" and not lora.get("merge"):
        raise ConfigError(
            f"actor_rollout_ref.model.lora_rank={rank} sends adapters, and the engine hf takes merged weights; write "
            "actor_rollout_ref.model.lora.merge=true too"
        )


def check_sequence_parallel(config: Mapping[str, Any]) -> None:
    """Ulysses splits sequences over ranks; upstream joins them in flash-attention only.

    With any other attention each rank would attend to its own piece of a sequence, without an error.

    Raises:
        ConfigError: naming the key and what to write instead.
    """
    ranks = config["trainer"]["n_gpus_per_node"] * config["trainer"]["nnodes"]
    policy = config["actor_rollout_ref"]
    trained = [
        ("actor_rollout_ref.actor", policy["actor"], "actor_rollout_ref.model", policy["model"]),
        ("actor_rollout_ref.ref", policy["ref"], "actor_rollout_ref.model", policy["model"]),
        ("critic", config["critic"], "critic.model", config["critic"]["model"]),
    ]
    for node, settings, model_node, model in trained:
        width = _sequence_parallel(settings)
        if width == 1:
            continue
        key = f"{node}.ulysses_sequence_parallel_size"
        attention = (model.get("override_config") or {}).get("attn_implementation") or "flash_attention_2"
        if importlib.util.find_spec("flash_attn") is None:
            attention = "sdpa"
        if not attention.startswith("flash_attention"):
            raise ConfigError(
                f"{key}={width} needs flash-attention, here is {attention}: each rank would see its own piece of a "
                f"sequence only; write {key}=1"
            )
        if not model.get("use_remove_padding"):
            raise ConfigError(
                f"{key}={width} needs sequences without padding; write {model_node}.use_remove_padding=true"
            )
        if ranks % width:
            raise ConfigError(
                f"{key}={width} does not divide the trainer's {ranks} GPUs; write {key}={math.gcd(ranks, width)}"
            )


def _sequence_parallel(trained: Mapping[str, Any]) -> int:
    """Ranks that share a sequence; upstream reads either of two places."""
    nodes = (trained, trained.get("fsdp_config") or {}, trained.get("fsdp") or {})
    return max(node.get("ulysses_sequence_parallel_size") or 1 for node in nodes)


def check_engine_settings(config: Mapping[str, Any]) -> None:
    """What the policy's engine and batches that grow by tokens have room for.

    Raises:
        ConfigError: naming the key and what to write instead.
    """
    share = _get(config, _SHARE)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise ConfigError(
            f"{_SHARE}={share} is no part of a GPU; write {_SHARE}=0.5, or another between 0 and 1, or null"
        )
    data, nodes = config["data"], config["actor_rollout_ref"]
    row = data["max_prompt_length"] + data["max_response_length"]
    key = "actor_rollout_ref.rollout.max_model_len"
    if (limit := nodes["rollout"]["max_model_len"]) is not None and limit < row:
        raise ConfigError(
            f"{key}={limit} does not hold data.max_prompt_length + data.max_response_length = {row} tokens; write "
            f"{key}={row}, or null"
        )
    critic = config["critic"] if config["algorithm"]["adv_estimator"] == "gae" else {}
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
        width = _sequence_parallel(nodes["actor"] if name.startswith("actor_rollout_ref") else node)
        needed = -(-row // width)
        if is_used and node.get(switch) and (type(tokens) is not int or tokens < needed):
            raise ConfigError(
                f"{key}={tokens} does not hold the longest row, {needed} tokens on a GPU (data.max_prompt_length + "
                f"data.max_response_length); write {key}={needed} or more"
            )


def check_debug(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> None:
    """What one process without Ray cannot do.

    Raises:
        ConfigError: naming the key and what to write instead.
    """
    if not _get(config, "debug"):
        return
    data, trainer, policy = config["data"], config["trainer"], config["actor_rollout_ref"]
    batch = data["train_batch_size"]
    lora = policy["model"]["lora_rank"] or (policy["model"].get("lora") or {}).get("rank")
    filters = config["algorithm"].get("filter_groups") or {}
    classmates = frozen_classmates(reward)
    refusals = [
        (policy["rollout"]["name"] != "hf", "actor_rollout_ref.rollout.name", "hf"),
        (any(resolved_engine(one) == "vllm" for one in classmates), "reward_model.classmate_backend", "hf"),
        (any(judge.backend == "vllm" for judge in reward.judges), "reward_model.llm_judge_backend_type", "hf"),
        (trainer["n_gpus_per_node"] != 1, "trainer.n_gpus_per_node", 1),
        (trainer["nnodes"] != 1, "trainer.nnodes", 1),
        (batch % policy["actor"]["ppo_mini_batch_size"], "actor_rollout_ref.actor.ppo_mini_batch_size", batch),
        (data.get("gen_batch_size") not in (None, batch), "data.gen_batch_size", "null"),
        (lora, "actor_rollout_ref.model.lora_rank", 0),
        (filters.get("enable"), "algorithm.filter_groups.enable", "false"),
        (config.get("distillation", {}).get("enabled"), "distillation.enabled", "false"),
    ]
    for refused, key, instead in refusals:
        if refused:
            raise ConfigError(f"debug=true runs everything in one process, step by step; write {key}={instead}")


def check_resume(config: Mapping[str, Any]) -> None:
    """The checkpoint that the user names, which upstream would look for when all models are loaded.

    Raises:
        ConfigError: naming the key and what to write instead.
    """
    trainer = config["trainer"]
    checkpoint = checkpoint_to_resume(trainer) or _own_checkpoint(trainer)
    if checkpoint is not None:
        check_ranks(checkpoint, gpus_per_node=trainer["n_gpus_per_node"], nodes=trainer["nnodes"])
    if trainer["resume_from_path"] and trainer["resume_mode"] != "resume_path":
        raise ConfigError(
            f"trainer.resume_from_path={trainer['resume_from_path']} is read with trainer.resume_mode=resume_path "
            "only; write both, or neither"
        )


def _own_checkpoint(trainer: Mapping[str, Any]) -> Path | None:
    """Where the run in the folder that the user names goes on."""
    named = trainer["default_local_dir"]
    if trainer["resume_mode"] != "auto" or named is None:
        return None
    run = Path(named).expanduser()
    return run / f"global_step_{step}" if (step := latest_step(run)) else None


def check_counts(config: Mapping[str, Any]) -> None:
    """Numbers that must be integers of 1 or more.

    Raises:
        ConfigError: naming the key.
    """
    for key in _AT_LEAST_ONE + _NULL_OR_AT_LEAST_ONE:
        value, or_null = _get(config, key), key in _NULL_OR_AT_LEAST_ONE
        if (type(value) is not int or value < 1) and not (or_null and value is None):
            raise ConfigError(f"{key}: expected an integer of 1 or more{', or null' if or_null else ''}, got {value!r}")


def check_names(config: Mapping[str, Any]) -> None:
    """What run folder and loggers are called.

    Raises:
        ConfigError: naming the key.
    """
    for key, kind in (("project_name", "NAME"), ("experiment_name", "NAME"), ("default_local_dir", "FOLDER")):
        value, or_null = _get(config, f"trainer.{key}"), key == "default_local_dir"
        if (type(value) is not str or not value) and not (or_null and value is None):
            raise ConfigError(
                f"trainer.{key}: expected text, got {value!r}; write trainer.{key}={kind} (a YAML needs quotes around "
                "a number)"
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
    """As upstream asserts, in words of its own: every rank gets as many rows."""
    nodes = config["actor_rollout_ref"]
    rollouts, ranks = nodes["rollout"]["n"], config["trainer"]["n_gpus_per_node"] * config["trainer"]["nnodes"]
    step = prompts_that_split(ranks, rollouts)
    # The ranks that share a sequence share its rows.
    split = ranks // _sequence_parallel(nodes["actor"])
    sizes = [("actor_rollout_ref.actor.ppo_mini_batch_size", nodes["actor"]["ppo_mini_batch_size"], split)]
    if not nodes["actor"]["use_dynamic_bsz"]:
        sizes.insert(0, ("data.train_batch_size", config["data"]["train_batch_size"], ranks))
    for key, size, pieces in sizes:
        if size * rollouts % pieces:
            raise ConfigError(
                f"{key}={size} x actor_rollout_ref.rollout.n={rollouts} = {size * rollouts} rows do not split over "
                f"{pieces} ranks; write {key}={max(size - size % step, step)}, or another multiple of {step}"
            )


def check_rows(config: Mapping[str, Any]) -> None:
    """The data have a batch that splits over the ranks, and a mini-batch; behind `check_batch_sizes`.

    Raises:
        ConfigError: with what would go.
    """
    rows = None
    # What is wrong with the files is told by their own check.
    with contextlib.suppress(ConfigError, TypeError):
        rows = preflight_data.count_rows(config["data"], "train_files")
    if not rows:
        return
    rollout, trainer, actor = (
        config["actor_rollout_ref"]["rollout"],
        config["trainer"],
        config["actor_rollout_ref"]["actor"],
    )
    ranks = trainer["n_gpus_per_node"] * trainer["nnodes"]
    step = prompts_that_split(ranks, rollout["n"])
    if rows < step:
        fewer = next(one for one in range(ranks, 0, -1) if prompts_that_split(one, rollout["n"]) <= rows)
        nodes = "" if trainer["nnodes"] == 1 else " trainer.nnodes=1"
        more = -(-rollout["n"] // ranks) * ranks
        raise ConfigError(
            f"data.train_files has {rows} rows, of which no batch x actor_rollout_ref.rollout.n={rollout['n']} splits "
            f"over {ranks} ranks; write actor_rollout_ref.rollout.n={more} or trainer.n_gpus_per_node={fewer}{nodes}"
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
    ranks = config["trainer"]["n_gpus_per_node"] * config["trainer"]["nnodes"] // _sequence_parallel(actor)
    mini = actor["ppo_mini_batch_size"] * rollout["n"]
    unit = math.lcm(ranks, mini)
    rows = -(-config["data"]["train_batch_size"] * rollout["n"] // unit) * unit
    log_prob, ppo = "log_prob_micro_batch_size_per_gpu", "ppo_micro_batch_size_per_gpu"
    policy, critic = "actor_rollout_ref", config["critic"]
    checks = (
        (f"{policy}.actor.{ppo}", actor[ppo], mini, actor["use_dynamic_bsz"]),
        (f"{policy}.rollout.{log_prob}", rollout[log_prob], rows, rollout["log_prob_use_dynamic_bsz"]),
        (f"{policy}.ref.{log_prob}", ref[log_prob], rows, ref["log_prob_use_dynamic_bsz"] or not actor["use_kl_loss"]),
        (
            f"critic.{ppo}",
            critic[ppo],
            mini,
            critic["use_dynamic_bsz"] or config["algorithm"]["adv_estimator"] != "gae",
        ),
    )
    for key, micro, total, exempt in checks:
        if not exempt and micro is not None and (total // ranks) % micro:
            raise ConfigError(
                f"{key}={micro} does not divide the {total // ranks} rows of a rank (batch size x rollout.n); write "
                f"{key}={math.gcd(total // ranks, micro)}"
            )


def check_devices(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> None:
    """Ray's logical CPUs, GPUs and their memory. A cluster's are known only when Ray has connected.

    Raises:
        ConfigError: with the number that is needed, and the keys.
    """
    trainer = config["trainer"]
    if config["debug"]:
        return
    _check_widths(config, reward)
    if not os.environ.get("RAY_ADDRESS"):
        check_ray_cpus(config, reward, config["ray_kwargs"]["ray_init"]["num_cpus"])
        if trainer["device"] == "cuda":
            import torch

            there, asked = torch.cuda.device_count(), trainer["n_gpus_per_node"]
            if there < asked:
                fix = f"trainer.n_gpus_per_node={there}" if there else "hardware=cpu"
                raise ConfigError(f"trainer.n_gpus_per_node={asked}, but this machine has {there} GPUs; write {fix}")
            if trainer["nnodes"] == 1:
                check_gpus(config, reward, there)
    _check_gpu_memory(config, reward)
    check_schedule(config, reward)


def check_gpus(config: Mapping[str, Any], reward: ClassmateRewardModelConfig, available: float) -> None:
    """The trainer's GPUs and those of dedicated classmates; on the CPU Ray's logical ones.

    Raises:
        ConfigError: with the numbers and what to write instead.
    """
    needed, own = needed_gpus(config, reward), trainer_gpus(config)
    if available >= needed:
        return
    if needed == own:
        raise ConfigError(f"the trainer asks for {own} GPUs, Ray has {available:g}; write trainer.n_gpus_per_node=...")
    fewer = f"trainer.n_gpus_per_node={int(available) - needed + own} or " if available > needed - own else ""
    raise ConfigError(
        f"the trainer takes {own} GPUs and dedicated classmates {needed - own} more, but there are {available:g}; "
        f"write {fewer}reward_model.classmate_placement=colocated"
    )


def _check_widths(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> None:
    gpus = trainer_gpus(config)
    for engine in engines(frozen_models(reward)):
        if engine.in_policy_pool(config["trainer"]["device"]) and (engine.width > gpus or gpus % engine.width):
            raise ConfigError(
                f"{engine.frozen.keys}tensor_parallel_size={engine.width} does not divide the "
                f"trainer's {gpus} GPUs; write {math.gcd(engine.width, gpus)}, or placement: dedicated"
            )


def _check_gpu_memory(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> None:
    schedule = resolved_schedule(config, reward)
    share = gpu_memory_share(config, reward, schedule)
    if share <= 1 + 1e-9:
        return
    pooled = [engine for engine in engines(frozen_models(reward)) if engine.in_policy_pool(config["trainer"]["device"])]
    gpus = trainer_gpus(config)
    blocks = assign_gpus(pooled, gpus)
    beside = max(sum(gpu in block for block in blocks) for gpu in range(gpus))
    key = "reward_model.classmate_vllm_configs.gpu_memory_utilization"
    if schedule == "batched":
        raise ConfigError(
            f"the engines of one classmate ask for {share:.0%} of a GPU's memory; write for instance "
            f"{key}={int(90 / beside) / 100}, or fewer replicas"
        )
    each = int(90 / (1 + beside)) / 100
    in_turn = ", or reward_model.classmate_schedule=batched" if reward.classmate_free_cache_engine else ""
    raise ConfigError(
        f"policy and classmates are awake side by side and ask for {share:.0%} of a GPU's memory; write for instance "
        f"actor_rollout_ref.rollout.gpu_memory_utilization={each} and {key}={each}{in_turn}"
    )


def check_schedule(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> None:
    """Upstream's filter of groups looks at rewards while rows are still written.

    Raises:
        ConfigError: for the schedule `batched`, which has none by then.
    """
    filters = config["algorithm"].get("filter_groups") or {}
    if filters.get("enable") and taking_turns(reward, resolved_schedule(config, reward)):
        raise ConfigError(
            "algorithm.filter_groups.enable=True needs rewards while rows are written; classmate_schedule=batched "
            "gives them later; write reward_model.classmate_schedule=streamed, or classmate_placement=dedicated"
        )


def check_memory(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> None:
    """Weights that alone exceed a machine's memory; what may be tight is only warned of, in the plan.

    Raises:
        ConfigError: with both numbers.
    """
    if os.environ.get("RAY_ADDRESS"):
        return
    needed, (total, _) = certain_memory_gib(config, reward), memory_gib()
    if needed > total:
        raise ConfigError(
            f"the weights of policy and classmates alone take {needed:.1f} GiB, this machine has {total:.1f}; take "
            "smaller models, fewer classmates, or reward_model.classmate_replicas=1"
        )


def check_ray_cpus(config: Mapping[str, Any], reward: ClassmateRewardModelConfig, available: float | None) -> None:
    """Ray would wait for ever, without a message, for CPUs that it does not have. `None`: as many as are needed.

    Raises:
        ConfigError: with the number that is needed.
    """
    needed = needed_ray_cpus(config, reward)
    if available is not None and available < needed:
        raise ConfigError(
            f"Ray has {available:g} logical CPUs, this run asks for {needed}; write ray_kwargs.ray_init.num_cpus="
            f"{needed} or more (logical: it may exceed the cores)"
        )


def _check_models(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> None:
    """Policy and classmates can be loaded and asked, and the prompts fit."""
    data, model = config["data"], config["actor_rollout_ref"]["model"]
    policy_key = "actor_rollout_ref.model.path"
    preflight_models.check_model(policy_key, model["path"])
    trust = reward.classmate_trust_remote_code
    classmates = [(one, f"{one.keys}model", resolved_engine(one) == "openai") for one in frozen_classmates(reward)]
    for one, key, remote in classmates:
        preflight_models.check_model(key, one.model, tokenizer_only=remote, trust_remote_code=trust)

    prompt, response = data["max_prompt_length"], data["max_response_length"]
    preflight_models.check_context(policy_key, model["path"], prompt + response, prompt=prompt, response=response)
    needed = reward.classmate_generation_configs.context_length(
        max_prompt_length=data["max_prompt_length"], max_response_length=data["max_response_length"]
    )
    for one, key, remote in classmates:
        if not remote:
            preflight_models.check_context(key, one.model, needed, prompt=prompt, response=response, classmate=True)
    check_live_context(config, reward, needed)

    for one, key, remote in classmates:
        if remote and not one.is_policy:
            preflight_models.check_server(
                key,
                one.model,
                preflight_models.load_tokenizer(key, one.model, trust_remote_code=trust),
                needed,
                mapping_file=reward.classmate_cot_reward_configs.host_classmate_name_to_url_json_fn,
            )
    preflight_templates.check(config, reward)
    preflight_data.check_prompt_lengths(data, preflight_templates.policy_tokenizer(config, reward))


def check_live_context(config: Mapping[str, Any], reward: ClassmateRewardModelConfig, needed: int) -> None:
    """With live self-play the policy's own engines read question, thought and the classmate's answer.

    Raises:
        ConfigError: with the number to write.
    """
    limit = config["actor_rollout_ref"]["rollout"]["max_model_len"]
    if reward.live_classmate is not None and limit is not None and limit < needed:
        raise ConfigError(
            f"actor_rollout_ref.rollout.max_model_len={limit} does not hold prompt, response and the classmate's "
            f"tokens of self_play=live; write actor_rollout_ref.rollout.max_model_len={needed}, or null"
        )


def check_with_verl(config: Mapping[str, Any]) -> None:
    """Upstream's own checks of its settings, which would otherwise speak up after Ray has started.

    Raises:
        ConfigError: with upstream's words.
    """
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    container = OmegaConf.create(dict(config))
    try:
        validate_config(
            container, use_reference_policy=need_reference_policy(container), use_critic=need_critic(container)
        )
        omega_conf_to_dataclass(container.actor_rollout_ref.rollout)
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"verl refuses these settings: {reason[:400]}") from error
