"""What stands for an object of the other side: whatever is done with it is asked for there.

Decision: an operator is asked for between two proxies only. With a value beside it, it would tell that value, which may
be the expected one, and let the other side make the result. A value is compared here, by its own type.

    f = Proxy(peer, 7)
    f([3, 1]) == [1, 3]                        # f runs there, == here
"""

import operator
from collections.abc import Callable
from typing import Any, Protocol

_UNARY = ("abs", "neg", "pos", "invert")
_ARITHMETIC = ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow")
_BITWISE = ("lshift", "rshift", "and", "or", "xor")
_ORDER = ("lt", "le", "gt", "ge")
_BINARY = (*_ARITHMETIC, *_BITWISE, *_ORDER)
SPECIAL: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, f"__{name}__") for name in (*_UNARY, *_BINARY, "eq", "getitem", "setitem", "delitem")},
    **{kind.__name__: kind for kind in (bool, int, float, complex, str)},
    **{function.__name__: function for function in (len, iter, next, reversed, repr, hash, round)},
    "enter": lambda target: target.__enter__(),
    "exit": lambda target, *about: target.__exit__(*about),
    "instancecheck": lambda target, value: isinstance(value, target),
    "subclasscheck": lambda target, value: issubclass(value, target),
}
"""Special methods, by their names without underscores, and what the side that has the object does for them."""
_STEPS = ("send", "throw")
"""Methods that step a generator, beside `next`; nothing else may end an iteration of the other side."""


class Asking(Protocol):
    """One end of the exchange (`exchange.Peer`), as far as proxies need it."""

    def ask(self, operation: str, *operands: Any) -> Any:
        """What the other side makes of it; raises what is raised there."""


class Proxy:
    """An object of the other side."""

    __slots__ = ("__number", "__peer")

    def __init__(self, peer: Asking, number: int) -> None:
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


def number_of(proxy: Proxy) -> int:
    """The number that the object has on the other side."""
    return proxy._Proxy__number  # type: ignore[attr-defined, no-any-return]


def _special(name: str) -> Callable[..., Any]:
    def method(self: Proxy, *operands: Any) -> Any:
        if name == "exit":
            # A traceback leads into the frames that raised.
            operands = (*operands[:2], None)
        if name in _BINARY and not isinstance(operands[0], Proxy):
            return NotImplemented
        return self._Proxy__peer.ask("special", self, name, operands)  # type: ignore[attr-defined]

    return method


for _name in SPECIAL:
    if _name != "eq":
        setattr(Proxy, f"__{_name}__", _special(_name))
Proxy.__doc__ = property(lambda self: self._Proxy__peer.ask("get", self, "__doc__"))  # type: ignore[assignment]
