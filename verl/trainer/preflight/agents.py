"""Whether the agent loops that rows name exist and have what they need, told before anything heavy starts.

>>> check_agents(config)      # raises ConfigError
"""

from collections.abc import Mapping
from typing import Any

from verl.classmate.errors import ConfigError, reason_of
from verl.trainer.preflight.data import agent_names

_DEFAULT_KEY = "actor_rollout_ref.rollout.agent.default_agent_loop"
_NODE = "actor_rollout_ref.rollout.multi_turn"
_TOOL_KEYS = ("function_tool_path", "tool_config_path")


def check_agents(config: Mapping[str, Any]) -> None:
    """Looks at the run's default and at the column `agent_name` of the data.

    Raises:
        ConfigError: for a loop that is not registered, files of tools that cannot be loaded, or `tool_agent` without a
            tool.
    """
    rollout = config["actor_rollout_ref"]["rollout"]
    used = {str(rollout["agent"]["default_agent_loop"]): _DEFAULT_KEY}
    for key in ("train_files", "val_files"):
        used |= dict.fromkeys(agent_names(config["data"], key), f"data.{key}: its column agent_name")
    # Every worker loads them, whatever its rows name.
    tools = _load_tools(rollout["multi_turn"])
    if list(used) == ["classmate_cot"]:
        return
    # Not at the top: it imports what only such runs need this early.
    from verl.experimental.agent_loop.row_loop import SINGLE_TURN, registered_loops

    known = dict.fromkeys(SINGLE_TURN) | registered_loops(rollout["agent"]["agent_loop_config_path"])
    for name, where in used.items():
        if name not in known:
            raise ConfigError(
                f"{where} names the agent loop {name!r}, which is not registered; write one of {', '.join(known)}, or "
                "register it in a file that actor_rollout_ref.rollout.agent.agent_loop_config_path names"
            )
    if "tool_agent" in used and not tools:
        given = " and ".join(str(path) for path in map(rollout["multi_turn"].get, _TOOL_KEYS) if path)
        raise ConfigError(
            f"{used['tool_agent']} names tool_agent, but there are no tools{f' in {given}' if given else ''}; write "
            f"{_NODE}.function_tool_path=FILE.py, whose functions have the decorator function_tool, or "
            f"{_NODE}.tool_config_path=FILE.yaml, with a list tools"
        )


def _load_tools(multi_turn: Mapping[str, Any]) -> int:
    """Loads the tools, as every worker will; how many there are."""
    given = {key: multi_turn[key] for key in _TOOL_KEYS if multi_turn[key]}
    if not given:
        return 0
    from verl.tools.tool_registry import load_all_tools
    from verl.utils.import_utils import resolve_config_path

    number = 0
    for key, path in given.items():
        try:
            file = resolve_config_path(path)
        except FileNotFoundError as error:
            raise ConfigError(f"{_NODE}.{key}={path} does not exist; name a file") from error
        try:
            number += len(load_all_tools(None, file)) if key == "function_tool_path" else _declared_tools(file)
        except (Exception, SystemExit) as error:
            # Upstream executes the user's file, which may raise anything, and end the process.
            reason = reason_of(error, file)
            raise ConfigError(f"{_NODE}.{key}={path} cannot be loaded ({reason}); correct the file") from error
    return number


def _declared_tools(file: str) -> int:
    """Finds the classes that a file declares and checks what is said of them; how many there are.

    They are not made: some of upstream's start Ray when they are.
    """
    from omegaconf import OmegaConf

    from verl.tools.schemas import OpenAIFunctionToolSchema
    from verl.tools.tool_registry import ToolType, get_tool_class

    declared = OmegaConf.to_container(OmegaConf.load(file), resolve=True)
    tools = declared.get("tools") if isinstance(declared, dict) else None
    if not isinstance(tools, list):
        raise ValueError("it has no list tools")
    for tool in tools:
        ToolType(tool["config"]["type"])
        get_tool_class(tool["class_name"])
        if tool.get("tool_schema") is not None:
            OpenAIFunctionToolSchema.model_validate(tool["tool_schema"])
    return len(tools)
