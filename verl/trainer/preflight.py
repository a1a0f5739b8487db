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
from typing import Any

from omegaconf import OmegaConf

from verl.classmate import prompts
from verl.classmate.config import ClassmateRewardModelConfig
from verl.classmate.errors import ConfigError
from verl.trainer import preflight_data, preflight_models
from verl.trainer.loggers import check_loggers
from verl.trainer.resource_plan import gpu_memory_share, needed_ray_cpus
from verl.workers.classmate_workers import resolved_backend

_SUPPORTED_STRATEGIES = ("fsdp", "fsdp2")
_SUPPORTED_ROLLOUTS = ("hf", "vllm")

_AT_LEAST_ONE = (
    "data.train_batch_size",
    "data.max_prompt_length",
    "data.max_response_length",
    "actor_rollout_ref.rollout.n",
    "actor_rollout_ref.rollout.agent.num_workers",
    "actor_rollout_ref.actor.ppo_mini_batch_size",
    "trainer.n_gpus_per_node",
    "trainer.nnodes",
)
"""Keys that must hold an integer of 1 or more."""


def check(config: Mapping[str, Any], reward: ClassmateRewardModelConfig, *, needs_classmates: bool) -> None:
    """Runs every check; `config` is the resolved config as a plain mapping.

    Raises:
        ConfigError: for the first thing that would make the run fail.
    """
    with _quiet():
        _check(config, reward, needs_classmates)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
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
    check_counts(config)
    check_devices(config, reward)
    check_batch_sizes(config)
    check_loggers(config["trainer"]["logger"])
    preflight_data.check_files(config["data"])
    _check_models(config, reward)
    check_with_verl(config)


def _get(config: Mapping[str, Any], key: str) -> Any:
    for part in key.split("."):
        config = config[part]
    return config


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
    engines = [("actor_rollout_ref.rollout.name", rollout)]
    engines += [("reward_model.classmate_backend", resolved_backend(spec)) for spec in reward.classmates]
    for key, engine in engines:
        if engine == "vllm" and importlib.util.find_spec("vllm") is None:
            raise ConfigError(f"{key}={engine}, but vLLM is not installed; run `bash install.sh`, or write {key}=hf")
    if config["trainer"]["deterministic"] and (
        any(engine != "hf" for _, engine in engines) or config["trainer"]["device"] != "cpu"
    ):
        raise ConfigError(
            "trainer.deterministic=true needs hardware=cpu, actor_rollout_ref.rollout.name=hf and "
            "reward_model.classmate_backend=hf; vLLM's batches depend on timing"
        )


def check_counts(config: Mapping[str, Any]) -> None:
    """Numbers that must be integers of 1 or more.

    Raises:
        ConfigError: naming the key.
    """
    for key in _AT_LEAST_ONE:
        value = _get(config, key)
        if type(value) is not int or value < 1:
            raise ConfigError(f"{key}: expected an integer of 1 or more, got {value!r}")


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
    _check_micro_batches(config)


