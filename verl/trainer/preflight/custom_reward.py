"""A reward function of the user's: it can be loaded and called, and what it says of its scores makes sense.

>>> scale = custom_scale(config, reward_config)               # None where verifiers score
"""

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from verl.classmate.config import ClassmateRewardModelConfig
from verl.classmate.errors import ConfigError, reason_of
from verl.classmate.reward_scale import RewardScale, declares_range, directed, function_attributes
from verl.trainer.preflight.verifiers import lowest_wanted

_ARGUMENTS = ("data_source", "solution_str", "ground_truth", "extra_info")
"""By name, of a reward function."""


def custom_scale(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> RewardScale | None:
    """How the scores of `reward.custom_reward_function` are read; None where verifiers score.

    Raises:
        ConfigError: it cannot be loaded, or what is said of its scores cannot be.
    """
    function = _custom_function(config)
    if function is None:
        if reward.custom_reward_range is not None:
            raise ConfigError(
                "reward_model.custom_reward_range is for a reward function of your own, but none is named; write "
                "reward.custom_reward_function.path=FILE.py, or leave custom_reward_range out"
            )
        return None
    own = RewardScale.of_function(function, reward.custom_reward_range)
    if declares_range(function, reward.custom_reward_range):
        _check_threshold(
            "reward.custom_reward_function: its main_correct_threshold", function_attributes(function), own
        )
        node = "reward_model.classmate_cot_reward_configs"
        given = {"main_correct_threshold": reward.classmate_cot_reward_configs.main_correct_threshold}
        _check_threshold(f"{node}.main_correct_threshold", given, own.turned(reward.reward_direction))
    return own.turned(reward.reward_direction)


def _check_threshold(name: str, given: Mapping[str, Any], scale: RewardScale) -> None:
    """A directed score from which an answer counts as correct lies between the lowest and the highest."""
    threshold = given.get("main_correct_threshold")
    if threshold is None:
        return
    ends = [directed(end, scale) for end in (scale.low, scale.high) if end is not None]
    low, high = min(ends, default=-math.inf), max(ends, default=math.inf)
    if len(ends) == 1:
        rises = (scale.high is None) == (scale.direction == "maximize")
        low, high = (low, math.inf) if rises else (-math.inf, high)
    if not low <= threshold <= high:
        raise ConfigError(
            f"{name} is {threshold:g}, outside the range of its scores, {low:g} to {high:g}, so that all answers or "
            "none would count as correct; write a number in that range"
        )


def check_custom_scale(scale: RewardScale, reward: ClassmateRewardModelConfig) -> None:
    """The scores of the user's function have the lowest value and the threshold that the options ask for.

    Raises:
        ConfigError: naming the key.
    """
    shown, node = reward.classmate_cot_reward_configs, "reward_model.classmate_cot_reward_configs"
    wanted = lowest_wanted(reward)
    if wanted and scale.lowest is None:
        raise ConfigError(
            f"reward.custom_reward_function: {' and '.join(wanted)} get the lowest reward, but its scores (direction: "
            f"{scale.direction}) have none; write reward_model.custom_reward_range=[LOW,HIGH], or "
            f"{' and '.join(wanted.values())}"
        )
    if math.isnan(scale.threshold) and shown.main_correct_threshold is None and shown.tests_main_answer:
        raise ConfigError(
            f"{node}.main_correct_threshold: the range of reward.custom_reward_function has no middle to serve as the "
            "threshold of a correct answer; write a threshold, or use_classmate_main_cond=always"
        )


def custom_reward_notes(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> list[str]:
    """A line for a person where neither the config nor the function states the range of its scores."""
    function = _custom_function(config)
    if function is None or declares_range(function, reward.custom_reward_range):
        return []
    return [
        "warning: the range of reward.custom_reward_function is not known; 0 to 1 is assumed, and a row without an "
        "answer gets 0; write reward_model.custom_reward_range=[LOW,HIGH], or give the function reward_range"
    ]


def _custom_function(config: Mapping[str, Any]) -> Any:
    node = config["reward"].get("custom_reward_function") or {}
    if not node.get("path"):
        return None
    from verl.utils.import_utils import load_extern_object

    path, name = node["path"], node["name"]
    try:
        function = load_extern_object(module_path=path, object_name=name)
    except (Exception, SystemExit) as error:
        # The user's file may raise anything, and end the process.
        raise ConfigError(
            f"reward.custom_reward_function.path={path}: {name} cannot be loaded ({reason_of(error, path)}); correct "
            "the path, the name or the file"
        ) from error
    if not callable(function):
        raise ConfigError(
            f"reward.custom_reward_function.path={path}: {name} is {function!r:.100}, which is not a function; name "
            "one by reward.custom_reward_function.name=NAME"
        )
    _check_signature(function, path, name, dict(node.get("reward_kwargs") or {}))
    return function


def _check_signature(function: Callable[..., Any], path: str, name: str, more: Mapping[str, Any]) -> None:
    """The function takes what upstream calls it with."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # Of a compiled one nothing is known.
    try:
        signature.bind(**{**dict.fromkeys(_ARGUMENTS), **more})
    except TypeError as error:
        raise ConfigError(
            f"reward.custom_reward_function.path={path}: {name}{signature!s:.100} cannot be called with "
            f"{', '.join([*_ARGUMENTS, *more])} ({error}); write def {name}"
            f"({', '.join([*_ARGUMENTS[:-1], 'extra_info=None', *more])})"
        ) from error
