"""Joins this repository's `verl/` folder with the installed verl, in every process that imports verl.

Upstream loads each entry point of the group `verl.plugins` at the end of `import verl`; this module is ours, the only
one (two would load in an order of their own). Loading it does two things, both cheap:

* *Find.* In an editable install, a finder at the end of `sys.meta_path` looks up in this checkout names below `verl`
  that upstream lacks. It never shadows an upstream module, since it is asked last. In a wheel install our files lie
  inside the installed package and there is no such finder.
* *Register.* `after_import(name, hook)` runs a hook right after an upstream module was imported, which is when our
  classes enter that module's registry. Registering at once would make `import verl` import engines, and cost seconds.

    >>> import verl                       # upstream, which loads this module
    >>> import verl.classmate.cot         # ours, from this checkout
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

OVERLAY_ROOT = Path(__file__).resolve().parent
_MANIFEST = "verl.plugin.classmate_plugin"

Hook = Callable[[ModuleType], None]


class OverlayFinder(MetaPathFinder):
    """Finds modules below `verl` in the checkout that holds this file."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("verl."):
            return None
        parent = OVERLAY_ROOT.joinpath(*fullname.split(".")[:-1])
        return PathFinder.find_spec(fullname, [str(parent)], target) if parent.is_dir() else None


class PostImportFinder(MetaPathFinder):
    """Runs hooks right after the module they are registered for was executed."""

    def __init__(self) -> None:
        self.hooks: dict[str, list[Hook]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.hooks:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_then_register(module: ModuleType) -> None:
            execute(module)
            for hook in self.hooks.pop(fullname, []):
                hook(module)

        spec.loader.exec_module = execute_then_register  # type: ignore[method-assign]
        return spec


_post_import = PostImportFinder()


def after_import(name: str, hook: Hook) -> None:
    """Calls `hook(module)` once, right after the module `name` was imported; at once if that has already happened."""
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        hook(module)
    else:
        _post_import.hooks.setdefault(name, []).append(hook)


def _install() -> None:
    sys.meta_path.insert(0, _post_import)
    # In a wheel install this file lies beside upstream's `verl`, where Python looks anyway.
    if not (OVERLAY_ROOT / "verl" / "__init__.py").exists():
        sys.meta_path.append(OverlayFinder())
    importlib.import_module(_MANIFEST).register(after_import)


_install()
