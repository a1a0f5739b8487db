"""What a file holds, as the annotations of a dataclass have it; what is something else is refused by its key.

One decision: a value is taken as it stands, without a conversion, so that what is read is what is written again. Only
lists become tuples and words members of their enumeration, where the annotation says so.

    >>> read_back(Verdict, {"main_score": "0.5"}, {"score": "main_score"})
    ValueError: main_score is '0.5', not a number
"""

import dataclasses
import math
import reprlib
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_NAMES = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}
# Annotations are taken apart once, not in each row.
_hints: Callable[[Any], dict[str, Any]] = lru_cache(get_type_hints)
_origin, _arguments = lru_cache(get_origin), lru_cache(get_args)


def read_back(
    cls: type[T],
    content: Mapping[str, Any],
    keys: Mapping[str, str],
    *,
    where: str = "",
    optional: Collection[str] = (),
    **given: Any,
) -> T:
    """Builds `cls` from the values of some keys.

    Args:
        cls: a dataclass.
        content: keys and values from the file.
        keys: the key of each field that is read.
        where: what stands in front of the key in messages.
        optional: fields that keep their default where their key is missing.
        given: the other fields.

    Raises:
        KeyError: a key that is missing.
        ValueError: a value that its field cannot have.
    """
    hints: Mapping[str, Any] = _hints(cls)
    values = {}
    for name, key in keys.items():
        if key not in content:
            if name in optional:
                continue
            raise KeyError(f"{where}{key}")
        hint, value = hints[name], content[key]
        # Most values are what they should be, and their place is told of the others alone.
        as_it_is = type(value) in _taken_as_they_are(hint)
        values[name] = value if as_it_is else checked(hint, value, f"{where}{key}")
    return cls(**values, **given)


def checked(hint: Any, value: Any, where: str) -> Any:
    """`value`, which has come out of JSON, as `hint` has it.

    Raises:
        KeyError: a key that is missing in it.
        ValueError: it is something else.
    """
    if hint is Any:
        return value
    if hint in _NAMES:
        return _plain(hint, value, where)
    origin = _origin(hint)
    if origin in (Union, types.UnionType):
        # None and one other.
        return None if value is None else checked(_arguments(hint)[0], value, where)
    if origin is Mapping:
        return _of_type(dict, value, where, "an object")
    if origin in (tuple, Sequence):
        return _list(hint, _of_type(list, value, where, "a list"), where)
    if dataclasses.is_dataclass(hint):
        return _dataclass(hint, _of_type(dict, value, where, "an object"), where)
    assert issubclass(hint, Enum)
    members = _members(hint)
    if not isinstance(value, str) or value not in members:
        raise mismatch(where, value, f"one of: {', '.join(members)}")
    return members[value]


def mismatch(where: str, value: Any, expected: str) -> ValueError:
    """Says what a key is and is not."""
    return ValueError(f"{where} is {reprlib.repr(value)}, not {expected}")


@lru_cache
def _taken_as_they_are(hint: Any) -> frozenset[type]:
    """Types of values that need no further look."""
    hints = _arguments(hint) if _origin(hint) in (Union, types.UnionType) else (hint,)
    return frozenset({bool, int, str, types.NoneType}.intersection(hints))


@lru_cache
def _members(words: type[Enum]) -> dict[str, Enum]:
    return {member.value: member for member in words}


def _plain(hint: Any, value: Any, where: str) -> Any:
    if hint is float and type(value) in (int, float):
        if not _is_finite(value):
            raise mismatch(where, value, "a finite number")
        return value
    return _of_type(hint, value, where, _NAMES[hint])


def _of_type(kind: type, value: Any, where: str, expected: str) -> Any:
    if type(value) is not kind:
        raise mismatch(where, value, expected)
    return value


def _list(hint: Any, values: list[Any], where: str) -> Any:
    inner = _arguments(hint)
    if _origin(hint) is Sequence or inner[-1] is ...:
        # Thousands of tokens are not looked at one by one.
        same = inner[0] is int and set(map(type, values)) <= {int}
        items = values if same else [checked(inner[0], value, f"{where}[{i}]") for i, value in enumerate(values)]
        return items if _origin(hint) is Sequence else tuple(items)
    if len(values) != len(inner):
        raise mismatch(where, values, f"a list of {len(inner)}")
    return tuple(checked(one, value, f"{where}[{i}]") for i, (one, value) in enumerate(zip(inner, values, strict=True)))


def _dataclass(cls: Any, content: dict[str, Any], where: str) -> Any:
    """All fields under their own names."""
    fields = {field.name: field.name for field in dataclasses.fields(cls)}
    unknown = sorted(content.keys() - fields.keys())
    if unknown:
        raise ValueError(f"{where} has an unknown key, {unknown[0]}")
    optional = {
        field.name
        for field in dataclasses.fields(cls)
        if field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
    }
    return read_back(cls, content, fields, where=f"{where}.", optional=optional)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
