"""Whether the models of a run can be had, loaded and asked, told before anything heavy starts.

Decision: for a hub name one request without retries decides. Where the hub cannot be reached and the model is in the
local cache, the whole run goes offline, so that no later process waits for the network.

    >>> check_model("actor_rollout_ref.model.path", "Qwen/Qwen3-0.6B")          # raises ConfigError
    >>> load_tokenizer("actor_rollout_ref.model.path", "Qwen/Qwen3-0.6B")
"""

import json
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from verl.classmate.config import ClassmateRewardModelConfig
from verl.classmate.errors import ConfigError
from verl.classmate.frozen import frozen_readers
from verl.utils.model_servers import mapping
from verl.workers.classmates.placement import resolved_engine

HUB_TIMEOUT_S = 5.0
"""Wait for the hub's answer; a start must not hang on a network without a way out."""

SERVER_TIMEOUT_S = 60.0
"""Wait for a server's first token; one that has just started may compile."""

_PROBE = "Two plus 2 = 4, I'd say.\n"
"""Text on which tokenizers differ."""

_WEIGHTS = ("*.safetensors", "*.bin")


def check_model(key: str, path: str | None, *, tokenizer_only: bool = False, trust_remote_code: bool = False) -> None:
    """A local folder with a model, or a hub model whose config can be had.

    Args:
        key: where `path` was configured.
        path: the model.
        tokenizer_only: the model runs elsewhere, so that no weights are needed here.
        trust_remote_code: allows kinds of models that transformers does not know.

    Raises:
        ConfigError: naming the key, and `hf auth login` for a gated or unreachable one.
    """
    if not path:
        raise ConfigError(f"{key} is not set; write {key}=MODEL (a folder or a hub name)")
    if "://" in path:
        return  # upstream copies from remote file systems
    folder = Path(path)
    if folder.is_dir():
        if not tokenizer_only:
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
            "comes with a model is run only for classmates, with reward_model.classmate_trust_remote_code=true)"
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


def check_context(key: str, path: str, needed: int, *, prompt: int, response: int, classmate: bool = False) -> None:
    """The model, if it is local, reads as many tokens as the longest row needs.

    Args:
        key: where `path` was configured.
        path: the model.
        needed: most tokens of a row, prompt and answer and what comes behind.
        prompt: `data.max_prompt_length`.
        response: `data.max_response_length`.
        classmate: whether `reward_model.classmate_generation_configs` counts too.

    Raises:
        ConfigError: with the model's limit and the keys that make up the need.
    """
    limit = position_limit(path)
    if limit is None or needed <= limit:
        return
    message = f"{key}={path} reads at most {limit} tokens, but rows need up to {needed}; "
    room = limit - (needed - prompt - response)
    ways = []
    if room > prompt:
        ways.append(f"write data.max_response_length={room - prompt}")
    elif room > 1:
        ways.append(f"write data.max_prompt_length={room // 2} data.max_response_length={room - room // 2}")
    if classmate:
        settings = "reward_model.classmate_generation_configs"
        ways.append(f"write {settings}.max_model_len={limit} (longer rows are then left out, and counted)")
    raise ConfigError(message + ", or ".join(ways or ["take a model that reads more"]))


def position_limit(path: str) -> int | None:
    """`max_position_embeddings` of a local model; None for a hub name, or where scaled positions make it a base."""
    file = Path(path) / "config.json"
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
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code)
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


