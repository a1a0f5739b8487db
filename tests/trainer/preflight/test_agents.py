"""Agent loops that rows name: what is not there is told at start, in one line that says what to write."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from verl.classmate.errors import ConfigError
from verl.trainer.preflight.agents import check_agents

TOOL = '''
from verl.tools.function_tool import function_tool

@function_tool
def preflight_add(a: int, b: int) -> str:
    """Adds.

    Args:
        a: a number.
        b: another.
    """
    return str(a + b)
'''
DECLARED = """
tools:
- class_name: verl.tools.base_tool.BaseTool
  config: {type: native}
"""


def config(tmp_path: Path, *agents: str | None, default: str = "classmate_cot", **given: Any) -> dict[str, Any]:
    """The part of a run's config that is looked at; without agents the data has no such column."""
    rows = pd.DataFrame({"data_source": ["gsm8k"] * max(1, len(agents))})
    if agents:
        rows["agent_name"] = list(agents)
    rows.to_parquet(tmp_path / "rows.parquet")
    multi_turn = {"function_tool_path": None, "tool_config_path": None}
    return {
        "data": {
            "custom_cls": {"path": None},
            "train_files": str(tmp_path / "rows.parquet"),
            "val_files": str(tmp_path / "rows.parquet"),
        },
        "actor_rollout_ref": {
            "rollout": {
                "agent": {"default_agent_loop": default, "agent_loop_config_path": given.pop("loops", None)},
                "multi_turn": multi_turn | given,
            }
        },
    }


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_loops_that_are_there_pass(tmp_path: Path) -> None:
    check_agents(config(tmp_path))
    check_agents(config(tmp_path, None, "single_turn_agent", "classmate_cot"))
    check_agents(config(tmp_path, "tool_agent", function_tool_path=written(tmp_path / "tools.py", TOOL)))
    declared = written(tmp_path / "tools.yaml", DECLARED)
    check_agents(config(tmp_path, "tool_agent", tool_config_path=declared))
    own = written(tmp_path / "loops.yaml", "- name: mine\n  _target_: package.Loop\n")
    check_agents(config(tmp_path, None, default="mine", loops=own))


@pytest.mark.parametrize(
    ("agents", "given", "said"),
    [
        (["tool_agnt"], {}, "column agent_name names the agent loop 'tool_agnt', which is not registered; write one "),
        ([], {"default": "nothing"}, "default_agent_loop names the agent loop 'nothing'"),
        ([None, "tool_agent"], {}, "there are no tools; write .*function_tool_path=FILE.py"),
        ([], {"default": "tool_agent"}, "default_agent_loop names tool_agent, but there are no tools"),
        (["tool_agent"], {"tool_config_path": "nowhere.yaml"}, "tool_config_path=nowhere.yaml does not exist"),
        (["mine"], {"loops": "nowhere.yaml"}, "agent_loop_config_path=nowhere.yaml cannot be read"),
    ],
)
def test_what_is_missing_is_one_line(
    tmp_path: Path, agents: list[str | None], given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        check_agents(config(tmp_path, *agents, **given))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("function_tool_path", "def f(:\n", r"cannot be loaded \(SyntaxError: .*line 1\).*; correct the file"),
        (
            "function_tool_path",
            "x = 1\nimport nonexistent_mod\n",
            r"ModuleNotFoundError: .*nonexistent_mod.*, line 2\)",
        ),
        ("function_tool_path", "import sys\nsys.exit(0)\n", r"SystemExit: 0, line 2\)"),
        ("function_tool_path", "x = 1\n", r"there are no tools in .*; write .*decorator function_tool"),
        ("tool_config_path", "tools: []\n", "there are no tools in .*with a list tools"),
        ("tool_config_path", "other: 1\n", "it has no list tools"),
        ("tool_config_path", "tools: [\n", "cannot be loaded"),
        ("tool_config_path", DECLARED.replace("BaseTool", "Nothing"), "has no attribute 'Nothing'"),
        ("tool_config_path", DECLARED.replace("verl.tools.base_tool", "nowhere.at_all"), "nowhere"),
        ("tool_config_path", DECLARED.replace("native", "mcp"), "'mcp' is not a valid ToolType"),
    ],
)
def test_tools_that_cannot_be_had_are_one_line(tmp_path: Path, key: str, text: str, said: str) -> None:
    file = written(tmp_path / f"{key}.{'py' if key.startswith('function') else 'yaml'}", text)
    with pytest.raises(ConfigError, match=said) as error:
        check_agents(config(tmp_path, "tool_agent", **{key: file}))
    assert "\n" not in str(error.value)
    assert file in str(error.value)


def test_files_of_tools_are_tried_whatever_the_rows_name(tmp_path: Path) -> None:
    """Each worker loads them when it starts."""
    broken = written(tmp_path / "tools.py", "def f(:\n")
    with pytest.raises(ConfigError, match="SyntaxError"):
        check_agents(config(tmp_path, function_tool_path=broken))


def test_numbers_that_are_none_name_no_loop(tmp_path: Path) -> None:
    check_agents(config(tmp_path, float("nan"), float("nan")))  # type: ignore[arg-type]
