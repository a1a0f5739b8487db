"""Values, calls and objects between two interpreters of which one must not trust the other.

Decision: nothing but data travels, JSON with tags, and it becomes values of exact built-in types. What is no data stays
where it is: the other side holds a `Proxy` of it, and what is done with the proxy is asked for. So a comparison with a
value is made where the value is, by its own type; no `__eq__`, no subclass and no operator of the other side takes
part. Lists and their like travel by value; what a call did to those that it was given comes back with its result.

    tests = Peer(descriptor, guarded=True)
    f = tests.ask("names", ["f"])["f"]         # Proxy
    f([3, 1]) == [1, 3]                        # f runs there, == here
"""

import contextlib
import datetime
import decimal
import enum
import fractions
import io
import json
import operator
import os
import struct
import sys
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Set
from types import ModuleType
from typing import Any, TypeGuard

__all__ = ["SOLUTION", "TEST", "Peer", "Proxy"]

SOLUTION = "solution"
"""Name of the module that programs are."""
TEST = "__main__"
"""Name of the module that tests are."""
_DEPTH = 10_000
"""Recursion that a nested value may take."""
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

_UNARY = ("abs", "neg", "pos", "invert")
_BINARY = (
    *("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and", "or", "xor"),
    *("lt", "le", "gt", "ge"),
)
_SPECIAL: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, f"__{name}__") for name in (*_UNARY, *_BINARY, "eq", "getitem", "setitem", "delitem")},
    **{kind.__name__: kind for kind in (bool, int, float, complex, str)},
    **{function.__name__: function for function in (len, iter, next, reversed, repr, hash, round)},
    "enter": lambda target: target.__enter__(),
    "exit": lambda target, *about: target.__exit__(*about),
    "instancecheck": lambda target, value: isinstance(value, target),
    "subclasscheck": lambda target, value: issubclass(value, target),
}
_ATTRIBUTE: dict[str, Callable[..., Any]] = {"get": getattr, "set": setattr, "delete": delattr}

_STEPS = ("send", "throw")
"""Methods that step a generator, beside `next`; nothing else may end an iteration of the other side."""
_STEERING = frozenset({"asyncio", "bdb", "doctest", "unittest"})
"""Packages with exceptions that make a test be skipped or stopped, which is not for a program to say."""
_OPENERS = (
    *(eval, exec, compile, globals, locals, vars, getattr, setattr, delattr, __import__, open),
    *(str.format, str.format_map, operator.attrgetter, operator.methodcaller),
)
"""With one of these, a test would hand over itself."""


class Proxy:
    """An object of the other side.

    An operator is asked for between two proxies only. With a value beside it, it would tell that value, which may be
    the expected one, and let the other side make the result.
    """

    __slots__ = ("__number", "__peer")

    def __init__(self, peer: "Peer", number: int) -> None:
        object.__setattr__(self, "_Proxy__peer", peer)
        object.__setattr__(self, "_Proxy__number", number)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_Proxy__"):
            raise AttributeError(name)
        found = self.__peer.ask("get", self, name)
        if name in _STEPS and isinstance(found, Proxy):
            return lambda *args, **kwargs: self.__peer.ask("step", found, args, kwargs)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        self.__peer.ask("set", self, name, value)

    def __delattr__(self, name: str) -> None:
        self.__peer.ask("delete", self, name)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.__peer.ask("call", self, args, kwargs)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Proxy):
            return self.__peer.ask("special", self, "eq", (other,)) is True
        plain = self.__peer.ask("plain", self)
        return not isinstance(plain, Proxy) and plain == other


def _special(name: str) -> Callable[..., Any]:
    def method(self: Proxy, *operands: Any) -> Any:
        if name == "exit":
            # A traceback leads into the frames that raised.
            operands = (*operands[:2], None)
        if name in _BINARY and not isinstance(operands[0], Proxy):
            return NotImplemented
        return self._Proxy__peer.ask("special", self, name, operands)  # type: ignore[attr-defined]

    return method


for _name in _SPECIAL:
    if _name != "eq":
        setattr(Proxy, f"__{_name}__", _special(_name))