def check_server(key: str, path: str, tokenizer: Any, needed: int, *, mapping_file: str) -> None:
    """A classmate's server answers, reads as many tokens as the longest row needs, and has the same tokenizer.

    Args:
        key: where `path` was configured.
        path: the classmate.
        tokenizer: the one that builds its prompts.
        needed: most tokens of prompt and answer together.
        mapping_file: where the server is looked up.

    Raises:
        ConfigError: with the command that starts a server.
    """
    cure = f"start it by `bash my_scripts/host_classmate_model.sh {path}`, or write reward_model.classmate_backend=hf"
    try:
        server = mapping.find(mapping.read(Path(mapping_file)), path)
    except ValueError as error:
        raise ConfigError(
            f"reward_model.classmate_cot_reward_configs.host_classmate_name_to_url_json_fn: {error}"
        ) from error
    if server is None:
        raise ConfigError(f"{key}={path}: {mapping_file} names no server for it; {cure}")
    where = f"{key}={path}: its server {server.url}"
    try:
        card = mapping.model_card(server)
        if card is None:
            raise ConfigError(f"{where} serves other models; correct its entry in {mapping_file}, or {cure}")
        # Text that is cut into tokens there and here, asked for as rows will be.
        probe = {"model": server.name, "prompt": _PROBE, "add_special_tokens": False, "max_tokens": 1}
        reply = mapping.ask(
            f"{server.url}/v1/completions", {**probe, "return_token_ids": True}, timeout=SERVER_TIMEOUT_S
        )
        choice = reply["choices"][0]
        answer, theirs = choice.get("token_ids"), choice.get("prompt_token_ids")
    except ConnectionError as error:
        raise ConfigError(f"{where} {error}; {cure}") from error
    except (TypeError, KeyError, IndexError, AttributeError) as error:
        raise ConfigError(f"{where} answers with something else than completions; {cure}") from error
    if not isinstance(answer, list):
        raise ConfigError(f"{where} sends no token ids; it must know return_token_ids, as vLLM 0.10.2 and newer do")
    ours = tokenizer(_PROBE, add_special_tokens=False)["input_ids"]
    if theirs is not None and theirs != ours:
        raise ConfigError(
            f"{where} has another tokenizer than {path}; serve the same model there, or name the served model in the "
            "config"
        )
    limit = card.get("max_model_len")
    if isinstance(limit, int) and limit < needed:
        raise ConfigError(
            f"{where} reads at most {limit} tokens, but rows need up to {needed}; start it with --max-model-len "
            f"{needed}, or lower data.max_prompt_length, data.max_response_length or "
            "reward_model.classmate_generation_configs.max_new_tokens"
        )


def check_models(config: Mapping[str, Any], reward: ClassmateRewardModelConfig, *, servers_answer: bool = True) -> None:
    """Policy, classmates and unseen readers can be loaded and asked, and the longest row fits.

    Args:
        config: the whole, resolved.
        reward: its typed node `reward_model`.
        servers_answer: whether the readers' servers are there by now, and are asked.

    Raises:
        ConfigError: naming the key of the model.
    """
    data, model = config["data"], config["actor_rollout_ref"]["model"]
    policy_key = "actor_rollout_ref.model.path"
    check_model(policy_key, model["path"])
    trust = reward.classmate_trust_remote_code
    readers = [(one, f"{one.keys}model", resolved_engine(one) == "openai") for one in frozen_readers(reward)]
    for one, key, remote in readers:
        check_model(key, one.model, tokenizer_only=remote, trust_remote_code=trust)

    prompt, response = data["max_prompt_length"], data["max_response_length"]
    check_context(policy_key, model["path"], prompt + response, prompt=prompt, response=response)
    needed = reward.classmate_generation_configs.context_length(
        max_prompt_length=data["max_prompt_length"], max_response_length=data["max_response_length"]
    )
    for one, key, remote in readers:
        if not remote:
            check_context(key, one.model, needed, prompt=prompt, response=response, classmate=True)
    check_live_context(config, reward, needed)

    for one, key, remote in readers:
        if remote and servers_answer and not one.is_policy:
            check_server(
                key,
                one.model,
                load_tokenizer(key, one.model, trust_remote_code=trust),
                needed,
                mapping_file=reward.classmate_cot_reward_configs.host_classmate_name_to_url_json_fn,
            )


def check_live_context(config: Mapping[str, Any], reward: ClassmateRewardModelConfig, needed: int) -> None:
    """With live self-play the policy's own engines read question, CoT and the classmate's answer.

    Raises:
        ConfigError: with the number to write.
    """
    limit = config["actor_rollout_ref"]["rollout"]["max_model_len"]
    if reward.live_classmate is not None and limit is not None and limit < needed:
        raise ConfigError(
            f"actor_rollout_ref.rollout.max_model_len={limit} has no room for prompt, response and, with "
            f"self_play=live, the classmate's answer; write actor_rollout_ref.rollout.max_model_len={needed}, or null"
        )
