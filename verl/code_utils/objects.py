"""The objects of both sides that stay where they are, by the numbers under which messages name them.

Decision: the same object is the same on the other side. One of ours has one number, one of theirs one proxy, and an
exception of theirs one exception here, of a class with the same built-in bases, so that `except` knows it.

    objects = Objects(peer)
    objects.export(print)                      # 0
    objects.proxy(7) is objects.proxy(7)       # True
"""

from typing import Any

from .identity import ByIdentity
from .proxy import Asking, Proxy

SOLUTION = "solution"
"""Name of the module that programs are."""

_FOREIGN: dict[str, Any] = {
    "__getattr__": lambda self, name: getattr(vars(self).get("_origin"), name),
    "__str__": lambda self: vars(self).get("_text", ""),
    "__module__": SOLUTION,
}
"""What an exception class that stands for one of the other side has of its own."""


class Objects:
    """Those of one end of the exchange."""

    def __init__(self, peer: Asking) -> None:
        self._peer = peer
        self.ours: list[Any] = []
        """Those that the other side knows of, by number."""
        self._numbers: ByIdentity[int] = ByIdentity()
        self._theirs: dict[int, Proxy] = {}
        self._mirrors: dict[int, type] = {}
        self.foreign: dict[type, int] = {}
        """Exception classes that stand for those of the other side, and their numbers there."""
        self.errors: dict[int, BaseException] = {}
        """Exceptions that stand for those of the other side, by their numbers there."""
        self.error_numbers: ByIdentity[int] = ByIdentity()
        """The numbers of such exceptions there."""

    def export(self, value: Any) -> int:
        """The number of an object that stays here."""
        number = self._numbers.get(value)
        if number is None:
            number = len(self.ours)
            self._numbers[value] = number
            self.ours.append(value)
        return number

    def exported(self, number: int) -> Any:
        """The object of that number."""
        if number < 0:
            raise ValueError("no value")
        return self.ours[number]

    def proxy(self, number: int) -> Proxy:
        """What stands for an object of the other side."""
        return self._theirs.setdefault(int(number), Proxy(self._peer, int(number)))

    def mirror(self, number: int, name: str, bases: tuple[type, ...]) -> type:
        """What stands for one of its exception classes."""
        if number not in self._mirrors:

            def make(error: BaseException, /, *args: Any, **kwargs: Any) -> None:
                # One that is made here has what its class gives it there.
                made = self._peer.ask("call", self.proxy(number), args, kwargs)
                if not isinstance(made, BaseException):
                    raise TypeError(f"{name}() made no exception")
                error.args = made.args
                vars(error).update(vars(made))
                there = self.error_numbers.pop(made)
                if there is not None:
                    self.adopt(error, there)

            self._mirrors[number] = type(name, bases, {**_FOREIGN, "__init__": make})
            self.foreign[self._mirrors[number]] = number
        return self._mirrors[number]

    def adopt(self, error: BaseException, number: int) -> None:
        """From now on, this exception stands for the other side's of that number."""
        self.errors[number] = error
        self.error_numbers[error] = number
