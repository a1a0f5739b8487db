"""What holds for every file of the repository, found by glob."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

MACHINE = [
    (r"(?<![\w.-])/([r]oot|[w]ork|[f]arm)/", "a path of one machine"),
    (r"(?<![\w.-])/(home|Users)/[a-z]\w+/", "a path of one user"),
    (r"(?<![\w.-])/[o]pt/(wheels|pypi)", "a path of one machine"),
    (r"(?<![\w.])(?!127\.|0\.0\.0\.0|255\.)\d{1,3}(\.\d{1,3}){3}(?![\w.])", "an address"),
    (r"hf_[A-Za-z]{30}|sk-[A-Za-z0-9]{32}|AKIA[A-Z0-9]{16}|-----BEGIN [A-Z ]*PRIVATE KEY", "a secret"),
]
"""Patterns that no committed text may hold; the brackets keep this file from matching itself."""

PINS = re.compile(r"^[\w.-]+==", re.MULTILINE)


def committed() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.splitlines() if (ROOT / name).is_file()]


def text_of(path: Path) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return ""


def shell_scripts() -> list[Path]:
    return [path for path in committed() if re.match(r"#!.*\b(ba)?sh\b", text_of(path)) or path.suffix == ".sh"]


def test_shell_scripts_pass_shellcheck() -> None:
    scripts = shell_scripts()
    assert scripts
    shellcheck = shutil.which("shellcheck", path=str(Path(sys.executable).parent)) or "shellcheck"
    result = subprocess.run([shellcheck, *map(str, scripts)], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


def test_shell_scripts_stop_at_the_first_error() -> None:
    assert not [path for path in shell_scripts() if "set -euo pipefail" not in text_of(path)]


def test_no_committed_file_names_a_machine_or_a_secret() -> None:
    found = []
    for path in committed():
        text = text_of(path)
        # A pinned version of four numbers looks like an address.
        lines = [line for line in text.splitlines() if not PINS.match(line)]
        for pattern, what in MACHINE:
            found += [
                f"{path.relative_to(ROOT)}: {what}: {line.strip()[:100]}" for line in lines if re.search(pattern, line)
            ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("command", [["ruff", "check"], ["ruff", "format", "--check"]], ids=["check", "format"])
def test_ruff_is_clean(command: list[str]) -> None:
    python_files = [str(path) for path in committed() if path.suffix == ".py"]
    result = subprocess.run([sys.executable, "-m", *command, *python_files], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("script", sorted((ROOT / "scripts").glob("**/*.py")), ids=lambda path: path.stem)
def test_scripts_explain_themselves(script: Path) -> None:
    if script.name == "__init__.py":
        return
    result = subprocess.run([sys.executable, str(script), "--help"], capture_output=True, text=True, cwd="/")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("usage:")
