"""The two processes of a test with statements: one that holds the program, one that holds the test.

Decision: the program's names are proxies in the test's process (`exchange.py`). The test has its own built-in functions
and its own standard library, whatever the program has made of its own; an expected value never leaves it.

    hold_program(3, "def f(): return 1")       # never returns; in its own process
    run_test(3, "assert f() == 1")             # returns if the test passes; in another one
"""

import ast
import builtins
import importlib
import io
import os
import sys
from types import ModuleType
from typing import Any, NoReturn

from .exchange import SOLUTION, Peer

__all__ = ["hold_program", "run_test"]

_OWN_FRAMES = 20
"""What the calls around a program take of its recursion."""


def _module() -> ModuleType:
    module = ModuleType(SOLUTION)
    sys.modules[SOLUTION] = sys.modules["__main__"] = module
    sys.argv = [""]
    return module


def hold_program(descriptor: int, program: str) -> NoReturn:
    """Runs a program and then does what the test asks for, until there is no test any more."""
    try:
        module = _module()
        sys.setrecursionlimit(sys.getrecursionlimit() + _OWN_FRAMES)
        sys.stdout = printed = io.TextIOWrapper(io.BytesIO(), "utf-8", "replace")
        peer = Peer(descriptor, guarded=False, namespace=module.__dict__, printed=printed)
        exec(compile(program, "solution.py", "exec", 0, True), module.__dict__)
        while True:
            peer.answer(peer.receive())
    finally:
        os._exit(1)


def run_test(descriptor: int, test: str) -> None:
    """Returns when a test has run to its end, and the program's process is still there.

    Raises:
        BaseException: what the test raises. The process ends at once where the other one does, or talks nonsense.
    """
    module = _module()
    tree = ast.parse(test)
    code = compile(test, "test.py", "exec", 0, True, 0)
    peer = Peer(descriptor, guarded=True)
    module.__dict__.update(_names(tree, peer))
    module.__dict__["__getattr__"] = lambda name: _one(peer, name)
    exec(code, module.__dict__)
    peer.ask("names", [])


def _one(peer: Peer, name: str) -> Any:
    """For `import solution`."""
    found = {} if name.startswith("__") else peer.ask("names", [name])
    if name not in found:
        raise AttributeError(name)
    return found[name]


def _names(tree: ast.Module, peer: Peer) -> dict[str, Any]:
    """What a test finds defined: the program's names, and modules of the standard library by their own names.

    A built-in function is the program's only where nothing else in the test can be: in `assert sum(10, 15) == 6`.
    """
    used: set[str] = set()
    assigned: set[str] = set()
    defined: set[str] = set()
    attributes: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
            case ast.Name(id=name):
                assigned.add(name)
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.arg(arg=name)
            ):
                defined.add(name)
            case ast.alias(name=name, asname=other):
                defined.add(other or name.partition(".")[0])
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                attributes.setdefault(name, set()).add(attribute)
    built_in = set(dir(builtins))
    free = used - defined
    modules = {name: module for name in free - built_in if (module := _standard(name, attributes.get(name)))}
    asked = free - built_in - set(modules)
    found = peer.ask("names", sorted(asked if asked - assigned else free - set(modules)))
    if len(found.keys() & built_in) > 1:
        raise NameError("which of these built-in names the program was to define cannot be told")
    return {**modules, **found}


def _standard(name: str, attributes: set[str] | None) -> ModuleType | None:
    """The module of that name, if that is what is meant."""
    if not attributes or name not in sys.stdlib_module_names:
        return None
    module = importlib.import_module(name)
    return module if all(hasattr(module, attribute) for attribute in attributes) else None
