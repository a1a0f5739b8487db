"""What holds for every file of the repository, found by glob."""

import ast
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


@pytest.mark.guards("hard-coded hosts, paths and organisations")
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


def anchors(document: Path) -> set[str]:
    """Those that GitHub gives the headings of a page."""
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_anchors_that_files_name_are_headings() -> None:
    named = {
        (match[1], match[2]) for path in committed() for match in re.finditer(r"(docs/\w+\.md)#([\w-]+)", text_of(path))
    }
    assert named
    assert not [f"{page}#{anchor}" for page, anchor in named if anchor not in anchors(ROOT / page)]


def functions() -> list[tuple[str, str]]:
    """Every function of a test file, as (file, name)."""
    files = [path for path in committed() if path.suffix == ".py" and path.is_relative_to(ROOT / "tests")]
    trees = {str(path.relative_to(ROOT)): ast.parse(text_of(path)) for path in files}
    return [
        (name, node.name) for name, tree in trees.items() for node in ast.walk(tree) if hasattr(node, "decorator_list")
    ]


def test_names_of_tests_have_60_characters_at_most() -> None:
    assert not [f"{file}::{name}" for file, name in functions() if name.startswith("test_") and len(name) > 60]


def test_no_list_is_packed_with_starred_literals() -> None:
    """`["a", *("b", "c")]` is `["a", "b", "c"]`, written so that a formatter leaves several in a line."""
    packed = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in committed()
        if path.suffix == ".py"
        for node in ast.walk(ast.parse(text_of(path)))
        if isinstance(node, ast.Starred) and isinstance(node.value, ast.Tuple | ast.List)
    ]
    assert not packed


@pytest.mark.parametrize("script", sorted((ROOT / "scripts").glob("**/*.py")), ids=lambda path: path.stem)
def test_scripts_explain_themselves(script: Path) -> None:
    if '__name__ == "__main__"' not in script.read_text():
        return  # a module of scripts
    result = subprocess.run([sys.executable, str(script), "--help"], capture_output=True, text=True, cwd="/")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("usage:")


FORKS = {
    "verl/trainer/fork/_server_process.py": "a process without threads of Python and without handlers",
    "verl/code_utils/jail.py": "a script of its own that does nothing else",
    "tests/reasoning/killing.py": "a script of its own, whose runs begin after the fork",
}
"""Files that may fork, and why that is safe there; programs under test, which are strings, are not looked into."""


def forks(source: str) -> list[str]:
    """Where a Python source forks the process that it runs in, as code: start methods, pools, `preexec_fn`."""
    found = []
    makers = {"Pool", "Process", "Manager", "Queue", "Event", "Lock", "Value", "Array"}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module in ("multiprocessing", "torch.multiprocessing"):
            found += [f"from {node.module} import {name.name}" for name in node.names if name.name in makers]
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        first = ast.unparse(node.args[0]) if node.args else keywords.get("method")
        module, _, name = called.rpartition(".")
        if called in ("os.fork", "os.forkpty", "pty.fork", "fork", "forkpty"):
            found.append(called)
        if name in ("get_context", "set_start_method") and first not in ("'spawn'", "'forkserver'"):
            found.append(f"{called}({first or ''})")
        if module in ("multiprocessing", "mp", "torch.multiprocessing") and name in makers:
            found.append(called)
        if name == "ProcessPoolExecutor" and "mp_context" not in keywords and len(node.args) < 2:
            found.append(f"{called} without mp_context")
        if keywords.get("preexec_fn", "None") != "None":
            found.append(f"{called}(preexec_fn=...)")
        if (
            name == "DataLoader"
            and keywords.get("num_workers", "0") != "0"
            and "multiprocessing_context" not in keywords
        ):
            found.append(f"{called}(num_workers=...)")
        if keywords.get("num_proc", "None") != "None":
            found.append(f"{called}(num_proc=...)")
    return found


@pytest.mark.parametrize(
    "source",
    [
        "import os\nif os.fork() == 0: pass",
        "import multiprocessing\nmultiprocessing.get_context('fork').Pool(3)",
        "import multiprocessing\nmultiprocessing.get_context().Process(target=print)",
        "import multiprocessing\nmultiprocessing.set_start_method(method='fork')",
        "import multiprocessing as mp\nmp.Process(target=print).start()",
        "from multiprocessing import Pool\nPool(3)",
        "from concurrent.futures import ProcessPoolExecutor\nProcessPoolExecutor(2)",
        "import subprocess\nsubprocess.Popen(['a'], preexec_fn=print)",
        "data.map(len, num_proc=2)",
        "torch.utils.data.DataLoader(data, num_workers=2)",
    ],
)
def test_a_fork_is_seen(source: str) -> None:
    assert forks(source)


@pytest.mark.parametrize(
    "source",
    [
        "import multiprocessing\nmultiprocessing.get_context('spawn').Pool(3)",
        "from concurrent.futures import ProcessPoolExecutor\nProcessPoolExecutor(2, mp_context=context)",
        "from multiprocessing import Pipe\nPipe()",
        "import subprocess\nsubprocess.Popen(['a'], preexec_fn=None)",
        "PROGRAM = 'import os; os.fork()'",
        "data.map(len, num_proc=None)",
    ],
)
def test_what_forks_nothing_is_left_alone(source: str) -> None:
    assert not forks(source)


def test_nothing_forks_a_process_with_threads_and_handlers() -> None:
    """A fork has the locks of its parent's threads and none of the threads, and a pool's child the handler of SIGTERM
    with which pytest or a run ends itself: either waits for ever."""
    found = {str(path.relative_to(ROOT)): forks(text_of(path)) for path in committed() if path.suffix == ".py"}
    assert {name: where for name, where in found.items() if where and name not in FORKS} == {}
    assert all(found[name] for name in FORKS), "only what forks is excused"