def _check_micro_batches(config: Mapping[str, Any]) -> None:
    """Every rank's rows split into whole micro-batches, as upstream asserts where a batch does not grow by tokens."""
    nodes = config["actor_rollout_ref"]
    actor, rollout, ref = nodes["actor"], nodes["rollout"], nodes["ref"]
    ranks = config["trainer"]["n_gpus_per_node"] * config["trainer"]["nnodes"]
    mini = actor["ppo_mini_batch_size"] * rollout["n"]
    unit = math.lcm(ranks, mini)
    rows = -(-config["data"]["train_batch_size"] * rollout["n"] // unit) * unit
    if mini % ranks:
        raise ConfigError(
            f"actor_rollout_ref.actor.ppo_mini_batch_size x rollout.n = {mini} rows do not split over {ranks} ranks; "
            f"write a mini-batch size that is a multiple of {ranks}"
        )
    log_prob = "log_prob_micro_batch_size_per_gpu"
    checks = (
        ("actor.ppo_micro_batch_size_per_gpu", actor["ppo_micro_batch_size_per_gpu"], mini, actor["use_dynamic_bsz"]),
        (f"rollout.{log_prob}", rollout[log_prob], rows, rollout["log_prob_use_dynamic_bsz"]),
        (f"ref.{log_prob}", ref[log_prob], rows, ref["log_prob_use_dynamic_bsz"] or not actor["use_kl_loss"]),
    )
    for key, micro, total, exempt in checks:
        if not exempt and micro is not None and (total // ranks) % micro:
            raise ConfigError(
                f"actor_rollout_ref.{key}={micro} does not divide the {total // ranks} rows of a rank (batch size x "
                f"rollout.n); write actor_rollout_ref.{key}={math.gcd(total // ranks, micro)}"
            )


def check_devices(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> None:
    """Ray's logical CPUs, GPUs and their memory. A cluster's are known only when Ray has connected.

    Raises:
        ConfigError: with the number that is needed, and the keys.
    """
    trainer = config["trainer"]
    if not os.environ.get("RAY_ADDRESS"):
        check_ray_cpus(config, reward, config["ray_kwargs"]["ray_init"]["num_cpus"])
        if trainer["device"] == "cuda":
            import torch

            there, asked = torch.cuda.device_count(), trainer["n_gpus_per_node"]
            if there < asked:
                fix = f"trainer.n_gpus_per_node={there}" if there else "hardware=cpu"
                raise ConfigError(f"trainer.n_gpus_per_node={asked}, but this machine has {there} GPUs; write {fix}")
    share = gpu_memory_share(config, reward)
    if share > 1:
        engines = 1 + sum(resolved_backend(spec) == "vllm" for spec in reward.classmates)
        each = int(90 / engines) / 100
        raise ConfigError(
            f"policy and classmates are awake side by side and ask for {share:.0%} of a GPU's memory; write for "
            f"instance actor_rollout_ref.rollout.gpu_memory_utilization={each} and "
            f"reward_model.classmate_vllm_configs.gpu_memory_utilization={each}"
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
    key = "actor_rollout_ref.model.path"
    preflight_models.check_model(key, model["path"])
    remote = [resolved_backend(spec) == "openai" for spec in reward.classmates]
    for index, spec in enumerate(reward.classmates):
        preflight_models.check_model(
            f"reward_model.classmates[{index}].model", spec.model, tokenizer_only=remote[index]
        )

    preflight_models.check_context(key, model["path"], data["max_prompt_length"] + data["max_response_length"])
    needed = reward.classmate_generation_configs.context_length(
        max_prompt_length=data["max_prompt_length"], max_response_length=data["max_response_length"]
    )
    for index, spec in enumerate(reward.classmates):
        if not remote[index]:
            preflight_models.check_context(
                f"reward_model.classmates[{index}].model", spec.model, needed, classmate=True
            )

    tokenizer = preflight_models.load_tokenizer(key, model["tokenizer_path"] or model["path"])
    if model["custom_chat_template"] is not None:
        tokenizer.chat_template = model["custom_chat_template"]
    if not tokenizer.chat_template:
        raise ConfigError(
            f"{key}={model['path']} has no chat template (a base model?); name its instruct version, or write "
            "actor_rollout_ref.model.custom_chat_template=TEMPLATE"
        )
    for index, spec in enumerate(reward.classmates):
        one = preflight_models.load_tokenizer(f"reward_model.classmates[{index}].model", spec.model)
        prompts.check_tokenizer(one, spec.model)
        if remote[index]:
            preflight_models.check_server(
                f"reward_model.classmates[{index}].model",
                spec.model,
                one,
                needed,
                mapping_file=reward.classmate_cot_reward_configs.host_classmate_name_to_url_json_fn,
            )
    preflight_data.check_prompt_lengths(data, tokenizer)


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
