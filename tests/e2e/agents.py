"""Agent loops for tests, as a user would write them: a tool, a parser that finds a call of it in every first turn, and
a loop that fails for some rows.

One decision: the files are written out and named in the config, so that upstream loads them as it loads a user's.
"""

from pathlib import Path

import pandas as pd

from tests.e2e.world import World

_TOOLS = '''"""A tool, and a parser that finds a call of it in whatever the policy writes."""

from verl.experimental.agent_loop.tool_parser import FunctionCall, ToolParser
from verl.tools.function_tool import function_tool


@function_tool
def look_up(number: int) -> str:
    """Looks a number up.

    Args:
        number: which one.
    """
    return f"observed {number}"


@ToolParser.register("always")
class Always(ToolParser):
    async def extract_tool_calls(self, responses_ids, tools=None):
        return self.tokenizer.decode(responses_ids), [FunctionCall(name="look_up", arguments='{"number": 4096}')]
'''
_LOOPS = '''"""A loop that fails for every fourth row."""

from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop


class Failing(SingleTurnAgentLoop):
    async def run(self, sampling_params, **columns):
        if columns["extra_info"]["index"] % 4 == 0:
            raise OSError("the tool's server is away")
        return await super().run(sampling_params, **columns)
'''
OBSERVATION = "observed 4096"
"""What the tool says."""
TURNS = 2
"""The policy's: one that calls the tool, one that answers."""


def data_with_agents(world: World, folder: Path, agents: list[str | None]) -> list[str]:
    """Overrides: the world's data, its rows going through `agents` in turn, and what these need."""
    folder.mkdir()
    overrides = []
    for name in ("train", "val"):
        rows = pd.read_parquet(world.folder / f"{name}.parquet")
        rows["agent_name"] = [agents[i % len(agents)] for i in range(len(rows))]
        rows.to_parquet(folder / f"{name}.parquet")
        overrides.append(f"data.{name}_files={folder / name}.parquet")
    (folder / "tools.py").write_text(_TOOLS)
    (folder / "test_loops.py").write_text(_LOOPS)
    (folder / "loops.yaml").write_text("- name: failing\n  _target_: test_loops.Failing\n")
    multi_turn = "actor_rollout_ref.rollout.multi_turn"
    return [
        *overrides,
        "data.max_response_length=160",
        f"{multi_turn}.function_tool_path={folder / 'tools.py'}",
        f"{multi_turn}.format=always",
        f"{multi_turn}.max_assistant_turns={TURNS}",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={folder / 'loops.yaml'}",
    ]