Proxy.__doc__ = property(lambda self: self._Proxy__peer.ask("get", self, "__doc__"))  # type: ignore[assignment]


# An exception class of the other side is one of ours with the same built-in bases, so that `except` knows it.
_FOREIGN: dict[str, Any] = {
    "__getattr__": lambda self, name: getattr(vars(self).get("_origin"), name),
    "__str__": lambda self: vars(self).get("_text", ""),
    "__module__": SOLUTION,
}


class _Writer:
    """Turns the values of one message into what JSON holds."""

    def __init__(self, peer: "Peer", nodes: list[Any]) -> None:
        self._peer, self.nodes = peer, nodes
        self._places = {id(node): place for place, node in enumerate(nodes)}

    def value(self, value: Any) -> Any:
        kind = type(value)
        if kind in _SCALARS:
            return value
        if kind is int:
            return value if -_SMALL < value < _SMALL else ["big", hex(value)]
        if kind in _MUTABLE:
            place = self._places.setdefault(id(value), len(self.nodes))
            if place < len(self.nodes):
                return ["same", place]
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
            return ["yours", value._Proxy__number]
        if isinstance(value, type):
            if _TYPES.get(value.__name__) is value:
                return ["type", value.__name__]
            if value in self._peer.foreign:
                return ["yours", self._peer.foreign[value]]
            if issubclass(value, BaseException):
                bases = [self.value(base) for base in value.__bases__ if issubclass(base, BaseException)]
                return ["exception", self._peer.export(value), value.__module__, value.__qualname__, bases]
        elif isinstance(value, BaseException):
            return ["error", *self.error(value)]
        elif not isinstance(value, enum.Enum):
            for base, plain in _BASES.items():
                if isinstance(value, base):
                    return self.value(plain(value))
        return ["mine", self._peer.export(value)]

    def error(self, error: BaseException) -> Any:
        """An exception that was raised: class, arguments, text, and itself."""
        try:
            text = str(error)
        except Exception:
            text = ""
        number = self._peer.foreign_errors.get(id(error))
        origin = ["mine", self._peer.export(error)] if number is None else ["yours", number]
        return [self.value(type(error)), self.items(error.args), text, origin]


class _Reader:
    """Makes values of it again; whatever it was given, by exact types only."""

    def __init__(self, peer: "Peer", nodes: list[Any]) -> None:
        self._peer, self.nodes = peer, nodes

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
        _refill(node, self.content(node, flat))
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
        return self._peer.exported(number)

    def _mine(self, number: int) -> Proxy:
        return self._peer.proxy(number)

    def _exception(self, number: int, module: str, name: str, bases: list[Any]) -> type:
        package = module.partition(".")[0]
        if package in sys.stdlib_module_names and package not in _STEERING:
            known = getattr(sys.modules.get(module), name, None)
            if _is_exception(known):
                return known
        kinds = tuple(map(self.value, bases))
        return self._peer.mirror(number, name, kinds) if all(map(_is_exception, kinds)) else _refuse()

    def _error(self, kind: Any, args: list[Any], text: str, origin: Any) -> BaseException:
        return self.error(kind, args, text, origin)

    def error(self, kind: Any, args: list[Any], text: str, origin: Any) -> BaseException:
        """An exception: the same for the same."""
        made, arguments, there = self.value(kind), tuple(self.items(args)), self.value(origin)
        if not isinstance(there, Proxy):
            return there if isinstance(there, BaseException) else _refuse()
        number = there._Proxy__number  # type: ignore[attr-defined]
        error = self._peer.errors.get(number)
        if error is None:
            if not _is_exception(made):
                _refuse()
            try:
                error = made.__new__(made) if made in self._peer.foreign else made(*arguments)
            except Exception:
                error = made.__new__(made)
            self._peer.adopt(error, number)
        error.args = arguments
        if type(error) in self._peer.foreign:
            vars(error).update(_origin=there, _text=str(text))
        return error


_TAGS = {"big", "same", "type", "yours", "mine", "exception", "error"}


def _refuse() -> Any:
    raise ValueError("no value")


