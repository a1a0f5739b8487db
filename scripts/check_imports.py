"""Checks layers and circles of imports: the contracts of import-linter in `pyproject.toml`, lazy imports included.

One decision: import-linter reads the files of this checkout only. It looks modules up by name, and `verl` is upstream's
package with ours beside it, so in this process the name stands for our folder alone. Nothing of `verl` is imported.

    python scripts/check_imports.py                  # exit code 1 when a contract is broken, with the imports that do
"""

import argparse
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

from importlinter.cli import lint_imports

ROOT = Path(__file__).resolve().parent.parent


def show_our_files_only() -> None:
    """Makes `verl` a namespace package that consists of this checkout's folder."""
    spec = ModuleSpec("verl", loader=None, is_package=True)
    spec.submodule_search_locations = [str(ROOT / "verl")]
    sys.modules["verl"] = importlib.util.module_from_spec(spec)


def main() -> int:
    """Command line."""
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    show_our_files_only()
    return lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True, no_logo=True)


if __name__ == "__main__":
    raise SystemExit(main())
