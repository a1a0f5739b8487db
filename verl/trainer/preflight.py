"""Checks before anything heavy starts: each mistake is one line that says what to do, within seconds, with nothing half-written.

>>> check(config, reward_config)          # raises ConfigError
"""

import contextlib
import importlib.util
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl.classmate.config import ClassmateRewardModelConfig
from verl.classmate.errors import ConfigError

_SUPPORTED_STRATEGIES = ("fsdp", "fsdp2")
_SUPPORTED_ROLLOUTS = ("hf", "vllm")


def check(config: Mapping[str, Any], reward: ClassmateRewardModelConfig, *, needs_classmates: bool) -> None:
    """Runs every check; `config` is the resolved config as a plain mapping.

    Raises:
        ConfigError: for the first thing that would make the run fail.
    """
    _check_supported(config)
    if needs_classmates and not reward.classmates:
        raise ConfigError(
            "no classmate is configured; write reward_model.classmate_model_name_or_path_list=[MODEL,...], or train without "
            "classmates by python -m verl.trainer.qwen_main_ppo"
        )
    check_data(config)
    check_model("actor_rollout_ref.model.path", config["actor_rollout_ref"]["model"]["path"])
    for index, classmate in enumerate(reward.classmates):
        check_model(f"reward_model.classmates[{index}].model", classmate.model)
        check_context(f"reward_model.classmates[{index}].model", classmate.model, _classmate_context(config, reward))
    check_batch_sizes(config)


def _check_supported(config: Mapping[str, Any]) -> None:
    strategy = config["actor_rollout_ref"]["actor"]["strategy"]
    if strategy not in _SUPPORTED_STRATEGIES:
        raise ConfigError(
            f"actor_rollout_ref.actor.strategy={strategy} is not supported here; write one of: "
            + ", ".join(_SUPPORTED_STRATEGIES)
        )
    rollout = config["actor_rollout_ref"]["rollout"]["name"]
    if rollout not in _SUPPORTED_ROLLOUTS:
        raise ConfigError(
            f"actor_rollout_ref.rollout.name={rollout} is not supported here; write one of: "
            + ", ".join(_SUPPORTED_ROLLOUTS)
        )
    if rollout == "vllm" and importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "actor_rollout_ref.rollout.name=vllm, but vLLM is not installed; run `bash install.sh`, or write "
            "actor_rollout_ref.rollout.name=hf"
        )
    if config["algorithm"]["use_kl_in_reward"]:
        raise ConfigError(
            "algorithm.use_kl_in_reward=true does not go with group advantages; write "
            "actor_rollout_ref.actor.use_kl_loss=true for a KL penalty in the loss"
        )
    deterministic = config["trainer"]["deterministic"]
    if deterministic and (rollout != "hf" or config["trainer"]["device"] != "cpu"):
        raise ConfigError(
            "trainer.deterministic=true needs actor_rollout_ref.rollout.name=hf on the CPU; vLLM's batches depend on timing"
        )


def check_data(config: Mapping[str, Any]) -> None:
    """Every data file exists, is parquet and has rows.

    Raises:
        ConfigError: naming the key and the file.
    """
    import pyarrow.parquet as pq

    for key in ("train_files", "val_files"):
        files = config["data"][key]
        for name in [files] if isinstance(files, str) else files or []:
            path = Path(name).expanduser()
            if not path.is_file():
                raise ConfigError(f"data.{key}={name} does not exist; make it with a module of verl.data_preprocessing")
            try:
                rows = pq.ParquetFile(path).metadata.num_rows
            except Exception as error:
                raise ConfigError(f"data.{key}={name} is not a parquet file ({type(error).__name__})") from error
            if rows == 0:
                raise ConfigError(f"data.{key}={name} has no rows; make it again or name another file")
        if not files:
            raise ConfigError(f"data.{key} is empty; write data.{key}=FILE.parquet")


def check_model(key: str, path: str | None) -> None:
    """A local folder with a model, or a hub model whose config can be had.

    Raises:
        ConfigError: naming the key, and `hf auth login` for a gated or unreachable one.
    """
    if not path:
        raise ConfigError(f"{key} is not set; write {key}=MODEL (a folder or a hub name)")
    local = Path(path).expanduser()
    if local.is_dir():
        if not (local / "config.json").is_file():
            raise ConfigError(f"{key}={path} holds no model (config.json is missing); name a folder of save_pretrained")
        return
    if path.startswith(("/", "./", "../", "~")) or path.count("/") != 1:
        raise ConfigError(f"{key}={path} does not exist; name a model folder or a hub model like Qwen/Qwen3-0.6B")
    os.environ.setdefault("HF_HUB_ETAG_TIMEOUT", "5")
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    if isinstance(try_to_load_from_cache(path, "config.json"), str):
        return
    try:
        hf_hub_download(path, "config.json", etag_timeout=5)
    except Exception as error:
        raise ConfigError(
            f"{key}={path} cannot be had from the hub ({type(error).__name__}); if it is gated run `hf auth login`, without a "
            "network name a local folder"
        ) from error


