"""What a program may do with the objects that a test hands it: nothing that leads it to the test itself.

may_be_seen("get", answer, "value")        # an attribute of an object of a class that the test defines
may_be_called(eval, ())                    # False
"""

import io
import operator
from typing import Any

TEST = "__main__"
"""Name of the module that tests are."""
_OPENERS = (
    eval,
    exec,
    compile,
    globals,
    locals,
    vars,
    getattr,
    setattr,
    delattr,
    __import__,
    open,
    str.format,
    str.format_map,
    operator.attrgetter,
    operator.methodcaller,
)
"""With one of these, a test would hand over itself."""


def may_be_seen(operation: str, target: Any, name: Any) -> bool:
    """Public attributes of classes that the test defines, and of their objects: nothing that leads to the test."""
    if type(name) is not str or name.startswith("_"):
        return operation == "get" and type(name) is str and name in ("__name__", "__qualname__", "__doc__")
    if isinstance(target, type):
        return operation == "get" and target.__module__ == TEST
    return type(target).__module__ == TEST or type(target) in (io.StringIO, io.BytesIO)


def may_be_called(target: Any, args: Any) -> bool:
    """Not what looks into anything or runs text, nor what makes types, whose objects would compare as they like."""
    if any(target is opener for opener in _OPENERS):
        return False
    return not (isinstance(target, type) and issubclass(target, type)) or len(args) == 1
