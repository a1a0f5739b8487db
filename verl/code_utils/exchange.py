"""Questions and answers between two interpreters of which one must not trust the other.

Decision: a side that asks waits, and answers meanwhile what it is asked itself. Data travels (`values.py`); what is no
data stays where it is, the other side holds a proxy of it (`proxy.py`), and what is done with the proxy is asked for.
So a comparison with a value is made where the value is, by its own type; no `__eq__`, no subclass and no operator of
the other side takes part. What a call did to the lists that it was given comes back with its result.

    tests = Peer(descriptor, guarded=True)
    f = tests.ask("names", ["f"])["f"]         # Proxy
    f([3, 1]) == [1, 3]                        # f runs there, == here
"""

import contextlib
import io
import json
import os
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from .guard import may_be_called, may_be_seen
from .objects import Objects
from .proxy import SPECIAL
from .values import Reader, Writer, plain, refill

__all__ = ["Peer"]

_DEPTH = 10_000
"""Recursion that a nested value may take."""
_ATTRIBUTE: dict[str, Callable[..., Any]] = {"get": getattr, "set": setattr, "delete": delattr}


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
        printed: io.TextIOWrapper | None = None,
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
        self.objects = Objects(self)
        self.ends_expected = False
        """Whether the test knows that a function may raise StopIteration."""

    def ask(self, operation: str, *operands: Any) -> Any:
        """What the other side makes of it; raises what is raised there."""
        with self._lock:
            writer = Writer(self.objects, [])
            with _deep():
                data = [writer.value(operand) for operand in operands]
            self.send(["ask", operation, data])
            try:
                while (message := self.receive())[0] == "ask":
                    self.answer(message)
                kind, states, result, printed = message
                sent = writer.nodes[:]
                with _deep():
                    reader = Reader(self.objects, writer.nodes)
                    contents = [reader.content(node, state[0]) for node, state in zip(sent, states, strict=True)]
                    value = reader.error(*result) if kind == "error" else reader.value(result)
                    for node, content in zip(sent, contents, strict=True):
                        refill(node, content)
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
            reader = Reader(self.objects, [])
            with _deep():
                operands = [reader.value(operand) for operand in data]
            received = len(reader.nodes)
            writer = Writer(self.objects, reader.nodes)
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
                if not self._guarded or may_be_called(target, args):
                    return target(*args, **kwargs)
            case "special", (name, args):
                return SPECIAL[name](target, *args)
            case "get" | "set" | "delete", (name, *values):
                if not self._guarded or may_be_seen(operation, target, name):
                    return _ATTRIBUTE[operation](target, name, *values)
            case "plain", ():
                return plain(target)
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
