"""Named sets of values for the fields of a config that a user leaves out.

One decision: a value that is given always counts, also where it is the field's own default; so the names of what was
given are looked at, not the values.

    >>> @with_presets({"original": {"rate": 2.0}})
    ... @dataclass(frozen=True, kw_only=True)
    ... class Config:
    ...     rate: float = 1.0
    ...     preset: str | None = None
    >>> Config(preset="original").rate, Config(preset="original", rate=1.0).rate
    (2.0, 1.0)
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def with_presets(presets: Mapping[str, Mapping[str, Any]]) -> Callable[[type[T]], type[T]]:
    """A decorator of a keyword-only dataclass with a field `preset`.

    Args:
        presets: by name, the values of the fields that are not given.
    """

    def decorate(cls: type[T]) -> type[T]:
        made: Callable[..., None] = cls.__init__

        @functools.wraps(made)
        def init(self: T, *, preset: str | None = None, **given: Any) -> None:
            if preset is not None and preset not in presets:
                raise ValueError(f"preset={preset!r} is not known; write {' or '.join(map(repr, presets))}, or None")
            made(self, **{**presets.get(preset or "", {}), **given, "preset": preset})

        cls.__init__ = init  # type: ignore[method-assign, assignment]
        return cls

    return decorate
