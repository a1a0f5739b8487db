"""How large a model is, known before anything of it is loaded: from its folder, the local cache, or the hub.

Decision: transformers builds the model without memory (on torch's device "meta") and its parameters are counted, so
that no formula has to know architectures. For a model that cannot be built, its files or the hub state the number.
Where neither can be had, the answer is None, and the caller says so.

    >>> model_size("Qwen/Qwen3-0.6B").parameters
    596049920
"""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

HUB_TIMEOUT_S = 5.0
"""Wait for the hub's answer, in seconds."""

_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2}
"""Of a number in a safetensors file; what is not named has one."""


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    """What memory follows from."""

    parameters: int
    """Numbers in its weights; a head that is tied to the embedding counts once."""
    vocabulary: int
    """Entries of its vocabulary: logits of a token."""
    hidden: int
    """Width of a token between layers."""
    intermediate: int
    """Width of a token inside a layer's MLP."""
    layers: int
    """Number of layers."""
    cache_bytes: int
    """Bytes that a token takes in a KV cache in bfloat16."""
    positions: int | None
    """Tokens that it reads at most; None where its config does not say, or scales it."""

    @property
    def name(self) -> str:
        """For a person: `0.6 B`, and millions below that."""
        return f"{self.parameters / 1e9:.1f} B" if self.parameters >= 5e7 else f"{self.parameters / 1e6:.1f} M"


@lru_cache(maxsize=32)
def model_size(path: str | None) -> ModelSize | None:
    """The size of a model; None where its config cannot be had or is of a kind that says too little.

    Args:
        path: a folder, or a hub name: then its config is looked for in the local cache, and fetched.
    """
    if not path or "://" in path:
        return None
    given = model_config(path)
    return None if given is None else size_of_config(given, stored=lambda: _stored_parameters(path))


def model_config(path: str) -> dict[str, Any] | None:
    """The content of a model's `config.json`, of a folder or a hub name; None where it cannot be had."""
    file = _config_file(path)
    if file is None:
        return None
    try:
        given = json.loads(file.read_text())
    except ValueError:
        return None
    return given if isinstance(given, dict) else None


def with_defaults(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """The content of a `config.json` with what its class adds; None for kinds that transformers does not know."""
    from transformers import AutoConfig

    try:
        return AutoConfig.for_model(**given).to_dict()
    except Exception:
        return None


def size_of_config(given: Mapping[str, Any], *, stored: Any = lambda: None) -> ModelSize | None:
    """The size of the model that a `config.json` describes; None where it says too little.

    Args:
        given: the content of `config.json`.
        stored: called for the number of parameters where transformers does not know the model.
    """
    text = given.get("text_config") or given
    try:
        hidden, layers, heads = (text[name] for name in ("hidden_size", "num_hidden_layers", "num_attention_heads"))
        keys = text.get("num_key_value_heads") or heads
        width = text.get("head_dim") or hidden // heads
        parameters = _counted(given) or stored()
        if not parameters:
            return None
        return ModelSize(
            parameters=int(parameters),
            vocabulary=int(text["vocab_size"]),
            hidden=int(hidden),
            intermediate=int(text.get("intermediate_size") or 4 * hidden),
            layers=int(layers),
            cache_bytes=int(2 * layers * keys * width * 2),
            positions=_positions(text),
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None


def _positions(text: Mapping[str, Any]) -> int | None:
    for scaling in (text.get("rope_scaling"), text.get("rope_parameters")):
        if isinstance(scaling, dict) and scaling.get("factor"):
            return None
    return text.get("max_position_embeddings")


def _config_file(path: str) -> Path | None:
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder / "config.json" if (folder / "config.json").is_file() else None
    if path.startswith(("/", ".", "~")) or path.count("/") > 1 or " " in path:
        return None
    import huggingface_hub

    with contextlib.suppress(Exception):
        cached = huggingface_hub.try_to_load_from_cache(path, "config.json")
        if isinstance(cached, str):
            return Path(cached)
        # First one request that is not sent again: without a network the download would try for half a minute.
        huggingface_hub.get_hf_file_metadata(huggingface_hub.hf_hub_url(path, "config.json"), timeout=HUB_TIMEOUT_S)
        return Path(huggingface_hub.hf_hub_download(path, "config.json", etag_timeout=HUB_TIMEOUT_S))
    return None


def _counted(given: Mapping[str, Any]) -> int | None:
    """The parameters of the model that transformers would build; None for kinds that it does not know."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.for_model(**given)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        return sum(weight.numel() for weight in model.parameters())
    except Exception:
        return None


def _stored_parameters(path: str) -> int | None:
    """The parameters of a model's files: read from their headers, or asked of the hub."""
    folder = Path(path).expanduser()
    if folder.is_dir():
        return sum(_parameters_of_file(file) for file in folder.glob("*.safetensors")) or None
    from huggingface_hub import HfApi

    with contextlib.suppress(Exception):
        found = HfApi().model_info(path, timeout=HUB_TIMEOUT_S, expand=["safetensors"]).safetensors
        return found.total if found is not None else None
    return None


def _parameters_of_file(file: Path) -> int:
    with file.open("rb") as opened:
        header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    header.pop("__metadata__", None)
    return sum(
        (tensor["data_offsets"][1] - tensor["data_offsets"][0]) // _BYTES.get(tensor["dtype"], 1)
        for tensor in header.values()
    )
