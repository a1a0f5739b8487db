"""The processes that make rows: upstream's worker, with one loop and one pipeline for all rows of a process.

Decision: a row that could not be made goes into the queue as well, with the reason in its tag; whoever takes rows out
counts it (`verl.trainer.ppo.queue_rows`).
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import transfer_queue as tq

from verl.classmate import templates
from verl.classmate.config import this_run
from verl.classmate.errors import ConfigError
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, DictConfigWrap, _agent_loop_registry
from verl.experimental.agent_loop.own_loop import own_loop
from verl.experimental.agent_loop.row_loop import SINGLE_TURN, ClassmateAgentLoop
from verl.experimental.agent_loop.row_reading import (
    LESSON,
    RESPONDED_AT,
    answer_of,
    read_by_classmates,
    reward_fields,
    row_pipeline,
)
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ, apply_greedy_sampling_params
from verl.workers.classmates.shared_draws import shared_draws

LOST = "lost"
"""Status tag of a row that could not be made."""

GREEDY_SESSION = "greedy_session"
"""Field of rows in `remax` runs: the number of the prompt's session that was greedy."""

TEMPERATURE = "scheduled_temperature"
"""Field of training rows: the temperature of their step."""


class ClassmateAgentLoopWorker(AgentLoopWorkerTQ.__ray_metadata__.modified_class):  # type: ignore[misc, name-defined]
    """Upstream's worker with one agent loop for all rows: ours keeps no state, and building one costs milliseconds."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings = this_run(self.config).reward
        self.tokenizer: Any = templates.for_run(
            self.tokenizer, date=settings.chat_date, system_as_user=settings.system_as_user
        )
        self._agent_loop = own_loop(self.config)(
            pipeline=row_pipeline(self.config, self.tokenizer, self.llm_client),
            trainer_config=DictConfigWrap(config=self.config),
            server_manager=self.llm_client,
            tokenizer=self.tokenizer,
            processor=self.processor,
            dataset_cls=self.dataset_cls,
            data_config=DictConfigWrap(self.config.data),
            hf_model_type=self.hf_model_type,
        )
        self._register(self._agent_loop)
        self._making: set[asyncio.Future[None]] = set()
        self._beside: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self._reading: dict[str, list[asyncio.Task[dict[str, Any]]]] = defaultdict(list)

    @staticmethod
    def _register(loop: ClassmateAgentLoop) -> None:
        """Makes `loop` the one that upstream gets where a row names one of `SINGLE_TURN`."""
        _agent_loop_registry.update(dict.fromkeys(SINGLE_TURN, lambda **_: loop))  # type: ignore[arg-type]

    async def _run_prompt(
        self, prompt: dict[str, Any], sampling_params: dict[str, Any], trajectory: dict[str, Any], trace: bool = False
    ) -> None:
        """Upstream's sessions of one prompt; for `remax` one more, which is greedy and becomes the baseline."""
        if this_run(self.config).algorithm.adv_estimator == "remax" and not trajectory["validate"]:
            sampled = prompt.get("__rollout_n__", self.config.actor_rollout_ref.rollout.n)
            prompt = {**prompt, "__rollout_n__": sampled + 1, GREEDY_SESSION: int(sampled)}
        made: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._making.add(made)
        with shared_draws():
            try:
                await super()._run_prompt(prompt, sampling_params, trajectory, trace=trace)
            finally:
                self._making.remove(made)
                made.set_result(None)
            # Rows that are read beside the log-probs share them as well; who takes the rewards sees what fails.
            await asyncio.gather(*self._reading.pop(prompt["uid"], []), return_exceptions=True)

    async def _run_agent_loop(
        self,
        sampling_params: dict[str, Any],
        trajectory: dict[str, Any],
        *,
        agent_name: str | None,
        trace: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Upstream's, by the loop that the row names or by the run's own; a row that fails is lost, not forgotten."""
        if TEMPERATURE in kwargs:
            sampling_params = {**sampling_params, "temperature": kwargs[TEMPERATURE]}
        if kwargs.get(GREEDY_SESSION) == kwargs["session_id"]:
            sampling_params = dict(sampling_params)
            apply_greedy_sampling_params(sampling_params)
        # Rows of other kinds may leave it empty where some name a loop, in a column of numbers by NaN.
        if agent_name != agent_name:
            agent_name = None
        agent_name = agent_name or self._agent_loop.rollout_config.agent.default_agent_loop
        try:
            if agent_name not in SINGLE_TURN:
                sampling_params = self._agent_loop.seeded(sampling_params, kwargs)
            return await super()._run_agent_loop(
                sampling_params, trajectory, agent_name=agent_name, trace=trace, **kwargs
            )
        except Exception as error:
            # Upstream drops the row and says so in the worker's log only.
            await tq.async_kv_put(
                key=f"{kwargs['uid']}_{kwargs['session_id']}_0",
                partition_id="val" if trajectory["validate"] else "train",
                tag={
                    "status": LOST,
                    "error": " ".join(f"{type(error).__name__}: {error}".split()),
                    # Every other row would meet it as well.
                    "is_mistake": isinstance(error, ConfigError),
                    "data_source": str(kwargs["data_source"]),
                    "index": str(kwargs["extra_info"]["index"]),
                    "rollout": int(kwargs["session_id"]),
                },
            )
            raise

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **kwargs: Any) -> None:
        """Upstream's, after the classmates have read the row of a loop that is not ours.

        Raises:
            ConfigError: it made several trajectories of one row, or none.
        """
        if isinstance(output, list):
            if len(output) != 1:
                raise ConfigError(
                    f"the agent loop of {kwargs['data_source']} made {len(output)} trajectories of one row, but "
                    "classmates read exactly one; name another agent loop in the data's column agent_name"
                )
            output = output[0]
        if kwargs["read_beside"]:
            output.extra_fields[RESPONDED_AT] = time.time()
            key = f"{kwargs['uid']}_{kwargs['session_id']}_0"
            task = asyncio.create_task(self._reward_fields(output, kwargs))
            self._beside[key] = task
            self._reading[kwargs["uid"]].append(task)
        elif RESPONDED_AT not in output.extra_fields:
            output = await read_by_classmates(self._agent_loop.pipeline, output, kwargs)
        await super()._agent_loop_postprocess(output, validate, **kwargs)

    async def _reward_fields(self, output: AgentLoopOutput, columns: Mapping[str, Any]) -> dict[str, Any]:
        lesson = output.extra_fields.get(LESSON)
        answer = answer_of(output.prompt_ids, output.response_ids, output.response_mask, columns, lesson)
        scored = await self._agent_loop.pipeline.run(answer, excluded=frozenset(columns["excluded_classmates"]))
        return reward_fields(scored, output.extra_fields, len(output.response_ids))

    async def rewards(self) -> dict[str, dict[str, Any]]:
        """By key, the `reward_fields` of the rows that were read beside the log-probs since the last call."""
        tasks, self._beside = self._beside, {}
        return dict(zip(tasks, await asyncio.gather(*tasks.values()), strict=True))

    async def settled(self) -> None:
        """Returns when the prompts that are under way have all their rows in the queue."""
        await asyncio.gather(*self._making)