def _is_exception(kind: Any) -> TypeGuard[type[BaseException]]:
    return isinstance(kind, type) and issubclass(kind, BaseException)


def _refill(node: Any, content: Any) -> None:
    """Gives a mutable value another content, in place; leaves it alone, and who iterates over it, if it has that."""
    held, new = (node.items(), content.items()) if isinstance(node, dict) else (node, content)
    if [*held] == [*new]:
        return
    if isinstance(node, list | bytearray):
        node[:] = content
    else:
        node.clear()
        (node.extend if isinstance(node, deque) else node.update)(content)


@contextlib.contextmanager
def _deep() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _DEPTH))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


class Peer:
    """One end. Whatever goes wrong with the exchange itself ends the process: no exception that a test could catch."""

    def __init__(
        self,
        descriptor: int,
        *,
        guarded: bool,
        namespace: dict[str, Any] | None = None,
        printed: "io.TextIOWrapper | None" = None,
    ) -> None:
        """
        Args:
            descriptor: a stream in both directions.
            guarded: the other side may call what it was given, and look at objects of the test's own classes.
            namespace: what it may have by name.
            printed: what was printed there since the last reply goes with the next one.
        """
        self._descriptor, self._guarded, self._namespace, self._printed = descriptor, guarded, namespace or {}, printed
        self._lock = threading.RLock()
        self._ours: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._theirs: dict[int, Proxy] = {}
        self._mirrors: dict[int, type] = {}
        self.foreign: dict[type, int] = {}
        """Exception classes that stand for those of the other side, and their numbers there."""
        self.ends_expected = False
        """Whether the test knows that a function may raise StopIteration."""
        self.errors: dict[int, BaseException] = {}
        """Exceptions that stand for those of the other side, by their numbers there."""
        self.foreign_errors: dict[int, int] = {}
        """Ids of exceptions that stand for those of the other side, and their numbers there."""

    # What `_Writer` and `_Reader` need to know.

    def export(self, value: Any) -> int:
        """The number of an object that stays here."""
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._ours)
            self._ours.append(value)
        return self._numbers[id(value)]

    def exported(self, number: int) -> Any:
        """The object of that number."""
        return self._ours[number] if number >= 0 else _refuse()

    def proxy(self, number: int) -> Proxy:
        """What stands for an object of the other side: the same for the same."""
        return self._theirs.setdefault(int(number), Proxy(self, int(number)))

    def mirror(self, number: int, name: str, bases: tuple[type, ...]) -> type:
        """What stands for one of its exception classes."""
        if number not in self._mirrors:

            def make(error: BaseException, /, *args: Any, **kwargs: Any) -> None:
                # One that is made here has what its class gives it there.
                made = self.ask("call", self.proxy(number), args, kwargs)
                if not isinstance(made, BaseException):
                    raise TypeError(f"{name}() made no exception")
                error.args = made.args
                vars(error).update(vars(made))
                if id(made) in self.foreign_errors:
                    self.adopt(error, self.foreign_errors.pop(id(made)))

            self._mirrors[number] = type(name, bases, {**_FOREIGN, "__init__": make})
            self.foreign[self._mirrors[number]] = number
        return self._mirrors[number]

    def adopt(self, error: BaseException, number: int) -> None:
        """From now on, this exception stands for the other side's of that number."""
        self.errors[number], self.foreign_errors[id(error)] = error, number

    # Messages.

    def ask(self, operation: str, *operands: Any) -> Any:
        """What the other side makes of it; raises what is raised there."""
        with self._lock:
            writer = _Writer(self, [])
            with _deep():
                data = [writer.value(operand) for operand in operands]
            self.send(["ask", operation, data])
            try:
                while (message := self.receive())[0] == "ask":
                    self.answer(message)
                kind, states, result, printed = message
                sent = writer.nodes[:]
                with _deep():
                    reader = _Reader(self, writer.nodes)
                    contents = [reader.content(node, state[0]) for node, state in zip(sent, states, strict=True)]
                    value = reader.error(*result) if kind == "error" else reader.value(result)
                    for node, content in zip(sent, contents, strict=True):
                        _refill(node, content)
                if printed:
                    sys.stdout.write(printed)
            except BaseException:
                os._exit(1)
        if kind != "error":
            return value
        steps = operation == "step" or (operation == "special" and operands[1] == "next")
        ends = isinstance(value, StopIteration | StopAsyncIteration) and not (steps or self.ends_expected)
        if self._guarded and ends:
            # `all(map(f, values))` would take it for the end of its values.
            raise RuntimeError(f"the program raised {type(value).__name__}") from value
        raise value

    def answer(self, message: Any) -> None:
        """Does what the other side asks for, and sends the reply."""
        try:
            _, operation, data = message
            reader = _Reader(self, [])
            with _deep():
                operands = [reader.value(operand) for operand in data]
            received = len(reader.nodes)
            writer = _Writer(self, reader.nodes)
            error: BaseException | None = None
            try:
                value = self._do(operation, *operands)
            except BaseException as raised:
                error = raised
            with _deep():
                states = [writer.content(node) for node in reader.nodes[:received]]
                result = writer.value(value) if error is None else writer.error(error)
            self.send(["value" if error is None else "error", states, result, self._take_printed()])
        except BaseException:
            os._exit(1)

    def _do(self, operation: str, target: Any, *operands: Any) -> Any:
        match operation, operands:
            case "call" | "step", (args, kwargs):
                if not self._guarded or _may_be_called(target, args):
                    return target(*args, **kwargs)
            case "special", (name, args):
                return _SPECIAL[name](target, *args)
            case "get" | "set" | "delete", (name, *values):
                if not self._guarded or _may_be_seen(operation, target, name):
                    return _ATTRIBUTE[operation](target, name, *values)
            case "plain", ():
                return _plain(target)
            case "names", () if not self._guarded:
                found = {name: self._namespace[name] for name in target if name in self._namespace}
                return {name: value for name, value in found.items() if not isinstance(value, ModuleType)}
        raise AttributeError("an object of the test, which a program cannot look into or call")

    def _take_printed(self) -> str:
        if self._printed is None:
            return ""
        try:
            self._printed.flush()
            buffer: Any = self._printed.buffer
            text = buffer.getvalue().decode("utf-8", "replace")
            buffer.seek(0)
            buffer.truncate()
        except ValueError:
            return ""
        return text

    def send(self, message: Any) -> None:
        """Sends a message, or ends the process."""
        try:
            with _deep():
                data = json.dumps(message).encode()
            data = struct.pack("I", len(data)) + data
            while data:
                data = data[os.write(self._descriptor, data) :]
        except BaseException:
            os._exit(1)

    def receive(self) -> Any:
        """The next message, or the end of the process."""
        try:
            (length,) = struct.unpack("I", self._read(4))
            with _deep():
                return json.loads(self._read(length))
        except BaseException:
            os._exit(1)

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            more = os.read(self._descriptor, min(count - len(data), 1 << 20))
            if not more:
                raise EOFError
            data += more
        return bytes(data)


def _may_be_seen(operation: str, target: Any, name: Any) -> bool:
    """Public attributes of classes that the test defines, and of their objects: nothing that leads to the test."""
    if type(name) is not str or name.startswith("_"):
        return operation == "get" and type(name) is str and name in ("__name__", "__qualname__", "__doc__")
    if isinstance(target, type):
        return operation == "get" and target.__module__ == TEST
    return type(target).__module__ == TEST or type(target) in (io.StringIO, io.BytesIO)


def _may_be_called(target: Any, args: Any) -> bool:
    """Not what looks into anything or runs text, nor what makes types, whose objects would compare as they like."""
    if any(target is opener for opener in _OPENERS):
        return False
    return not (isinstance(target, type) and issubclass(target, type)) or len(args) == 1


def _plain(value: Any) -> Any:
    """The value of a built-in type that an object is, too; else the object."""
    if isinstance(value, Set):
        return set(value)
    for base in (tuple, list, dict, bytearray, deque, *_BASES):
        if isinstance(value, base):
            return _BASES.get(base, base)(value)
    return value
