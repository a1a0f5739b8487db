"""Options of which a config's annotation names all values: a spelling mistake is told when the config is made.

One decision: the annotation is the list, so that it cannot differ from what is checked.

    >>> check_choices(PureRLConfig(model_name="m", algorithm="ppo"))
    ConfigError: algorithm='ppo' is not possible; write one of: grpo, dr_grpo, rloo, gae
"""

import types
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from verl.classmate.errors import ConfigError


def check_choices(config: Any) -> None:
    """Reads the fields of a dataclass that are annotated with `Literal`, alone or beside `None`.

    Raises:
        ConfigError: a field has another value; names both, and all that are possible.
    """
    hints = get_type_hints(type(config))
    for one in fields(config):
        allowed, value = list(_values(hints[one.name])), getattr(config, one.name)
        if allowed and value not in allowed:
            raise ConfigError(f"{one.name}={value!r} is not possible; write one of: {', '.join(map(str, allowed))}")


def _values(hint: Any) -> Iterator[Any]:
    """What an annotation lists; nothing for one that is open."""
    if get_origin(hint) is Literal:
        yield from get_args(hint)
    elif get_origin(hint) in (Union, types.UnionType):
        parts = [list(_values(part)) if part is not type(None) else [None] for part in get_args(hint)]
        # `Literal[...] | str` is open, as is `int | None`.
        if all(parts) and any(part != [None] for part in parts):
            yield from (value for part in parts for value in part)
