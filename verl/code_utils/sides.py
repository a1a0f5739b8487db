"""The two processes of a test with statements: one that holds the program, one that holds the test.

Decision: the program's names are proxies in the test's process (`proxy.py`). The test has its own built-in functions
and its own standard library, whatever the program has made of its own; an expected value never leaves it.

    hold_program(3, "def f(): return 1")       # never returns; in its own process
    run_test(3, "assert f() == 1")             # returns if the test passes; in another one
"""

import ast
import builtins
import importlib
import io
import os
import symtable
import sys
from collections.abc import Collection
from types import ModuleType
from typing import Any, NoReturn

from .exchange import Peer
from .guard import TEST
from .objects import SOLUTION

__all__ = ["hold_program", "run_test"]

_OWN_FRAMES = 20
"""What the calls around a program take of its recursion."""


def _module(name: str) -> ModuleType:
    module = ModuleType(name)
    sys.modules[name] = sys.modules["__main__"] = module
    sys.argv = [""]
    return module


def hold_program(descriptor: int, program: str) -> NoReturn:
    """Runs a program and then does what the test asks for, until there is no test any more."""
    try:
        module = _module(SOLUTION)
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
    # Two modules: what the standard library looks for in a test's own is not for the program to give.
    module, solution = _module(TEST), ModuleType(SOLUTION)
    sys.modules[SOLUTION] = solution
    code = compile(test, "test.py", "exec", 0, True, 0)
    peer = Peer(descriptor, guarded=True)
    solution.__dict__["__getattr__"] = lambda name: _one(peer, name)
    module.__dict__.update(_names(test, peer))
    exec(code, module.__dict__)
    peer.ask("names", [])


def _given(peer: Peer, names: Collection[str]) -> dict[str, Any]:
    """What the program has by these names, and nothing that it says beyond."""
    found = peer.ask("names", sorted(names))
    if type(found) is not dict:
        os._exit(1)
    return {name: found[name] for name in names if name in found}


def _one(peer: Peer, name: str) -> Any:
    """For `import solution`."""
    found = {} if name.startswith("__") else _given(peer, [name])
    if name not in found:
        raise AttributeError(name)
    return found[name]


def _names(test: str, peer: Peer) -> dict[str, Any]:
    """What a test finds defined: the program's names, and modules of the standard library by their own names.

    A built-in function is the program's only where nothing else in the test can be: in `assert sum(10, 15) == 6`, and
    where the test hands it to a function of its own, in `check(sum)`.
    """
    outermost = symtable.symtable(test, "test.py", "exec")
    used, assigned, defined = _global_names(outermost)
    peer.ends_expected = not used.isdisjoint({"StopIteration", "StopAsyncIteration"})
    attributes: dict[str, set[str]] = {}
    handed: set[str] = set()
    imported: set[str] = set()
    for node in ast.walk(ast.parse(test)):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                attributes.setdefault(name, set()).add(attribute)
            case ast.Call(func=ast.Name(id=name), args=args) if name in defined:
                handed |= {arg.id for arg in args if isinstance(arg, ast.Name)}
            case ast.Import(names=names):
                imported |= {alias.name for alias in names}
            case ast.ImportFrom(module=str(name)):
                imported.add(name)
    free = {name for name in used - defined if not name.startswith("__")}
    built_in = free & set(dir(builtins))
    modules = {name: module for name in free - built_in if (module := _standard(name, attributes.get(name)))}
    asked = free - built_in - set(modules)
    if not (asked - assigned or SOLUTION in imported):
        subjects = built_in & handed or built_in
        asked |= subjects if len(subjects) == 1 else set()
    return {**modules, **_given(peer, asked)}


def _global_names(outermost: symtable.SymbolTable) -> tuple[set[str], set[str], set[str]]:
    """The global names that a test uses, that it assigns, and that it defines or imports."""
    used: set[str] = set()
    assigned: set[str] = set()
    defined: set[str] = set()
    tables = [outermost]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            name = symbol.get_name()
            if table is not outermost and not symbol.is_global():
                continue
            used |= {name} if symbol.is_referenced() else set()
            if symbol.is_namespace() or symbol.is_imported():
                defined.add(name)
            elif symbol.is_assigned():
                assigned.add(name)
    return used, assigned, defined


def _standard(name: str, attributes: set[str] | None) -> ModuleType | None:
    """The module of that name, if that is what is meant."""
    if not attributes or name not in sys.stdlib_module_names:
        return None
    module = importlib.import_module(name)
    return module if all(hasattr(module, attribute) for attribute in attributes) else None
