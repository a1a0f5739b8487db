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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from omegaconf import DictConfig
from tensordict import NonTensorStack, TensorDict

from verl.classmate import templates
from verl.classmate.config import ClassmateRewardModelConfig, from_mapping
from verl.classmate.seeds import request_seed
from verl.classmate.views import derangement
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, DictConfigWrap
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ, apply_greedy_sampling_params
from verl.utils import tensordict_utils as tu
from verl.utils.rollout_trace import rollout_trace_attr
from verl.workers.classmate_placement import asked_in_turn
from verl.workers.classmate_workers import ClassmateClient, context_length
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
        )
        _JUDGES[id(config)] = (config, RowJudge.build(config, tokenizer, client))
    return _JUDGES[id(config)][1]


class ClassmateAgentLoop(SingleTurnAgentLoop):
    """Registered as `classmate_cot`."""

    def __init__(self, *args: Any, judge: RowJudge | None = None, **kwargs: Any) -> None:
        """As upstream; `judge` is the process's own when not given."""
        super().__init__(*args, **kwargs)
        self.judge = judge or row_judge(self.config, self.tokenizer, self.server_manager)

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """One response of the policy, what the classmates make of its CoT, and the reward.

        With the schedule `batched` the response, and what those classmates say that need not wait: the trainer asks
        the others when the policy sleeps, and judges.

        Args:
            sampling_params: upstream's, to which the row's seed is added.
            kwargs: dataset columns, `session_id`, `global_steps`, and the columns that our manager adds.
        """
        seed = self.judge.answer_seed(
            str(kwargs["data_source"]),
            kwargs["extra_info"]["index"],
            int(kwargs["global_steps"]),
            int(kwargs["session_id"]),
        )
        output = await super().run({**sampling_params, "seed": seed}, **kwargs)
        output.extra_fields["responded_at"] = time.time()
        answer = answer_of(output.prompt_ids, output.response_ids, kwargs)
        excluded = frozenset(kwargs["excluded_classmates"])
        if kwargs["judged_later"]:
            row = self.judge.read(answer)
            now = [m for m in self.judge.asks(row) if m not in asked_in_turn(self.judge.reward, "batched")]
            replies = await asyncio.gather(*(self.judge.ask(row, m, excluded=excluded) for m in now))
            output.extra_fields[ASKED_EARLY] = {m: asked_to_json(reply) for m, reply in zip(now, replies, strict=True)}
            return output
        judged = await self.judge.judge(answer, excluded=excluded)
        fields = {name: getattr(output, name) for name in AgentLoopOutput.model_fields}
        fields["extra_fields"] = output.extra_fields | judged_extra_fields(judged)
        fields["reward_score"] = judged.scores.final_reward if judged.scores.main_valid else 0.0
        return ClassmateAgentLoopOutput(**fields, judged=judged)


def answer_of(prompt_ids: Sequence[int], response_ids: Sequence[int], columns: Mapping[str, Any]) -> Answer:
    """What the policy wrote, from tokens and the columns of upstream's row."""
    validate = bool(columns["is_validate"])
    return Answer(
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

    async def _run_prompt(
        self, prompt: dict[str, Any], sampling_params: dict[str, Any], trajectory: dict[str, Any], trace: bool = False
    ) -> None:
        """Upstream's sessions of one prompt; for `remax` one more, which is greedy and becomes the baseline."""
        if self.config.algorithm.adv_estimator == "remax" and not trajectory["validate"]:
            sampled = prompt.get("__rollout_n__", self.config.actor_rollout_ref.rollout.n)
            prompt = {**prompt, "__rollout_n__": sampled + 1, GREEDY_SESSION: int(sampled)}
        await super()._run_prompt(prompt, sampling_params, trajectory, trace=trace)

    async def _run_agent_loop(
        self,
        sampling_params: dict[str, Any],
        trajectory: dict[str, Any],
        *,
        agent_name: str,
        trace: bool = True,
        **kwargs: Any,
    ) -> Any:
        if kwargs.get(GREEDY_SESSION) == kwargs["session_id"]:
            sampling_params = dict(sampling_params)
            apply_greedy_sampling_params(sampling_params)
        if agent_name != AGENT_NAME:
            return await super()._run_agent_loop(
                sampling_params, trajectory, agent_name=agent_name, trace=trace, **kwargs
            )
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


class ClassmateAgentLoopManager(AgentLoopManagerTQ):
    """Upstream's manager, which tells each row what it needs to know of the run and of the rest of its batch."""

    excluded_classmates: Callable[[], frozenset[int]] = staticmethod(frozenset)
    """Classmates that are out of the run; set by the trainer."""

    judged_later: bool = False
    """Whether the trainer judges the rows (schedule `batched`); set by the trainer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(ClassmateAgentLoopWorker)
        self._reward = from_mapping(self.config.reward_model, require_classmates=False)

    def generate_sequences(self, prompts: TensorDict) -> None:
        """Dispatches a batch without waiting, with our columns added."""
        validate = bool(prompts["validate"]) if "validate" in prompts else False
        tu.assign_non_tensor_data(prompts, "is_validate", validate)
        tu.assign_non_tensor_data(prompts, "excluded_classmates", tuple(sorted(self.excluded_classmates())))
        tu.assign_non_tensor_data(prompts, "judged_later", self.judged_later)
        prompts["partner"] = NonTensorStack(*partners(prompts, self._reward, validate=validate))
        super().generate_sequences(prompts)


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
