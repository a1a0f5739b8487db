"""Values as JSON, and back: what travels between two interpreters of which one must not trust the other.

Decision: nothing but data travels, JSON with tags, and it becomes values of exact built-in types. Lists and their like
travel by value, and two names of one list are two names of one list there. Anything else is named by its number
(`objects.py`) and stays where it is.

    Writer(objects, []).value((1, [2]))        # ["tuple", [1, ["list", [2], None]]]
    Reader(objects, []).value(["tuple", [1, ["list", [2], None]]])             # (1, [2])
"""

import datetime
import decimal
import enum
import fractions
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Set
from typing import Any, NoReturn, TypeGuard

from .identity import ByIdentity
from .objects import Objects
from .proxy import Proxy, number_of

_SMALL = 1 << 63
_SCALARS = {type(None), bool, str, float}


def _zone(value: datetime.time | datetime.datetime) -> datetime.timezone | None:
    offset = value.utcoffset()
    return None if offset is None else datetime.timezone(offset)


_MUTABLE: dict[type, str] = {
    kind: kind.__name__ for kind in (list, dict, set, bytearray, deque, OrderedDict, Counter, defaultdict)
}
"""Those that a call may change; two names of one object stay so within a call."""
_BUILT: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    complex: lambda value: (value.real, value.imag),
    range: lambda value: (value.start, value.stop, value.step),
    slice: lambda value: (value.start, value.stop, value.step),
    decimal.Decimal: lambda value: (str(value),),
    fractions.Fraction: lambda value: (value.numerator, value.denominator),
    datetime.date: lambda value: (value.year, value.month, value.day),
    datetime.time: lambda value: (value.hour, value.minute, value.second, value.microsecond, _zone(value)),
    datetime.datetime: lambda value: (*value.timetuple()[:6], value.microsecond, _zone(value)),
    datetime.timedelta: lambda value: (value.days, value.seconds, value.microseconds),
    datetime.timezone: lambda value: (value.utcoffset(None),),
}
"""What they are built of; a new one is as good as the old."""
_SEQUENCES = (tuple, frozenset, bytes)
_TYPES = {kind.__name__: kind for kind in (type(None), bool, int, float, str, *_MUTABLE, *_SEQUENCES, *_BUILT)}
"""Types that travel by name; to call one gives data."""
_BASES: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    bytes: bytes.__bytes__,
    complex: complex.__complex__,
}
_STEERING = frozenset({"asyncio", "bdb", "doctest", "unittest"})
"""Packages with exceptions that make a test be skipped or stopped, which is not for a program to say."""


class Writer:
    """Turns the values of one message into what JSON holds."""

    def __init__(self, objects: Objects, nodes: list[Any]) -> None:
        """`nodes`: mutable values that both sides have from before, which are named by their places in the list."""
        self._objects, self.nodes = objects, nodes
        self._places: ByIdentity[int] = ByIdentity()
        for place, node in enumerate(nodes):
            self._places[node] = place

    def value(self, value: Any) -> Any:
        kind = type(value)
        if kind in _SCALARS:
            return value
        if kind is int:
            return value if -_SMALL < value < _SMALL else ["big", hex(value)]
        if kind in _MUTABLE:
            place = self._places.get(value)
            if place is not None:
                return ["same", place]
            self._places[value] = len(self.nodes)
            self.nodes.append(value)
            return [_MUTABLE[kind], *self.content(value)]
        if kind in _SEQUENCES:
            return [kind.__name__, self.items(value)]
        if kind in _BUILT:
            return [kind.__name__, *map(self.value, _BUILT[kind](value))]
        return self._thing(value, kind)

    def items(self, values: Any) -> list[Any]:
        """The same, quickly where there are many of the simplest kinds."""
        kinds = set(map(type, values))
        if kinds <= _SCALARS or (kinds == {int} and min(values) > -_SMALL and max(values) < _SMALL):
            return [*values]
        return [self.value(value) for value in values]

    def content(self, node: Any) -> list[Any]:
        """What a mutable value holds, and what else it is made of."""
        flat = [part for pair in node.items() for part in pair] if isinstance(node, dict) else [*node]
        extra = node.maxlen if isinstance(node, deque) else getattr(node, "default_factory", None)
        return [self.items(flat), self.value(extra)]

    def _thing(self, value: Any, kind: type) -> Any:
        if kind is Proxy:
            return ["yours", number_of(value)]
        if isinstance(value, type):
            if _TYPES.get(value.__name__) is value:
                return ["type", value.__name__]
            if value in self._objects.foreign:
                return ["yours", self._objects.foreign[value]]
            if issubclass(value, BaseException):
                bases = [self.value(base) for base in value.__bases__ if issubclass(base, BaseException)]
                return ["exception", self._objects.export(value), value.__module__, value.__qualname__, bases]
        elif isinstance(value, BaseException):
            return ["error", *self.error(value)]
        elif not isinstance(value, enum.Enum):
            for base, plain in _BASES.items():
                if isinstance(value, base):
                    return self.value(plain(value))
        return ["mine", self._objects.export(value)]

    def error(self, error: BaseException) -> Any:
        """An exception that was raised: class, arguments, text, and itself."""
        try:
            text = str(error)
        except Exception:
            text = ""
        number = self._objects.error_numbers.get(error)
        origin = ["mine", self._objects.export(error)] if number is None else ["yours", number]
        return [self.value(type(error)), self.items(error.args), text, origin]


