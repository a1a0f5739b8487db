"""Rows of `debug=true`: the policy answers and the classmates read in the thread that asks, where a breakpoint works.

Decision: what happens to a row is the Ray run's own code (agent loop, pipeline); ours here is what upstream's worker
and our manager do around it.

    >>> maker = RowMaker(config, reward_config, loop_parts, pipeline)
    >>> rows = maker.make(prompts, step=1, validate=False, greedy=False)
"""

import asyncio
import bdb
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import hydra
import torch
from omegaconf import DictConfig
from tensordict import NonTensorData, TensorDict

from verl.classmate.config import ClassmateRewardModelConfig
from verl.experimental.agent_loop.agent_loop import ToolListWrap
from verl.experimental.agent_loop.classmate_agent_loop import epoch_of, partners
from verl.experimental.agent_loop.own_loop import own_loop
from verl.experimental.agent_loop.row_loop import SINGLE_TURN, registered_loops
from verl.experimental.agent_loop.row_reading import read_by_classmates
from verl.experimental.agent_loop.row_worker import GREEDY_SESSION
from verl.tools.tool_registry import load_all_tools
from verl.utils import tensordict_utils as tu
from verl.utils.import_utils import resolve_config_path
from verl.workers.classmates.shared_draws import shared_draws
from verl.workers.row_pipeline import RowPipeline


class RowMaker:
    """The policy's engine and the classmates', as one function from prompts to rows."""

    def __init__(
        self,
        config: DictConfig,
        reward: ClassmateRewardModelConfig,
        parts: Mapping[str, Any],
        pipeline: RowPipeline,
        *,
        steps_per_epoch: int,
    ) -> None:
        """
        Args:
            config: of the run.
            reward: its node `reward_model`.
            parts: what upstream makes an agent loop of.
            pipeline: of this process.
            steps_per_epoch: of training.
        """
        self._config = config
        self._reward = reward
        self._parts = parts
        self._own = own_loop(config)(**parts, pipeline=pipeline)
        self._own.loop = _OnTheSpot()
        self._steps_per_epoch = steps_per_epoch
        self._others: dict[str, Any] = {}

    def make(self, prompts: TensorDict, *, step: int, validate: bool, greedy: bool) -> list[dict[str, Any]]:
        """The policy's answers to each prompt, read and scored: rows of fields, in the order of prompts and answers.

        Args:
            prompts: as the data loader has made them.
            step: global step.
            validate: whether validation's settings hold.
            greedy: whether each prompt gets one answer more, which is greedy.
        """
        rollout = self._config.actor_rollout_ref.rollout
        sampling = rollout.val_kwargs if validate else rollout
        params = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k}
        tu.assign_non_tensor_data(prompts, "global_steps", step)
        partner_of = partners(prompts, self._reward, validate=validate)
        asked = []
        for i in range(len(prompts)):
            columns = {
                key: value.data if isinstance(value, NonTensorData) else value for key, value in prompts[i].items()
            }
            columns |= {"is_validate": validate, "read_later": (), "read_beside": False}
            columns["epoch"] = epoch_of(step, self._steps_per_epoch)
            columns |= {
                "excluded_classmates": (),
                "partner": partner_of[i],
                GREEDY_SESSION: rollout.n if greedy else None,
            }
            asked += [columns | {"session_id": session} for session in range(sampling.n + greedy)]

        async def answer_all() -> list[dict[str, Any]]:
            asyncio.get_running_loop().set_task_factory(_task_that_quits)  # type: ignore[arg-type]
            with shared_draws():
                return await asyncio.gather(*(self._answer(params, columns) for columns in asked))

        return asyncio.run(answer_all())

    async def _answer(self, params: dict[str, Any], columns: dict[str, Any]) -> dict[str, Any]:
        if columns["session_id"] == columns[GREEDY_SESSION]:
            params = {"temperature": 0, "top_p": 1.0, "top_k": -1}
        loop = self._loop_of(columns)
        if loop is self._own:
            output = await loop.run(dict(params), **columns)
        else:
            seeded = self._own.seeded(params, columns)
            output = await read_by_classmates(self._own.pipeline, await loop.run(seeded, **columns), columns)
        row = output.as_dict() | columns
        input_ids = torch.cat([row["prompts"], row["responses"]])
        return row | {
            "loss_mask": row["response_mask"],
            "input_ids": input_ids,
            "position_ids": torch.arange(len(input_ids)),
        }

    def _loop_of(self, columns: Mapping[str, Any]) -> Any:
        """The loop that a row names, or the run's own."""
        name = columns.get("agent_name") or self._config.actor_rollout_ref.rollout.agent.default_agent_loop
        if name in SINGLE_TURN:
            return self._own
        if name not in self._others:
            rollout = self._config.actor_rollout_ref.rollout
            paths = {key: rollout.multi_turn[key] for key in ("tool_config_path", "function_tool_path")}
            tools = load_all_tools(**{key: path and resolve_config_path(path) for key, path in paths.items()})
            kind = registered_loops(rollout.agent.agent_loop_config_path)[name]
            self._others[name] = hydra.utils.instantiate(kind, **self._parts, tools=ToolListWrap(tools))
            self._others[name].loop = _OnTheSpot()
        return self._others[name]


def _task_that_quits(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **kwargs: Any
) -> asyncio.Task:
    """A task in which `q` at a debugger's prompt ends the run at once, and not only the row where it was typed."""

    async def run() -> Any:
        try:
            return await coroutine
        except bdb.BdbQuit:
            # asyncio does not keep this one for the result of the task, but it would go on about the other tasks.
            logging.getLogger("asyncio").disabled = True
            raise KeyboardInterrupt from None

    task = asyncio.Task(run(), loop=loop, **kwargs)
    # Python complains about a coroutine that was not begun when its task was cancelled.
    task.add_done_callback(lambda _: coroutine.close())
    return task


class _OnTheSpot:
    """Stands for the event loop where upstream's agent loop would have a thread tokenize."""

    async def run_in_executor(self, executor: None, function: Callable[[], Any]) -> Any:
        return function()