def _classmate_context(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> int:
    data = config["data"]
    return reward.classmate_generation_configs.context_length(
        max_prompt_length=data["max_prompt_length"], max_response_length=data["max_response_length"]
    )


def check_context(key: str, path: str, needed: int) -> None:
    """A local model that reads as many tokens as the longest row needs.

    Raises:
        ConfigError: with the model's limit and the keys that make up the need.
    """
    file = Path(path).expanduser() / "config.json"
    limit = json.loads(file.read_text()).get("max_position_embeddings") if file.is_file() else None
    if limit is not None and needed > limit:
        raise ConfigError(
            f"{key}={path} reads at most {limit} tokens, rows need up to {needed} (data.max_prompt_length + "
            "data.max_response_length + new tokens); lower these, or write "
            f"reward_model.classmate_generation_configs.max_model_len={limit} and longer rows are left out with a count"
        )


def check_chat_template(key: str, path: str, tokenizer: Any) -> None:
    """A tokenizer that can write a chat.

    Raises:
        ConfigError: when it has no chat template.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise ConfigError(
            f"{key}={path} has no chat template; name an instruction-tuned model, or put a chat_template.jinja into its folder"
        )


def check_batch_sizes(config: Mapping[str, Any]) -> None:
    """Batch sizes that upstream would only assert on deep inside a step.

    Raises:
        ConfigError: naming the keys and a value that fits.
    """
    train = config["data"]["train_batch_size"]
    mini = config["actor_rollout_ref"]["actor"]["ppo_mini_batch_size"]
    if train % mini and train < mini:
        raise ConfigError(
            f"actor_rollout_ref.actor.ppo_mini_batch_size={mini} is larger than data.train_batch_size={train}; "
            f"write actor_rollout_ref.actor.ppo_mini_batch_size={train} or less"
        )


def needed_ray_cpus(config: Mapping[str, Any], classmates: int) -> int:
    """Logical CPUs that the run's actors ask Ray for: queue, storage, workers, one engine a policy replica and classmate."""
    storage = config["transfer_queue"]["backend"]["SimpleStorage"]["num_data_storage_units"]
    agents = config["actor_rollout_ref"]["rollout"]["agent"]["num_workers"]
    ranks = config["trainer"]["n_gpus_per_node"] * config["trainer"]["nnodes"]
    colocated = 3
    return storage + agents + ranks * colocated + ranks + classmates + 2


def check_ray_cpus(config: Mapping[str, Any], classmates: int, available: float) -> None:
    """Ray would wait for ever, without a message, for CPUs that it does not have.

    Raises:
        ConfigError: with the number that is needed.
    """
    needed = needed_ray_cpus(config, classmates)
    if available < needed:
        raise ConfigError(
            f"Ray has {available:g} logical CPUs, this run asks for {needed}; write ray_kwargs.ray_init.num_cpus={needed} or "
            "more (logical: it may exceed the cores)"
        )


def prepare_wandb(loggers: list[str], console_line: Any) -> None:
    """Lets wandb run offline when there is no login or no network, with one line instead of a prompt or an error."""
    if "wandb" not in loggers or os.environ.get("WANDB_MODE"):
        return
    import netrc
    from urllib.parse import urlsplit

    base = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai"))
    host, port = base.hostname or "api.wandb.ai", base.port or (443 if base.scheme == "https" else 80)
    logged_in = bool(os.environ.get("WANDB_API_KEY"))
    with contextlib.suppress(OSError, netrc.NetrcParseError):
        logged_in = logged_in or netrc.netrc().authenticators(host) is not None
    reason = None if logged_in else "no login: run `wandb login`"
    if logged_in:
        try:
            socket.create_connection((host, port), timeout=3).close()
        except OSError:
            reason = f"{host} cannot be reached"
    if reason:
        os.environ["WANDB_MODE"] = "offline"
        console_line(f"wandb logs offline ({reason}); upload later with `wandb sync`")
