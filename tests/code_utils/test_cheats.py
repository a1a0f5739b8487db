"""Programs without a solution do not pass, whatever they do to the process that runs them."""

import ast
import concurrent.futures
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.code_utils.cheats import CHEATS
from tests.code_utils.services import ask
from tests.code_utils.test_references import TASKS, Task, load
from verl.code_utils.sandbox import _STRONGEST_FIRST, Protection, Sandbox, SandboxError, SandboxSettings

SCAN = """
import ctypes
OTHER = bytes(byte ^ 1 for byte in range(256))
def holds(changed):
    word = changed.encode()
    with open("/proc/self/maps") as file: areas = [line.split() for line in file]
    for where, rights, *_, name in areas:
        start, end = (int(number, 16) for number in where.split("-"))
        if rights.startswith("rw") and not name.startswith("[v"):
            if word in ctypes.string_at(start, end - start).translate(OTHER): return True
    return False
"""
"""Looks for a word in the process's memory without having it there."""


def changed(word: str) -> str:
    return "".join(chr(ord(letter) ^ 1) for letter in word)


def names_of(task: Task) -> list[str]:
    """What a problem asks for: the functions of its reference solution."""
    defined = ast.parse(task.program).body
    return [node.name for node in defined if isinstance(node, ast.FunctionDef | ast.ClassDef)]


def cheat(url: str, tasks: Sequence[Task], what: str) -> list[str]:
    """The tasks that a cheat passes."""

    def passes(task: Task) -> str | None:
        results = ask(url, CHEATS[what](names_of(task)), task.tests, seconds=20)
        return task.name if all(results) else None

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        return [name for name in pool.map(passes, tasks) if name]


@pytest.mark.parametrize("what", CHEATS)
def test_cheats_pass_none_of_a_sample(url: str, what: str, sample_data: Callable[[str], Path]) -> None:
    tasks = [task for name in TASKS for task in load(sample_data(name))[3::110]]
    assert len(tasks) >= 5
    assert not cheat(url, tasks, what)


@pytest.mark.long
@pytest.mark.parametrize("what", CHEATS)
@pytest.mark.parametrize("name", TASKS)
def test_cheats_pass_no_task(url: str, what: str, name: str, sample_data: Callable[[str], Path]) -> None:
    tasks = load(sample_data(name))
    assert len(tasks) == TASKS[name]
    assert not cheat(url, tasks, what)


def test_a_program_does_not_hold_its_test(url: str) -> None:
    known, hidden = "HELD" + "WORD" * 3, "HIDDEN" + "WORD" * 3
    tests = [
        f"assert holds({changed(known)!r})",
        f"assert not holds({changed(hidden)!r})  # {hidden}",
        f"x = '{hidden}'",
    ]
    assert ask(url, f"{SCAN}\nx = '{known}'", tests, seconds=20) == [1, 1, 1]
    said = [{"input": changed(known), "output": "True"}, {"input": changed(hidden), "output": f"False {hidden}"}]
    script = f"{SCAN}\nx, word = '{known}', input()\nfound = holds(word)\n"
    script += "print(found if found else f'{found} ' + word.encode().translate(OTHER).decode())"
    assert ask(url, script, said, seconds=20) == [1, 1]


@pytest.mark.parametrize("protection", _STRONGEST_FIRST, ids=str)
def test_cheats_do_not_pass_under_any_protection(protection: Protection) -> None:
    sandbox = Sandbox(SandboxSettings(concurrency=1, allow_weak=True))
    try:
        sandbox.start([protection])
    except SandboxError as error:
        pytest.skip(f"not possible here: {error}")
    tests = ["assert total([1, 2]) == 3", "assert abs(total([0.5]) - 0.5) < 1e-6", "assert total([2, 4]) == 6"]
    for what, make in CHEATS.items():
        assert sum(sandbox.run("assert", make(["total"]), tests, seconds=5).results) == 0, what
    assert sandbox.run("assert", "def total(x): return sum(x)", tests, seconds=10).results == [1, 1, 1]
