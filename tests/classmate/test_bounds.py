"""Numbers of `reward_model`: each is finite, and kept to its field's bounds."""

import dataclasses
import math
from typing import get_args, get_type_hints

import pytest

from verl.classmate.config import ClassmateRewardModelConfig, ClassmateSpec, ReaderSpec, from_mapping
from verl.classmate.errors import ConfigError

BOUNDS = ("at_least", "above", "at_most")
LISTS = {"classmates": ClassmateSpec, "evaluation_classmates": ReaderSpec}


def bounded(cls: type, *nodes: str) -> list[tuple[tuple[str, ...], dataclasses.Field]]:
    """The fields with bounds of a dataclass and of those in it, each with the path to it."""
    found = []
    for one in dataclasses.fields(cls):
        inner = LISTS.get(one.name, one.default_factory)
        if isinstance(inner, type):
            found += bounded(inner, *nodes, one.name)
        elif any(name in one.metadata for name in BOUNDS):
            found.append(((*nodes, one.name), one))
    return found


def numbers(cls: type, *nodes: str) -> list[tuple[str, ...]]:
    """The paths to the fields of a dataclass, and of those in it, that may hold a float."""
    found = []
    for name, hint in get_type_hints(cls).items():
        parts = (hint, *get_args(hint))
        inner = next((part for part in parts if dataclasses.is_dataclass(part)), None)
        if inner is not None:
            found += numbers(inner, *nodes, name)  # type: ignore[arg-type]
        elif float in parts or any(float in get_args(part) for part in parts):
            found.append((*nodes, name))
    return found


def with_value(path: tuple[str, ...], value: object) -> dict:
    """The node `reward_model` in which nothing but one key is typed."""
    if path[0] in LISTS:
        return {path[0]: [{"model": "a", path[1]: value}]}
    for name in reversed(path):
        value = {name: value}
    return value  # type: ignore[return-value]


BOUNDED = bounded(ClassmateRewardModelConfig)


@pytest.mark.parametrize(("path", "field"), BOUNDED, ids=[".".join(path) for path, _ in BOUNDED])
def test_bounds_are_kept(path: tuple[str, ...], field: dataclasses.Field) -> None:
    bounds = field.metadata
    outside = {bounds[name] + step for name, step in zip(BOUNDS, (-1, 0, 1), strict=True) if name in bounds}
    for value in outside:
        with pytest.raises(ConfigError, match="; write ") as error:
            from_mapping(with_value(path, value), require_classmates=False)
        key = ".".join(path).replace("classmates.", "classmates[0].", 1)
        assert str(error.value).startswith(f"reward_model.{key}: ")
    if field.default is not None:
        assert from_mapping(with_value(path, field.default), require_classmates=False) is not None


NUMBERS = numbers(ClassmateRewardModelConfig)


def test_numbers_are_found_wherever_they_stand() -> None:
    assert {
        ("classmates", "weight"),
        ("format_weight",),
        ("rollout_is_threshold",),
        ("classmate_cot_reward_configs", "classmate_weights"),
        ("classmate_cot_reward_configs", "unfinished_main_score"),
        ("classmate_generation_configs", "temperature"),
    } <= set(NUMBERS)


@pytest.mark.parametrize("path", NUMBERS, ids=".".join)
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 10**400])
def test_each_number_is_finite(path: tuple[str, ...], number: float) -> None:
    is_list = path[-1] in ("classmate_weights", "custom_reward_range")
    with pytest.raises(ConfigError, match=rf"{path[-1]}(\[0\])?: write a finite number, not (nan|inf|-inf)$"):
        from_mapping(with_value(path, [number, 1] if is_list else number), require_classmates=False)
