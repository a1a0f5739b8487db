"""A row from prompt to reward: the policy answers, the classmates read its thought at once, the verifier scores both.

Decision: all of it happens per row, as soon as that row's response is complete, so that the classmates work while the
policy is still busy with longer answers. The reward is attached here, and upstream's reward workers have nothing to
do.

    actor_rollout_ref.rollout.agent.default_agent_loop=classmate_cot
    actor_rollout_ref.rollout.agent.agent_loop_manager_class=verl.experimental.agent_loop.classmate_agent_loop.ClassmateAgentLoopManager
"""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
import torch
import transfer_queue as tq
from omegaconf import DictConfig, OmegaConf
from tensordict import NonTensorStack, TensorDict

from verl.classmate import templates
from verl.classmate.config import ClassmateRewardModelConfig, from_mapping
from verl.classmate.errors import ConfigError
from verl.classmate.frozen import classmate_name
from verl.classmate.seeds import request_seed, sends_seed
from verl.classmate.views import derangement
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, DictConfigWrap, _agent_loop_registry
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ, apply_greedy_sampling_params
from verl.utils import tensordict_utils as tu
from verl.utils.import_utils import resolve_config_path
from verl.utils.read_once import ReadOnce
from verl.utils.rollout_trace import rollout_trace_attr
from verl.workers.classmates.client import ClassmateClient
from verl.workers.classmates.engines import context_length
from verl.workers.classmates.placement import taking_turns
from verl.workers.classmates.shared_draws import drawn_once, shared_draws
from verl.workers.reward_manager.classmate_cot import RowTask
from verl.workers.row_judge import (
    Answer,
    JudgedRow,
    RowJudge,
    advantage_fields,
    asked_to_json,
    partner_from_json,
)

ASKED_EARLY = "asked_early"
"""Key of a row's extra fields: what was asked where the row was made, with the schedule `batched`."""

AGENT_NAME = "classmate_cot"
"""Name in upstream's registry of agent loops."""

SINGLE_TURN = (AGENT_NAME, "single_turn_agent")
"""Names under which a row goes through our own loop; what loops of other names have made is read when they end."""

RESPONDED_AT = "responded_at"
"""Key of a row's extra fields: when the policy had answered."""

LOST = "lost"
"""Status tag of a row that could not be made."""

GREEDY_SESSION = "greedy_session"
"""Field of rows in `remax` runs: the number of the prompt's session that was greedy."""


class ClassmateAgentLoopOutput(AgentLoopOutput):
    """Upstream's output plus what the advantage needs of a row."""

    judged: Any
    """The `JudgedRow`."""

    def as_dict(self) -> dict[str, Any]:
        """Adds the reward's parts."""
        judged = self.judged
        fields = super().as_dict()
        del fields["judged"]
        return fields | advantage_fields(judged)


def judged_extra_fields(judged: JudgedRow) -> dict[str, Any]:
    """What metrics and dumps need of a row."""
    record = json.dumps(judged.record, ensure_ascii=False, default=str)
    return {"reward_extra_info": {**judged.info, "record": record}, "rewarded_at": time.time()}


def reward_fields(judged: JudgedRow, extra_fields: Mapping[str, Any], tokens: int) -> dict[str, Any]:
    """What is added to a row in the queue that was judged after it was written.

    Args:
        judged: the row.
        extra_fields: what it has already.
        tokens: R, of its response.
    """
    scores_R = torch.zeros(tokens)
    scores_R[-1] = judged.scores.final_reward if judged.scores.main_valid else 0.0
    return {"rm_scores": scores_R, "extra_fields": {**extra_fields, **judged_extra_fields(judged)}} | advantage_fields(
        judged
    )


_JUDGES: dict[int, tuple[DictConfig, RowJudge]] = {}
"""Judges of this process by the identity of the config: upstream may build an agent loop per row."""


def row_judge(config: DictConfig, tokenizer: Any, policy: Any = None) -> RowJudge:
    """The judge of `config` in this process; `policy` is the client of the rollout's servers (live self-play)."""
    if id(config) not in _JUDGES:
        reward = from_mapping(config.reward_model, require_classmates=False)
        client = ClassmateClient(
            reward,
            max_model_len=context_length(config, reward),
            deterministic=bool(config.trainer.deterministic),
            policy=policy,
            policy_engine=config.actor_rollout_ref.rollout.name,
        )
        _JUDGES[id(config)] = (config, RowJudge.build(config, tokenizer, client))
    return _JUDGES[id(config)][1]


