"""Programs without a solution do not pass, whatever they do to the process that runs them."""

import ast
import concurrent.futures
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.code_utils.cheats import CHEATS
from tests.code_utils.services import ask
from tests.code_utils.test_references import TASKS, Task, load

SECRET = "W7GZ"


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
