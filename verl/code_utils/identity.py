"""A dictionary whose keys are told apart by being the same object, whatever their `==` and `hash` say.

Decision: it holds its keys. An `id` is unique among living objects only: a key that was freed would hand its number on
to whatever comes next.

    places: ByIdentity[int] = ByIdentity()
    a = [1]
    places[a] = 0
    places.get([1]), places.get(a)             # None, 0
"""

from typing import Any, Generic, TypeVar

V = TypeVar("V")


class ByIdentity(Generic[V]):
    """Values of objects; two equal objects have two."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, tuple[Any, V]] = {}

    def __setitem__(self, key: Any, value: V) -> None:
        self._entries[id(key)] = key, value

    def get(self, key: Any) -> V | None:
        """None where it has no value."""
        entry = self._entries.get(id(key))
        return None if entry is None else entry[1]

    def pop(self, key: Any) -> V | None:
        """As `get`; it has none any more."""
        entry = self._entries.pop(id(key), None)
        return None if entry is None else entry[1]
