"""A row from prompt to reward: the policy answers, the classmates read its thought at once, the verifier scores both.

Decision: all of it happens per row, as soon as that row's response is complete, so that the classmates work while the
policy is still busy with longer answers. The reward is attached here, and upstream's reward workers have nothing to
do.

    actor_rollout_ref.rollout.agent.default_agent_loop=classmate_cot
    actor_rollout_ref.rollout.agent.agent_loop_manager_class=verl.experimental.agent_loop.classmate_agent_loop.ClassmateAgentLoopManager
"""

import asyncio
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ray
import torch
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict

from verl.classmate import cot, prompts
from verl.classmate.config import ClassmateRewardModelConfig, from_mapping
from verl.classmate.scoring import ClassmateScores, Continuation, Outcome
from verl.classmate.seeds import request_seed, row_key
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, DictConfigWrap
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
from verl.trainer.ppo.reward import get_custom_reward_fn
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ
from verl.utils import hf_tokenizer
from verl.utils import tensordict_utils as tu
from verl.utils.rollout_trace import rollout_trace_attr
from verl.workers.classmate_workers import ClassmateClient, context_length
from verl.workers.reward_manager.classmate_cot import ClassmateCoTRewardManager, RowTask

AGENT_NAME = "classmate_cot"
"""Name in upstream's registry of agent loops."""

_POLICY = -1
"""Index that stands for the policy where seeds count classmates from 0."""

_MARKER_TOKENS = 16
"""Tokens at a prompt's end among which an open marker is looked for."""


class ClassmateAgentLoopOutput(AgentLoopOutput):
    """Upstream's output plus what the advantage needs of a row."""

    classmate_mask: list[int]
    """(R,) 1 on the CoT tokens that were handed to the classmates."""
    scores: Any
    """`ClassmateScores` of the row."""

    def as_dict(self) -> dict[str, Any]:
        """Adds the reward's parts as tensors: scalars per row, `classmate_mask` (R,), `classmate_scores` (M, S)."""
        fields = super().as_dict()
        # Upstream dumps the model, which turns the scores into a plain dictionary.
        del fields["scores"]
        scores: ClassmateScores = self.scores
        fields["classmate_mask"] = torch.tensor(fields.pop("classmate_mask"), dtype=torch.int64)
        for name in ("base_reward", "classmate_reward", "final_reward"):
            fields[name] = torch.tensor(getattr(scores, name), dtype=torch.float32)
        for name, flag in (
            ("main_valid", scores.main_valid),
            ("classmate_valid", scores.classmate_valid),
            ("classmate_asked", scores.asked),
        ):
            fields[name] = torch.tensor(flag)
        if scores.scores_MS.size:
            fields["classmate_scores"] = torch.tensor(scores.scores_MS, dtype=torch.float32)
        return fields


@dataclass(frozen=True, kw_only=True)
class RowContext:
    """What every row of this process shares; built once."""

    reward: ClassmateRewardModelConfig
    """The typed `reward_model` node."""
    tokenizers: tuple[Any, ...]
    """One per classmate."""
    client: ClassmateClient
    """Asks the classmates."""
    manager: ClassmateCoTRewardManager
    """Scores."""
    max_model_len: int
    """Context of the classmates' engines."""
    trains_with_classmates: bool
    """Whether training rows are read too, or validation rows only."""
    template_kwargs: Mapping[str, Any]
    """Chat-template arguments, the policy's and the classmates'."""

    @classmethod
    def build(cls, config: DictConfig, tokenizer: Any) -> "RowContext":
        """Loads the classmates' tokenizers and the verifier's settings from the whole config."""
        container = OmegaConf.to_container(config, resolve=True)
        reward = from_mapping(container["reward_model"], require_classmates=False)
        tokenizers = tuple(hf_tokenizer(spec.model) for spec in reward.classmates)
        for spec, one in zip(reward.classmates, tokenizers, strict=True):
            prompts.check_tokenizer(one, spec.model)
        length = context_length(config, reward)
        return cls(
            reward=reward,
            tokenizers=tokenizers,
            client=ClassmateClient(reward, max_model_len=length),
            manager=ClassmateCoTRewardManager(config, tokenizer, get_custom_reward_fn(config)),
            max_model_len=length,
            trains_with_classmates=container["trainer"]["v1"]["trainer_mode"] == "classmate_cot",
            template_kwargs=container["data"]["apply_chat_template_kwargs"] or {},
        )


_CONTEXTS: dict[int, tuple[DictConfig, RowContext]] = {}
"""Contexts of this process by the identity of the config: upstream builds an agent loop per row."""


