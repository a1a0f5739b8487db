"""Known programs: every reference solution passes, and fails once an expected value is another one."""

import ast
import concurrent.futures
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.code_utils.services import ask

TASKS = {"humaneval.jsonl": 132, "mbpp_sanitized.jsonl": 347}


@dataclass(frozen=True, kw_only=True)
class Task:
    """A reference solution and its tests."""

    name: str
    program: str
    tests: list[str]


def load(path: Path) -> list[Task]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    if "entry_point" in rows[0]:
        return [
            Task(
                name=row["task_id"],
                program=row["prompt"] + row["canonical_solution"],
                tests=[f"{_given(row)}\n{row['test']}\ncheck({row['entry_point']})"],
            )
            for row in rows
        ]
    return [
        Task(
            name=str(row["task_id"]),
            program=row["code"],
            tests=["\n".join([*row["test_imports"], test]) for test in row["test_list"]],
        )
        for row in rows
    ]


def _given(row: dict[str, str]) -> str:
    """What stands before the function that is asked for, as `code_tasks.py` has it: were `poly` the program's, it could
    be 0 everywhere."""
    return row["prompt"].partition(f"def {row['entry_point']}(")[0]


class Mutation(ast.NodeTransformer):
    """Another expected value in one assert statement."""

    def __init__(self, target: ast.Assert) -> None:
        self._target = target

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        if node is not self._target:
            return node
        match node.test:
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[expected]):
                test: ast.expr = ast.Compare(left=left, ops=[ast.Eq()], comparators=[_another(expected)])
            case other:
                test = ast.UnaryOp(op=ast.Not(), operand=other)
        return ast.Assert(test=test)


def _another(expected: ast.expr) -> ast.expr:
    match expected:
        case ast.Constant(value=bool(value)):
            return ast.Constant(value=not value)
        case ast.Constant(value=int() | float() as value):
            return ast.Constant(value=value + 1)
        case ast.Constant(value=str(value)):
            return ast.Constant(value=value + "~")
    return ast.Tuple(elts=[expected, ast.Constant(value="another")], ctx=ast.Load())


def mutated(test: str) -> str:
    """The test with another expected value in its last assert statement."""
    tree = ast.parse(test)
    last = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    target = max(last, key=lambda node: node.lineno)
    return ast.unparse(ast.fix_missing_locations(Mutation(target).visit(tree)))


def check(url: str, tasks: list[Task]) -> int:
    """Asks for every task's tests and their mutations; returns how many tests there were."""

    def wrong(task: Task) -> str | None:
        results = ask(url, task.program, [*task.tests, *map(mutated, task.tests)], seconds=60)
        expected = [1] * len(task.tests) + [0] * len(task.tests)
        return None if results == expected else f"{task.name}: {results}"

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        failed = [found for found in pool.map(wrong, tasks) if found]
    assert not failed
    return sum(len(task.tests) for task in tasks)


@pytest.mark.parametrize("name", TASKS)
def test_a_sample_of_reference_solutions(url: str, name: str, sample_data: Callable[[str], Path]) -> None:
    assert check(url, load(sample_data(name))[::12])


@pytest.mark.long
@pytest.mark.parametrize("name", TASKS)
def test_all_reference_solutions(url: str, name: str, sample_data: Callable[[str], Path]) -> None:
    tasks = load(sample_data(name))
    assert len(tasks) == TASKS[name]
    print(f"{name}: {len(tasks)} solutions, {check(url, tasks)} tests pass, as many with another value fail")