class Reader:
    """Makes values of it again; whatever it was given, by exact types only."""

    def __init__(self, objects: Objects, nodes: list[Any]) -> None:
        """`nodes`: as the writer's; the mutable values that are read come behind them."""
        self._objects, self.nodes = objects, nodes

    def value(self, data: Any) -> Any:
        if type(data) is not list:
            if type(data) in _SCALARS or type(data) is int:
                return data
            raise ValueError("no value")
        tag, *parts = data
        if tag in _TYPES:
            kind = _TYPES[tag]
            return self._mutable(kind, *parts) if kind in _MUTABLE else self._built(kind, parts)
        return getattr(self, f"_{tag}")(*parts) if tag in _TAGS else _refuse()

    def items(self, data: list[Any]) -> list[Any]:
        kinds = set(map(type, data))
        return [*data] if kinds <= _SCALARS | {int} else [self.value(one) for one in data]

    def _built(self, kind: type, parts: list[Any]) -> Any:
        if kind in _SEQUENCES:
            return kind(self.items(*parts))
        return kind(*map(self.value, parts))

    def _mutable(self, kind: type, flat: Any, extra: Any) -> Any:
        made = self.value(extra)
        node = deque(maxlen=made) if kind is deque else defaultdict(made) if kind is defaultdict else kind()
        self.nodes.append(node)
        refill(node, self.content(node, flat))
        return node

    def content(self, node: Any, flat: list[Any]) -> Any:
        """What is to be in a mutable value."""
        items = self.items(flat)
        return dict(zip(items[::2], items[1::2], strict=True)) if isinstance(node, dict) else items

    def _big(self, text: str) -> int:
        return int(text, 16)

    def _same(self, place: int) -> Any:
        return self.nodes[place]

    def _type(self, name: str) -> type:
        return _TYPES[name]

    def _yours(self, number: int) -> Any:
        return self._objects.exported(number)

    def _mine(self, number: int) -> Proxy:
        return self._objects.proxy(number)

    def _exception(self, number: int, module: str, name: str, bases: list[Any]) -> type:
        package = module.partition(".")[0]
        if package in sys.stdlib_module_names and package not in _STEERING:
            known = getattr(sys.modules.get(module), name, None)
            if _is_exception(known):
                return known
        kinds = tuple(map(self.value, bases))
        return self._objects.mirror(number, name, kinds) if all(map(_is_exception, kinds)) else _refuse()

    def _error(self, kind: Any, args: list[Any], text: str, origin: Any) -> BaseException:
        return self.error(kind, args, text, origin)

    def error(self, kind: Any, args: list[Any], text: str, origin: Any) -> BaseException:
        """An exception: the same for the same."""
        made, arguments, there = self.value(kind), tuple(self.items(args)), self.value(origin)
        if not isinstance(there, Proxy):
            return there if isinstance(there, BaseException) else _refuse()
        number = number_of(there)
        error = self._objects.errors.get(number)
        if error is None:
            if not _is_exception(made):
                _refuse()
            try:
                error = made.__new__(made) if made in self._objects.foreign else made(*arguments)
            except Exception:
                error = made.__new__(made)
            self._objects.adopt(error, number)
        error.args = arguments
        if type(error) in self._objects.foreign:
            vars(error).update(_origin=there, _text=str(text))
        return error


_TAGS = {"big", "same", "type", "yours", "mine", "exception", "error"}


def _refuse() -> NoReturn:
    raise ValueError("no value")


def _is_exception(kind: Any) -> TypeGuard[type[BaseException]]:
    return isinstance(kind, type) and issubclass(kind, BaseException)


def refill(node: Any, content: Any) -> None:
    """Gives a mutable value another content, in place; leaves it alone, and who iterates over it, if it has that."""
    held, new = (node.items(), content.items()) if isinstance(node, dict) else (node, content)
    if [*held] == [*new]:
        return
    if isinstance(node, list | bytearray):
        node[:] = content
    else:
        node.clear()
        (node.extend if isinstance(node, deque) else node.update)(content)


def plain(value: Any) -> Any:
    """The value of a built-in type that an object is, too; else the object."""
    if isinstance(value, Set):
        return set(value)
    for base in (tuple, list, dict, bytearray, deque, *_BASES):
        if isinstance(value, base):
            return _BASES.get(base, base)(value)
    return value
