"""Other spellings of the options, resolved on the list of Hydra overrides before Hydra composes.

One decision: aliases exist only where a user writes options, before Hydra composes. Behind Hydra each option has one
canonical key, so that a default can never disagree with an alias. Two spellings of a key with different values are an
error that names both. Values are compared as text, never evaluated.

    >>> resolve_aliases(["+reward_model.reward_kwargs.classmate_cot_reward_configs.use_classmate_condition=always"])
    ['++reward_model.classmate_cot_reward_configs.use_classmate_main_cond=always']
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from verl.classmate.algorithm_config import RECIPES, AlgorithmConfig
from verl.classmate.config import (
    UPSTREAM_LEGACY_KEYS,
    ClassmateCotRewardConfig,
    ClassmateGenerationConfig,
    ClassmateRewardModelConfig,
)
from verl.classmate.errors import ConfigError
from verl.classmate.gone_keys import refuse_gone
from verl.classmate.typed import dotted_names

_REWARD = "classmate_cot_reward_configs"
_GENERATION = "classmate_generation_configs"

_CLASSMATES = "reward_model.classmates"
_LIST = f"reward_model.{_REWARD}.classmate_model_name_or_path_list"
"""The two keys that name the classmates."""

_LEAVES = {
    (_REWARD, "use_classmate_condition"): "use_classmate_main_cond",
    (_GENERATION, "max_tokens"): "max_new_tokens",
    (_GENERATION, "classmate_num_return_sequences"): "num_return_sequences",
}
_KEYS = {"actor_rollout_ref.model.model_path": "actor_rollout_ref.model.path"}
_VALUES = {
    (f"{node}.{field.name}", other): value
    for node, cls in (("algorithm", AlgorithmConfig), (f"reward_model.{_REWARD}", ClassmateCotRewardConfig))
    for field in dataclasses.fields(cls)
    for other, value in field.metadata.get("value_aliases", {}).items()
}


def resolve_aliases(overrides: Sequence[str]) -> list[str]:
    """The same overrides in canonical spelling and in the same order; other arguments are passed on as they are.

    `reward_model.classmates` names all classmates: it replaces a list of a YAML, and one given before it.

    `+key` becomes `++key` for keys of ours: they are in the YAML, and Hydra refuses to add a key that is there. Unknown
    keys under `reward_model` get `++` too. Hydra then lets them through to the typed config, whose message suggests
    the key that was meant.

    Raises:
        ConfigError: two spellings of one key have different values, or a switch is neither true nor false.
    """
    result: list[str] = []
    typed: dict[str, tuple[str, str]] = {}
    given_by: str | None = None
    for override in overrides:
        prefix, key, value = _split(override)
        if key is None:
            result.append(override)
            continue
        refuse_gone(key)
        for canonical, new_value in _canonical(key, value):
            if new_value is not None:
                _check_agreement(typed, canonical, new_value, f"{key}={value}")
            ours = canonical.startswith("reward_model.")
            in_yaml = ours or canonical != key
            unknown = ours and not _is_known(canonical)
            new_prefix = "++" if (prefix == "+" and in_yaml) or (prefix == "" and unknown) else prefix
            result.append(f"{new_prefix}{canonical}" + ("" if new_value is None else f"={new_value}"))
            if canonical in (_CLASSMATES, _LIST) and new_value is not None and not _is_empty(new_value):
                given_by = canonical
    return [*result, f"{_LIST}=null"] if given_by == _CLASSMATES else result


def rename_old_keys(mapping: Mapping[str, Any], node: str) -> dict[str, Any]:
    """Canonical keys for a mapping that a program hands in for `node`, one of the two nested nodes of `reward_model`.

    Raises:
        ConfigError: both spellings of a key with different values.
    """
    result: dict[str, Any] = {}
    spelling: dict[str, str] = {}
    for key, value in mapping.items():
        refuse_gone(f"{node}.{key}")
        new = _LEAVES.get((node, key), key)
        if new in result and result[new] != value:
            raise ConfigError(f"{node}: {spelling[new]}={result[new]} and {key}={value} disagree; write only {new}")
        result[new], spelling[new] = value, key
    return result


def _split(override: str) -> tuple[str, str | None, str | None]:
    if override.startswith("-"):
        return "", None, None
    prefix = next((mark for mark in ("++", "+", "~") if override.startswith(mark)), "")
    key, equals, value = override[len(prefix) :].partition("=")
    if not equals and prefix != "~":
        return "", None, None
    return prefix, key, value if equals else None


def _canonical(key: str, value: str | None) -> list[tuple[str, str | None]]:
    """The canonical overrides for one override of the user's; more than one only for recipes and switches."""
    key = _KEYS.get(key, key)
    if key.startswith("reward_model."):
        key = "reward_model." + _canonical_reward_key(key.removeprefix("reward_model."))
    if key == "reward_model.classmate_use_vllm" and value is not None:
        switch = _switch(key, value)
        return [] if switch is None else [("reward_model.classmate_backend", "vllm" if switch else "hf")]
    if key == "reward_model.user_tinker_llm_judge" and value is not None:
        return [("reward_model.llm_judge_backend_type", "tinker")] if _switch(key, value) else []
    if key == "algorithm.adv_estimator" and value is not None and _text(value) in RECIPES:
        return list(RECIPES[_text(value)].items())
    if value is not None:
        value = _VALUES.get((key, _text(value)), value)
    return [(key, value)]


def _canonical_reward_key(key: str) -> str:
    """The part after `reward_model.` in canonical spelling."""
    key = key.removeprefix("reward_kwargs.")
    nodes = {_REWARD: ClassmateCotRewardConfig, _GENERATION: ClassmateGenerationConfig}
    head, _, rest = key.partition(".")
    if head in nodes:
        leaf, dot, tail = rest.partition(".")
        return f"{head}.{_LEAVES.get((head, leaf), leaf)}{dot}{tail}" if rest else head
    for node, cls in nodes.items():
        leaf = _LEAVES.get((node, head), head)
        if leaf in {field.name for field in dataclasses.fields(cls)}:
            return f"{node}.{leaf}" + (f".{rest}" if rest else "")
    return key


def _is_known(key: str) -> bool:
    key = key.removeprefix("reward_model.")
    return key in dotted_names(ClassmateRewardModelConfig) or key.partition(".")[0] in UPSTREAM_LEGACY_KEYS


def _switch(key: str, value: str) -> bool | None:
    switches = {"true": True, "false": False, "null": None, "none": None}
    if _text(value).lower() not in switches:
        raise ConfigError(f"{key}: expected true or false, got {value!r}")
    return switches[_text(value).lower()]


def _is_empty(value: str) -> bool:
    return _text(value).replace(" ", "").lower() in ("[]", "null", "")


def _text(value: str) -> str:
    return value.strip().strip("\"'")


def _same(a: str, b: str) -> bool:
    a, b = _text(a), _text(b)
    try:
        return float(a) == float(b)
    except ValueError:
        return a.replace(" ", "").lower() == b.replace(" ", "").lower()


def _check_agreement(typed: dict[str, tuple[str, str]], canonical: str, value: str, spelling: str) -> None:
    """Refuses two spellings that differ; the same spelling twice is Hydra's business (the last one wins)."""
    if canonical in typed:
        before, old_spelling = typed[canonical]
        if not _same(before, value) and old_spelling.partition("=")[0] != spelling.partition("=")[0]:
            raise ConfigError(f"{old_spelling} and {spelling} disagree on {canonical}; write only one of them")
    typed[canonical] = (value, spelling)
