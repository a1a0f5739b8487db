"""How our code is built: layers and circles of imports, names that upstream has not, sizes of files and functions."""

import ast
import importlib.metadata
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

LONGEST_FILE, LONGEST_TRAINER, LONGEST_FUNCTION, LONGEST_TEST_NAME = 400, 305, 60, 60
"""Lines, lines, lines and letters."""

ALONE = {"verl/code_utils/jail.py", "scripts/install.py"}
"""The only files that may be longer: they run alone, on the standard library. Their functions are no longer than
others."""


@lru_cache
def sources() -> dict[str, str]:
    """Path -> text of every Python file of ours."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name: (ROOT / name).read_text() for name in sorted(listed.splitlines()) if (ROOT / name).is_file()}


@lru_cache
def functions() -> tuple[tuple[str, str, int], ...]:
    """Path, name and number of lines of every function of ours."""
    return tuple(
        (name, node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
        for name, text in sources().items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def module_name(path: str) -> str:
    """`verl/a/b.py` and `verl/a/b/__init__.py` -> `verl.a.b`."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def our_modules() -> set[str]:
    return {module_name(name) for name in sources() if name.startswith("verl/")}


def test_imports_keep_to_layers_and_make_no_circle() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "check_imports.py")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_check_of_imports_sees_our_modules_and_no_others() -> None:
    code = (
        "from scripts.check_imports import show_our_files_only\n"
        "show_our_files_only()\n"
        "import grimp\n"
        "print(*grimp.build_graph('verl', cache_dir=None).modules)\n"
    )
    seen = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert our_modules() <= set(seen.split())
    assert "verl.protocol" not in seen.split()


def test_no_module_name_of_ours_is_upstreams() -> None:
    theirs = {module_name(str(path)) for path in importlib.metadata.files("verl") or [] if path.suffix == ".py"}
    assert "verl.protocol" in theirs
    assert our_modules() & theirs == set()


def test_no_file_is_too_long() -> None:
    assert {name for name, text in sources().items() if len(text.splitlines()) > LONGEST_FILE} == ALONE


def test_the_trainer_stays_short() -> None:
    assert len(sources()["verl/trainer/ppo/classmate_cot_ray_trainer.py"].splitlines()) <= LONGEST_TRAINER


def test_no_function_is_too_long() -> None:
    assert not [f"{name}: {function}" for name, function, lines in functions() if lines > LONGEST_FUNCTION]


def test_no_name_of_a_test_is_too_long() -> None:
    names = [(name, function) for name, function, _ in functions() if function.startswith("test_")]
    assert not [(name, function) for name, function in names if len(function) > LONGEST_TEST_NAME]
