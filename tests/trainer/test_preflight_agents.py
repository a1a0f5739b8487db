"""Agent loops that rows name: what is not there is told at start, in one line that says what to write."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from verl.classmate.errors import ConfigError
from verl.trainer.preflight_agents import check


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
    check(config(tmp_path))
    check(config(tmp_path, None, "single_turn_agent", "classmate_cot"))
    check(config(tmp_path, "tool_agent", function_tool_path=written(tmp_path / "tools.py", "")))
    own = written(tmp_path / "loops.yaml", "- name: mine\n  _target_: package.Loop\n")
    check(config(tmp_path, None, default="mine", loops=own))


@pytest.mark.parametrize(
    ("agents", "given", "said"),
    [
        (["tool_agnt"], {}, "its column agent_name names the agent loop 'tool_agnt', which is not there; write one of"),
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
        check(config(tmp_path, *agents, **given))
    assert "\n" not in str(error.value)
