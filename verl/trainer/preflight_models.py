"""Whether a model can be had, loaded and asked, told before anything heavy starts.

Decision: for a hub name one request without retries decides. Where the hub cannot be reached and the model is in the
local cache, the whole run goes offline, so that no later process waits for the network.

    >>> check_model("actor_rollout_ref.model.path", "Qwen/Qwen3-0.6B")          # raises ConfigError
    >>> load_tokenizer("actor_rollout_ref.model.path", "Qwen/Qwen3-0.6B")
"""

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from verl.classmate.errors import ConfigError

HUB_TIMEOUT_S = 5.0
"""Wait for the hub's answer; a start must not hang on a network without a way out."""

_WEIGHTS = ("*.safetensors", "*.bin")


def check_model(key: str, path: str | None, *, trust_remote_code: bool = False) -> None:
    """A local folder with a model, or a hub model whose config can be had.

    `trust_remote_code` allows kinds of models that transformers does not know.

    Raises:
        ConfigError: naming the key, and `hf auth login` for a gated or unreachable one.
    """
    if not path:
        raise ConfigError(f"{key} is not set; write {key}=MODEL (a folder or a hub name)")
    if "://" in path:
        return  # upstream copies from remote file systems
    folder = Path(path).expanduser()
    if folder.is_dir():
        _check_folder(key, path, folder, trust_remote_code)
    elif path.startswith(("/", ".", "~")) or path.count("/") > 1 or " " in path:
        raise ConfigError(f"{key}={path} does not exist; name a model folder or a hub model like Qwen/Qwen3-0.6B")
    else:
        _check_hub_model(key, path)


def _check_folder(key: str, path: str, folder: Path, trust_remote_code: bool) -> None:
    if not (folder / "config.json").is_file():
        raise ConfigError(f"{key}={path} holds no model (config.json is missing); name a folder of save_pretrained")
    try:
        kind = json.loads((folder / "config.json").read_text())["model_type"]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{key}={path}: its config.json is broken ({type(error).__name__}: {error}); save or download it again"
        ) from error
    from transformers import CONFIG_MAPPING

    if kind not in CONFIG_MAPPING and not trust_remote_code:
        raise ConfigError(
            f"{key}={path}: transformers does not know model_type={kind!r}; name a model of a known type (code that "
            "comes with a model is not run, but for classmates with reward_model.classmate_trust_remote_code=true)"
        )
    if not any(next(folder.glob(pattern), None) for pattern in _WEIGHTS):
        raise ConfigError(f"{key}={path} holds no weights (*.safetensors); save or download the model again")


def _check_hub_model(key: str, name: str) -> None:
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HFValidationError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    try:
        cached = isinstance(try_to_load_from_cache(name, "config.json"), str)
        if constants.HF_HUB_OFFLINE and cached:
            return
        get_hf_file_metadata(hf_hub_url(name, "config.json"), timeout=HUB_TIMEOUT_S)
    except HFValidationError as error:
        raise ConfigError(
            f"{key}={name} is neither a folder nor a hub name; name a model like Qwen/Qwen3-0.6B"
        ) from error
    except GatedRepoError as error:
        raise ConfigError(
            f"{key}={name} is gated; accept its terms on its hub page, then run `hf auth login`, or name a local folder"
        ) from error
    except RepositoryNotFoundError as error:
        raise ConfigError(
            f"{key}={name} does not exist, neither as a folder nor on the hub; check the name, and run `hf auth login` "
            "if it is private"
        ) from error
    except EntryNotFoundError as error:
        raise ConfigError(f"{key}={name} has no config.json on the hub; name a model for transformers") from error
    except Exception as error:
        if cached:
            os.environ["HF_HUB_OFFLINE"] = "1"
            constants.HF_HUB_OFFLINE = True
            return
        why = "HF_HUB_OFFLINE is set" if isinstance(error, OfflineModeIsEnabled) else "the hub cannot be reached"
        raise ConfigError(
            f"{key}={name}: {why}, and the model is not in the local cache; name a model folder, or fetch it where "
            f"there is a network by `hf download {name}` (after `hf auth login` if it is gated)"
        ) from error


def check_context(key: str, path: str, needed: int, *, classmate: bool = False) -> None:
    """A local model that reads as many tokens as the longest row needs.

    Args:
        key: where `path` was configured.
        path: the model.
        needed: most tokens of prompt and answer together.
        classmate: whether `reward_model.classmate_generation_configs` counts too.

    Raises:
        ConfigError: with the model's limit and the keys that make up the need.
    """
    limit = _position_limit(Path(path).expanduser() / "config.json")
    if limit is None or needed <= limit:
        return
    message = f"{key}={path} reads at most {limit} tokens, rows need up to {needed}: lower data.max_prompt_length or "
    if not classmate:
        raise ConfigError(f"{message}data.max_response_length")
    settings = "reward_model.classmate_generation_configs"
    raise ConfigError(
        f"{message}data.max_response_length or {settings}.max_new_tokens, or write {settings}.max_model_len={limit} "
        "and longer rows are left out with a count"
    )


def _position_limit(file: Path) -> int | None:
    """`max_position_embeddings`; None where there is no such file, or where scaled positions make the number a base."""
    if not file.is_file():
        return None
    config = json.loads(file.read_text())
    config = config.get("text_config") or config
    for scaling in (config.get("rope_scaling"), config.get("rope_parameters")):
        if isinstance(scaling, dict) and scaling.get("factor"):
            return None
    return config.get("max_position_embeddings")


@lru_cache(maxsize=16)
def load_tokenizer(key: str, path: str, *, trust_remote_code: bool = False) -> Any:
    """The tokenizer of a model.

    Raises:
        ConfigError: when it cannot be loaded.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            str(Path(path).expanduser()) if path.startswith("~") else path, trust_remote_code=trust_remote_code
        )
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ConfigError(
            f"{key}={path}: its tokenizer cannot be loaded ({lines[0][:200]}); save it into the model's folder"
        ) from error
    # Where its files are missing, transformers makes an empty one.
    if not tokenizer("1 + 1")["input_ids"]:
        raise ConfigError(
            f"{key}={path} holds no tokenizer (tokenizer.json is missing); save it into the model's folder"
        )
    return tokenizer
