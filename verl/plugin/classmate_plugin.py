"""Registers what this project adds to verl, each thing right after the upstream module that holds its registry was imported.

`verl_overlay` calls `register` at the end of `import verl`. Nothing heavy may be imported at the top of this module.
"""

from collections.abc import Callable
from types import ModuleType


def register(after_import: Callable[[str, Callable[[ModuleType], None]], None]) -> None:
    """Hands every hook of this project to `after_import(upstream module, hook)`."""
