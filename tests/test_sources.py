"""Mistakes that only reading all of our sources and configs shows: each was one in the code that this project replaces.

One decision: a rule has a test on a snippet that breaks it, since a rule that sees nothing passes as well.
"""

import ast
import dataclasses
import importlib.metadata
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from verl.teaching import config as teaching_config
from verl.teaching import reward_config

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("verl", "scripts", "examples", "custom_data")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources() -> Iterator[tuple[str, ast.Module]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Nodes of a function without those of functions in it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, Function | ast.Lambda):
            yield child
            yield from own_nodes(child)


def imported(nodes: Iterator[ast.AST] | list[ast.stmt]) -> set[str]:
    """Names that imports among the nodes bind."""
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    return {(name.asname or name.name).split(".")[0] for node in imports for name in node.names}


def shadowing(tree: ast.Module) -> list[str]:
    """Functions that import a name which their module has imported: before that line it would have no value."""
    top = imported(tree.body)
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    return [f"{one.name}: {name}" for one in functions for name in sorted(imported(own_nodes(one)) & top)]


def sets_for_dicts(tree: ast.Module) -> list[str]:
    """`x.update({a, b})`: a comma in the place of a colon."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    return [
        ast.unparse(call)
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "update"
        and any(isinstance(value, ast.Set | ast.SetComp) for value in call.args)
    ]


def compared_as_text(tree: ast.Module) -> list[str]:
    """Versions that are put in order as text, by which 0.10 is older than 0.9."""
    ordering = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(isinstance(one, ordering) for one in node.ops):
            sides = [node.left, *node.comparators]
            constants = [one.value for one in sides if isinstance(one, ast.Constant)]
            texts = [value for value in constants if isinstance(value, str) and re.match(r"\d+\.\d", value)]
            versions = [one for one in sides if re.search(r"__version__$|\bversion\([^()]*\)$", ast.unparse(one))]
            found += [ast.unparse(node)] if texts or versions else []
    return found


BLOCKING = re.compile(
    r"^(time\.sleep|requests\.\w+|os\.system|input|urllib\.request\.urlopen|subprocess\.(run|call|check_\w+)"
    r"|ray\.(get|wait)|socket\.create_connection)$"
)


def blocking(tree: ast.Module) -> list[str]:
    """Calls that hold up all that an event loop serves, in functions that it runs."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)]
    calls = [(one.name, node) for one in functions for node in own_nodes(one) if isinstance(node, ast.Call)]
    return [f"{name}: {ast.unparse(call.func)}" for name, call in calls if BLOCKING.match(ast.unparse(call.func))]


RULES: list[tuple[Callable[[ast.Module], list[str]], str]] = [
    (shadowing, "import os\ndef f():\n    os.getcwd()\n    if True:\n        import os"),
    (sets_for_dicts, "metrics.update({'a', 1})"),
    (compared_as_text, "if vllm.__version__ >= '0.8.3': pass"),
    (compared_as_text, "old = importlib.metadata.version('verl') < minimum"),
    (blocking, "async def route():\n    with lock:\n        time.sleep(1)"),
    (blocking, "class A:\n    async def route(self):\n        return requests.post(url).json()"),
]


@pytest.mark.parametrize(("rule", "source"), RULES)
def test_a_rule_sees_what_breaks_it(rule: Callable[[ast.Module], list[str]], source: str) -> None:
    assert rule(ast.parse(source))


def broken(rule: Callable[[ast.Module], list[str]]) -> list[str]:
    return [f"{name}: {where}" for name, tree in sources() for where in rule(tree)]


@pytest.mark.guards("a local import shadowing a module")
def test_no_import_shadows_another_one() -> None:
    """Neither within a file, nor a folder or file of ours a library that is installed."""
    assert broken(shadowing) == []
    installed = importlib.metadata.packages_distributions()
    assert (ROOT / "custom_data").is_dir()
    assert (ROOT / "verl_overlay.py").is_file()
    for name in ("custom_data", "verl_overlay"):
        assert {*installed.get(name, ())} <= {"classmate-cot-verl"}, name


@pytest.mark.guards("set for dict in an update")
def test_no_mapping_is_updated_with_a_set() -> None:
    assert broken(sets_for_dicts) == []


@pytest.mark.guards("version strings compared as text")
def test_no_versions_are_ordered_as_text() -> None:
    assert broken(compared_as_text) == []


@pytest.mark.guards("blocking call in an async endpoint")
def test_nothing_blocks_an_event_loop() -> None:
    assert broken(blocking) == []


# Configs.


def read_names() -> set[str]:
    """Names that our code reads: as an attribute, as a key, or as part of a dotted key."""
    found: set[str] = set()
    for _, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= set(re.findall(r"\w+", node.value)) if re.fullmatch(r"[\w.]+", node.value) else set()
    return found


def keys(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield str(key)
            yield from keys(value)


@pytest.mark.guards("dead keys")
def test_every_key_of_ours_is_read() -> None:
    """Of the node `rcl`, and of the node `launch` in the run files; unknown keys are refused elsewhere."""
    read = read_names()
    options = [
        f"{cls.__name__}.{field.name}"
        for module in (teaching_config, reward_config)
        for cls in vars(module).values()
        if dataclasses.is_dataclass(cls) and getattr(cls, "__module__", "") == module.__name__
        for field in dataclasses.fields(cls)
    ]
    assert len(options) > 40
    assert [one for one in options if one.partition(".")[2] not in read] == []
    files = [yaml.safe_load(path.read_text()) or {} for path in (ROOT / "configs").rglob("*.yaml")]
    launch = {key for one in files for key in keys(one.get("launch", {}))}
    assert {"phase"} <= launch
    assert launch - read == set()


def targets(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from [node["_target_"]] if isinstance(node.get("_target_"), str) else []
        for value in node.values():
            yield from targets(value)
    elif isinstance(node, list):
        for value in node:
            yield from targets(value)


@pytest.mark.guards("_target_ in the wrong module")
@pytest.mark.parametrize("name", ["rcl_trainer", "classmate_cot_ppo_trainer", "teacher_sft_trainer"])
def test_every_target_of_a_config_is_there(name: str) -> None:
    """Each class that Hydra would make, and each file that upstream would load a dataset from."""
    from hydra.utils import get_object
    from omegaconf import OmegaConf

    from verl.trainer.run.command_line import HARDWARE, compose, prepare_overrides
    from verl.utils.import_utils import load_extern_object

    hardware = "sft_hardware" if name == "teacher_sft_trainer" else HARDWARE
    composed = compose(name, prepare_overrides(["hardware=cpu"], hardware=hardware), hardware=hardware)
    content: Any = OmegaConf.to_container(composed, resolve=False)
    named = set(targets(content))
    assert named
    for target in named:
        assert callable(get_object(target)), target
    own = content["data"].get("custom_cls") or {}
    if own.get("path"):
        assert isinstance(load_extern_object(own["path"], own["name"]), type)