def row_context(config: DictConfig, tokenizer: Any) -> RowContext:
    """The context of `config` in this process."""
    if id(config) not in _CONTEXTS:
        _CONTEXTS[id(config)] = (config, RowContext.build(config, tokenizer))
    return _CONTEXTS[id(config)][1]


class ClassmateAgentLoop(SingleTurnAgentLoop):
    """Registered as `classmate_cot`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.context = row_context(self.config, self.tokenizer)

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> ClassmateAgentLoopOutput:
        """One response of the policy, what the classmates make of its CoT, and the reward.

        Args:
            sampling_params: upstream's, to which the row's seed is added.
            kwargs: dataset columns, `session_id`, `global_steps`, and the columns that our manager adds.
        """
        extra_info = kwargs["extra_info"]
        key = row_key(str(kwargs["data_source"]), extra_info["index"])
        step, rollout = int(kwargs["global_steps"]), int(kwargs["session_id"])
        seed = request_seed(self.context.reward.seed, step, key, rollout, _POLICY, 0)
        answer = await super().run({**sampling_params, "seed": seed}, **kwargs)
        responded_at = time.time()

        markers = None if self.context.reward.cot_format == "plain" else self.context.reward.markers
        span = cot.locate(
            answer.response_ids,
            self.tokenizer,
            markers,
            preopened=markers is not None and self._opens_thought(answer.prompt_ids, markers),
        )
        config = self.context.reward.classmate_cot_reward_configs
        kept = cot.keep(span, answer.response_ids, self.tokenizer, config.keep)
        validate = bool(kwargs["is_validate"])
        asks = bool(self.context.reward.classmates) and (validate or self.context.trains_with_classmates)
        samples = self.context.reward.classmate_generation_configs.sampling(validate=validate).n if asks else 0

        continuations: list[Continuation] = []
        asked: list[str | None] = []
        if asks:
            continuations, asked = await self._generate_classmate_continuations(
                kwargs["raw_prompt"],
                span,
                kept,
                validate=validate,
                excluded=frozenset(kwargs["excluded_classmates"]),
                seeds=[
                    [request_seed(self.context.reward.seed, step, key, rollout, m, s) for s in range(samples)]
                    for m in range(len(self.context.tokenizers))
                ],
            )
        task = RowTask(data_source=kwargs["data_source"], reward_model=kwargs["reward_model"], extra_info=extra_info)
        scores = await self.context.manager.score(task, span, continuations, samples=samples)
        handed_over_R = kept.mask if scores.asked else kept.mask * 0
        follows = self.context.manager.follows_hint(task, span.output)
        info: dict[str, Any] = scores.extra_info() | {"follows_hint": follows}
        info["record"] = json.dumps(
            {
                "uid": None if validate else kwargs["uid"],
                "step": step,
                "rollout": rollout,
                "data_source": task.data_source,
                "index": extra_info["index"],
                "question": kwargs["raw_prompt"][-1]["content"],
                "ground_truth": task.reward_model.get("ground_truth"),
                "response": span.text,
                "cot": span.cot,
                "cot_kind": span.kind.value,
                "kept_cot": kept.text,
                "output": span.output,
                "main_outcome": scores.main_outcome.value,
                "classmates": self._record_classmates(asked, continuations, scores),
                "base_reward": _number(scores.base_reward if scores.main_valid else math.nan),
                "classmate_score": _number(scores.classmate_score),
                "gamma": _number(scores.gamma),
                "classmate_reward": _number(scores.classmate_reward if scores.classmate_valid else math.nan),
                "final_reward": _number(scores.final_reward if scores.main_valid else math.nan),
                "main_valid": scores.main_valid,
                "classmate_valid": scores.classmate_valid,
                "follows_hint": _number(follows),
                "response_tokens": len(answer.response_ids),
                "handed_over_tokens": int(handed_over_R.sum()),
            },
            ensure_ascii=False,
        )
        fields = {name: getattr(answer, name) for name in AgentLoopOutput.model_fields}
        fields["extra_fields"] = {
            **answer.extra_fields,
            "reward_extra_info": info,
            "responded_at": responded_at,
            "rewarded_at": time.time(),
        }
        fields["reward_score"] = scores.final_reward if scores.main_valid else 0.0
        return ClassmateAgentLoopOutput(**fields, classmate_mask=handed_over_R.tolist(), scores=scores)

    def _opens_thought(self, prompt_ids: list[int], markers: cot.CotMarkers) -> bool:
        """Whether the chat template has already written the open marker."""
        ending = self.tokenizer.decode(prompt_ids[-_MARKER_TOKENS:], skip_special_tokens=False)
        return ending.rstrip().endswith(markers.start)

    async def _generate_classmate_continuations(
        self,
        messages: list[Mapping[str, Any]],
        span: cot.CotSpan,
        kept: cot.KeptCot,
        *,
        validate: bool,
        excluded: frozenset[int],
        seeds: list[list[int]],
    ) -> tuple[list[Continuation], list[str | None]]:
        """Asks all M classmates at once; S continuations each, and the prompt each was given as text."""
        per_classmate = await asyncio.gather(
            *(
                self._ask(m, messages, span, kept, validate=validate, excluded=excluded, seeds=seeds[m])
                for m in range(len(seeds))
            )
        )
        return [item for items, _ in per_classmate for item in items], [text for _, text in per_classmate]

    async def _ask(
        self,
        m: int,
        messages: list[Mapping[str, Any]],
        span: cot.CotSpan,
        kept: cot.KeptCot,
        *,
        validate: bool,
        excluded: frozenset[int],
        seeds: list[int],
    ) -> tuple[list[Continuation], str | None]:
        reward, tokenizer = self.context.reward, self.context.tokenizers[m]
        config = reward.classmate_cot_reward_configs
        outcome = prompts.handover(span, config.unfinished_cot)
        if outcome is not Outcome.ok:
            return [Continuation(classmate=m, sample=s, outcome=outcome) for s in range(len(seeds))], None
        close = prompts.should_close(kept, config.classmate_close_marker)
        prompt = prompts.build(
            messages,
            kept,
            tokenizer,
            markers=reward.markers,
            classmate_markers=reward.classmate_markers,
            close=close,
            max_len=self.context.max_model_len,
            template_kwargs=self.context.template_kwargs,
            classmate_template=config.classmate_template,
        )
        if prompt.ids is None:
            return [Continuation(classmate=m, sample=s, outcome=prompt.outcome) for s in range(len(seeds))], None
        replies = await self.context.client.sample(m, prompt.ids, seeds=seeds, validate=validate, excluded=excluded)
        in_thought = config.classmate_template == "thought_block"
        continuations = []
        for s, reply in enumerate(replies):
            text, outcome = None, reply.outcome
            if outcome is Outcome.ok:
                text, outcome = prompts.answer(
                    list(reply.token_ids),
                    closed=close,
                    markers=reward.classmate_markers if in_thought else None,
                    tokenizer=tokenizer,
                )
            continuations.append(
                Continuation(
                    classmate=m,
                    sample=s,
                    outcome=outcome,
                    text=text,
                    token_length=len(reply.token_ids),
                    finish_reason=reply.finish_reason,
                )
            )
        return continuations, prompt.text

    def _record_classmates(
        self, asked: list[str | None], continuations: list[Continuation], scores: ClassmateScores
    ) -> list[dict[str, Any]]:
        """What each classmate was asked and answered, for the dump."""
        return [
            {
                "model": self.context.reward.classmates[m].model,
                "prompt": prompt,
                "samples": [
                    {
                        "outcome": scores.outcomes_MS[m][item.sample].value,
                        "text": item.text,
                        "tokens": item.token_length,
                        "finish_reason": item.finish_reason,
                        "score": _number(scores.raw_scores_MS[m, item.sample]),
                    }
                    for item in continuations
                    if item.classmate == m
                ],
            }
            for m, prompt in enumerate(asked)
        ]


def _number(value: float) -> float | None:
    """JSON has no NaN."""
    return float(value) if math.isfinite(value) else None


class ClassmateAgentLoopWorker(AgentLoopWorkerTQ.__ray_metadata__.modified_class):  # type: ignore[misc, name-defined]
    """Upstream's worker with one agent loop for all rows: ours keeps no state, and building one costs milliseconds."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._agent_loop = ClassmateAgentLoop(
            trainer_config=DictConfigWrap(config=self.config),
            server_manager=self.llm_client,
            tokenizer=self.tokenizer,
            processor=self.processor,
            dataset_cls=self.dataset_cls,
            data_config=DictConfigWrap(self.config.data),
            hf_model_type=self.hf_model_type,
        )

    async def _run_agent_loop(
        self,
        sampling_params: dict[str, Any],
        trajectory: dict[str, Any],
        *,
        agent_name: str,
        trace: bool = True,
        **kwargs: Any,
    ) -> Any:
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
    """Upstream's manager, which tells each row whether it validates and which classmates are out of the run."""

    excluded_classmates: Callable[[], frozenset[int]] = staticmethod(frozenset)
    """Set by the trainer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(ClassmateAgentLoopWorker)

    def generate_sequences(self, prompts: TensorDict) -> None:
        """Dispatches a batch without waiting, with the two columns added."""
        validate = bool(prompts["validate"]) if "validate" in prompts else False
        tu.assign_non_tensor_data(prompts, "is_validate", validate)
        tu.assign_non_tensor_data(prompts, "excluded_classmates", tuple(sorted(self.excluded_classmates())))
        super().generate_sequences(prompts)
