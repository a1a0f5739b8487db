"""Whether the agent loops that rows name exist and have what they need, told before anything heavy starts.

>>> check(config)             # raises ConfigError
"""

from collections.abc import Mapping
from typing import Any

from verl.classmate.errors import ConfigError
from verl.trainer.preflight_data import agent_names

_DEFAULT_KEY = "actor_rollout_ref.rollout.agent.default_agent_loop"
_TOOL_KEYS = ("function_tool_path", "tool_config_path")


def check(config: Mapping[str, Any]) -> None:
    """Looks at the run's default and at the column `agent_name` of the data.

    Raises:
        ConfigError: for a loop that is not registered, files that are not there, or `tool_agent` without a tool.
    """
    rollout = config["actor_rollout_ref"]["rollout"]
    used = {str(rollout["agent"]["default_agent_loop"]): _DEFAULT_KEY}
    for key in ("train_files", "val_files"):
        used |= dict.fromkeys(agent_names(config["data"], key), f"data.{key}: its column agent_name")
    if list(used) == ["classmate_cot"]:
        return
    # Not at the top: it imports what only such runs need this early.
    from verl.experimental.agent_loop.classmate_agent_loop import SINGLE_TURN, registered_loops

    known = dict.fromkeys(SINGLE_TURN) | registered_loops(rollout["agent"]["agent_loop_config_path"])
    for name, where in used.items():
        if name not in known:
            raise ConfigError(
                f"{where} names the agent loop {name!r}, which is not there; write one of {', '.join(known)}, or "
                "register it in a file that actor_rollout_ref.rollout.agent.agent_loop_config_path names"
            )
    if "tool_agent" in used:
        _check_tools(rollout["multi_turn"], used["tool_agent"])


def _check_tools(multi_turn: Mapping[str, Any], where: str) -> None:
    node = "actor_rollout_ref.rollout.multi_turn"
    given = {key: multi_turn[key] for key in _TOOL_KEYS if multi_turn[key]}
    if not given:
        raise ConfigError(
            f"{where} names tool_agent, but there are no tools; write {node}.function_tool_path=FILE.py or "
            f"{node}.tool_config_path=FILE.yaml"
        )
    from verl.utils.import_utils import resolve_config_path

    for key, path in given.items():
        try:
            resolve_config_path(path)
        except FileNotFoundError as error:
            raise ConfigError(f"{node}.{key}={path} does not exist; name a file") from error