class ClassmateAgentLoop(SingleTurnAgentLoop):
    """Registered as `classmate_cot`."""

    def __init__(self, *args: Any, judge: RowJudge | None = None, **kwargs: Any) -> None:
        """As upstream; `judge` is the process's own when not given."""
        super().__init__(*args, **kwargs)
        self.judge = judge or row_judge(self.config, self.tokenizer, self.server_manager)
        self.rollout_config = ReadOnce(self.rollout_config)
        self._sends_seed = sends_seed(self.rollout_config.name, deterministic=bool(self.config.trainer.deterministic))

    async def ct_build_initial_tokens(self, messages: list[dict[str, Any]], *args: Any, **kwargs: Any) -> list[int]:
        """Upstream's tokens of a prompt; of one without tools or media, tokenized once for all answers to it."""
        upstream = super().ct_build_initial_tokens
        media = ("tools", "images", "videos", "audios")
        if args or any(kwargs.get(name) for name in media):
            return await upstream(messages, *args, **kwargs)
        key = ("prompt", json.dumps(messages, default=_plain))
        return list(await drawn_once(key, lambda: upstream(messages, **kwargs)))

    def seeded(self, sampling_params: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
        """Sampling parameters with the row's seed, for engines that are to draw from it."""
        if not self._sends_seed:
            return dict(sampling_params)
        seed = self.judge.answer_seed(
            str(columns["data_source"]),
            columns["extra_info"]["index"],
            int(columns["global_steps"]),
            int(columns["session_id"]),
        )
        return {**sampling_params, "seed": seed}

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """One response of the policy, what the classmates make of its CoT, and the reward.

        With the schedule `batched` the response, and what those classmates say that need not wait: the trainer asks
        the others when the policy sleeps, and judges. Where rows are judged beside the log-probs, the response alone.

        Args:
            sampling_params: upstream's, to which the row's seed is added for engines that are to draw from it.
            kwargs: dataset columns, `session_id`, `global_steps`, and the columns that our manager adds.
        """
        output = await super().run(self.seeded(sampling_params, kwargs), **kwargs)
        if kwargs["judged_beside"]:
            return output
        return await read_by_classmates(self.judge, output, kwargs)


def registered_loops(config_path: str | None) -> dict[str, Any]:
    """Agent loops by name, as Hydra makes them: upstream's, and those of `rollout.agent.agent_loop_config_path`.

    Raises:
        ConfigError: the file cannot be read as a list of loops.
    """
    found = dict(_agent_loop_registry)
    if config_path:
        try:
            loops: Any = OmegaConf.load(resolve_config_path(config_path))
            found |= {loop.name: loop for loop in loops}
        except Exception as error:
            raise ConfigError(
                f"actor_rollout_ref.rollout.agent.agent_loop_config_path={config_path} cannot be read ({error}); write "
                "a YAML list of {name: NAME, _target_: package.module.Class}"
            ) from error
    return found


async def read_by_classmates(judge: RowJudge, output: AgentLoopOutput, columns: Mapping[str, Any]) -> AgentLoopOutput:
    """What any agent loop made of a row, plus what the classmates make of its CoT, and the reward.

    Args:
        judge: the process's own.
        output: of one turn or of several; the last that the policy wrote is read.
        columns: the row's, with those that our manager adds.
    """
    output.extra_fields[RESPONDED_AT] = time.time()
    answer = answer_of(output.prompt_ids, output.response_ids, output.response_mask, columns)
    excluded = frozenset(columns["excluded_classmates"])
    if columns["judged_later"]:
        row = judge.read(answer)
        now = [m for m in judge.asks(row) if classmate_name(m) not in taking_turns(judge.reward, "batched")]
        _, needed = await judge.weigh(row) if now else (None, True)
        replies = await asyncio.gather(*(judge.ask(row, m, excluded=excluded, needed=needed) for m in now))
        output.extra_fields[ASKED_EARLY] = {m: asked_to_json(reply) for m, reply in zip(now, replies, strict=True)}
        return output
    judged = await judge.judge(answer, excluded=excluded)
    fields = {name: getattr(output, name) for name in AgentLoopOutput.model_fields}
    fields["extra_fields"] = output.extra_fields | judged_extra_fields(judged)
    fields["reward_score"] = judged.scores.final_reward if judged.scores.main_valid else 0.0
    return ClassmateAgentLoopOutput(**fields, judged=judged)


def turns_of(response_mask: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Where the policy's turns stand in a response; empty where it is one turn, from the first token to the last.

    Args:
        response_mask: (R,) 1 on what the policy wrote, 0 on what tools did.
    """
    edges = [i for i, (a, b) in enumerate(zip([0, *response_mask], [*response_mask, 0], strict=True)) if a != b]
    turns = tuple(zip(edges[::2], edges[1::2], strict=True))
    if not response_mask or turns == ((0, len(response_mask)),):
        return ()
    return turns or ((0, 0),)


def answer_of(
    prompt_ids: Sequence[int], response_ids: Sequence[int], response_mask: Sequence[int], columns: Mapping[str, Any]
) -> Answer:
    """What the policy wrote, from tokens and the columns of upstream's row."""
    validate = bool(columns["is_validate"])
    return Answer(
        turns=turns_of(response_mask),
        messages=columns["raw_prompt"],
        prompt_ids=prompt_ids,
        response_ids=response_ids,
        task=RowTask(
            data_source=str(columns["data_source"]),
            reward_model=columns["reward_model"],
            extra_info=columns["extra_info"],
        ),
        uid=None if validate else str(columns["uid"]),
        step=int(columns["global_steps"]),
        rollout=int(columns["session_id"]),
        validate=validate,
        partner=partner_from_json(columns["partner"]),
    )


class ClassmateAgentLoopWorker(AgentLoopWorkerTQ.__ray_metadata__.modified_class):  # type: ignore[misc, name-defined]
    """Upstream's worker with one agent loop for all rows: ours keeps no state, and building one costs milliseconds."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings = self.config.reward_model
        self.tokenizer: Any = templates.for_run(
            self.tokenizer, date=settings.chat_date, system_as_user=settings.system_as_user
        )
        self._agent_loop = ClassmateAgentLoop(
            trainer_config=DictConfigWrap(config=self.config),
            server_manager=self.llm_client,
            tokenizer=self.tokenizer,
            processor=self.processor,
            dataset_cls=self.dataset_cls,
            data_config=DictConfigWrap(self.config.data),
            hf_model_type=self.hf_model_type,
        )
        self._making: set[asyncio.Future[None]] = set()
        self._beside: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self._judging: dict[str, list[asyncio.Task[dict[str, Any]]]] = defaultdict(list)

    async def _run_prompt(
        self, prompt: dict[str, Any], sampling_params: dict[str, Any], trajectory: dict[str, Any], trace: bool = False
    ) -> None:
        """Upstream's sessions of one prompt; for `remax` one more, which is greedy and becomes the baseline."""
        if self.config.algorithm.adv_estimator == "remax" and not trajectory["validate"]:
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
            # Rows that are judged beside the log-probs share them as well; who takes the rewards sees what fails.
            await asyncio.gather(*self._judging.pop(prompt["uid"], []), return_exceptions=True)

    async def _run_agent_loop(
        self,
        sampling_params: dict[str, Any],
        trajectory: dict[str, Any],
        *,
        agent_name: str | None,
        trace: bool = True,
        **kwargs: Any,
    ) -> Any:
        if kwargs.get(GREEDY_SESSION) == kwargs["session_id"]:
            sampling_params = dict(sampling_params)
            apply_greedy_sampling_params(sampling_params)
        # Rows of other kinds may leave it empty where some name a loop, in a column of numbers by NaN.
        if agent_name != agent_name:
            agent_name = None
        agent_name = agent_name or self._agent_loop.rollout_config.agent.default_agent_loop
        try:
            if agent_name not in SINGLE_TURN:
                seeded = self._agent_loop.seeded(sampling_params, kwargs)
                return await super()._run_agent_loop(seeded, trajectory, agent_name=agent_name, trace=trace, **kwargs)
            with rollout_trace_attr(
                step=trajectory["step"],
                sample_index=trajectory["sample_index"],
                rollout_n=trajectory["rollout_n"],
                validate=trajectory["validate"],
                name="agent_loop",
                trace=trace,
            ):
                output = await self._agent_loop.run(sampling_params, **kwargs)
                return await self._agent_loop_postprocess(output, trajectory["validate"], **kwargs)
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
        """Upstream's, after the classmates have read what another loop than ours has made.

        Raises:
            ConfigError: it made several trajectories of one row, or none.
        """
        if isinstance(output, list):
            if len(output) != 1:
                raise ConfigError(
                    f"the agent loop of {kwargs['data_source']} made {len(output)} trajectories of one row, and "
                    "classmates read one; name another in the data's column agent_name"
                )
            output = output[0]
        if kwargs["judged_beside"]:
            output.extra_fields[RESPONDED_AT] = time.time()
            key = f"{kwargs['uid']}_{kwargs['session_id']}_0"
            task = asyncio.create_task(self._reward_fields(output, kwargs))
            self._beside[key] = task
            self._judging[kwargs["uid"]].append(task)
        elif RESPONDED_AT not in output.extra_fields:
            output = await read_by_classmates(self._agent_loop.judge, output, kwargs)
        await super()._agent_loop_postprocess(output, validate, **kwargs)

    async def _reward_fields(self, output: AgentLoopOutput, columns: Mapping[str, Any]) -> dict[str, Any]:
        answer = answer_of(output.prompt_ids, output.response_ids, output.response_mask, columns)
        judged = await self._agent_loop.judge.judge(answer, excluded=frozenset(columns["excluded_classmates"]))
        return reward_fields(judged, output.extra_fields, len(output.response_ids))

    async def rewards(self) -> dict[str, dict[str, Any]]:
        """By key, the `reward_fields` of the rows that were judged beside the log-probs since the last call."""
        tasks, self._beside = self._beside, {}
        return dict(zip(tasks, await asyncio.gather(*tasks.values()), strict=True))

    async def settled(self) -> None:
        """Returns when the prompts that are under way have all their rows in the queue."""
        await asyncio.gather(*self._making)


class ClassmateAgentLoopManager(AgentLoopManagerTQ):
    """Upstream's manager, which tells each row what it needs to know of the run and of the rest of its batch."""

    excluded_classmates: Callable[[], frozenset[int]] = staticmethod(frozenset)
    """Classmates that are out of the run; set by the trainer."""

    judged_later: bool = False
    """Whether the trainer judges the rows (schedule `batched`); set by the trainer."""

    judged_beside: bool = False
    """Whether training rows are judged while the trainer goes on, which takes their `rewards`; set by the trainer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(ClassmateAgentLoopWorker)
        self._reward = from_mapping(self.config.reward_model, require_classmates=False)
        self._settled: list[ray.ObjectRef] = []

    def generate_sequences(self, prompts: TensorDict) -> None:
        """Dispatches a batch without waiting, with our columns added."""
        validate = bool(prompts["validate"]) if "validate" in prompts else False
        tu.assign_non_tensor_data(prompts, "is_validate", validate)
        tu.assign_non_tensor_data(prompts, "excluded_classmates", tuple(sorted(self.excluded_classmates())))
        tu.assign_non_tensor_data(prompts, "judged_later", self.judged_later)
        tu.assign_non_tensor_data(prompts, "judged_beside", self.judged_beside and not validate)
        prompts["partner"] = NonTensorStack(*partners(prompts, self._reward, validate=validate))
        super().generate_sequences(prompts)

    def rewards(self) -> dict[str, dict[str, Any]]:
        """By key, the `reward_fields` of the step's rows; waits until the last of them is judged."""
        found: dict[str, dict[str, Any]] = {}
        for part in ray.get([worker.rewards.remote() for worker in self.agent_loop_workers]):
            found |= part
        return found

    def wait_for_rows(self, timeout_s: float) -> None:
        """Waits until what is under way is made, at most so long.

        Raises:
            RuntimeError: a process that makes rows has died.
        """
        if not self._settled:
            self._settled = [worker.settled.remote() for worker in self.agent_loop_workers]
        ready, self._settled = ray.wait(self._settled, num_returns=len(self._settled), timeout=timeout_s)
        try:
            ray.get(ready)
        except ray.exceptions.RayActorError as error:
            raise RuntimeError("a process that makes rows died; logs/ray of the run folder says why") from error


def partners(prompts: TensorDict, reward: ClassmateRewardModelConfig, *, validate: bool) -> list[str]:
    """For each prompt the other one that `help_other_questions` pairs it with, as JSON; empty if there is none.

    Validation pairs the same questions at every step, so that its curve has no noise of its own.
    """
    pairs = []
    if reward.classmate_cot_reward_configs.classmate_reward_type == "help_other_questions":
        step = 0 if validate else int(prompts["global_steps"])
        pairs = derangement(len(prompts), request_seed(reward.seed, step, "partners", 0, 0, 0))
    if not pairs:
        return [""] * len(prompts)
    columns = {name: list(prompts[name]) for name in ("raw_prompt", "data_source", "reward_model", "extra_info")}
    return [
        json.dumps(
            {
                "question": columns["raw_prompt"][j][-1]["content"],
                "data_source": str(columns["data_source"][j]),
                "reward_model": columns["reward_model"][j],
                "extra_info": columns["extra_info"][j],
            },
            default=_plain,
        )
        for j in pairs
    ]


def _plain(value: Any) -> Any:
    """Numbers and arrays of a parquet row, for JSON."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
