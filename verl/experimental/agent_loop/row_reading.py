"""What is made of a row that the policy has written: the classmates read it, its reward becomes fields of the row.

Decision: agent loops of any kind, and the trainer with the schedule `batched`, use these functions, so that a row has
the same fields wherever it was read.

    >>> judge = row_judge(config, tokenizer)
    >>> output = await read_by_classmates(judge, output, columns)
    >>> output.as_dict()["final_reward"]
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from omegaconf import DictConfig

from verl.classmate.config import this_run
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.workers.classmate_workers import ClassmateClient
from verl.workers.classmates.placement import asked_in_turn
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

RESPONDED_AT = "responded_at"
"""Key of a row's extra fields: when the policy had answered."""


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


def row_judge(config: DictConfig, tokenizer: Any, policy: Any = None) -> RowJudge:
    """Makes the judge of a process, which loads the classmates' tokenizers.

    Args:
        config: of the run.
        tokenizer: the policy's.
        policy: client of the rollout's servers, for live self-play.
    """
    run = this_run(config)
    client = ClassmateClient(
        run.reward,
        max_model_len=run.context_length,
        deterministic=run.deterministic,
        policy=policy,
        policy_engine=run.policy_engine,
    )
    return RowJudge.build(config, tokenizer, client)


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
        now = [m for m in judge.asks(row) if m not in asked_in_turn(judge.reward, "batched")]
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
