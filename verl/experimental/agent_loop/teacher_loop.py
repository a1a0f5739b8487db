"""`rcl_teacher`, the loop of a teacher's row: students are asked for an outline, then the teacher writes for them.

One decision: all rollouts of a group share one lesson and so one prompt; only what the teacher writes is trained. A
teacher that asks its own question (`verl.workers.probe_author`) writes two turns of one row.

    actor_rollout_ref.rollout.agent.default_agent_loop=rcl_teacher
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.row_loop import ClassmateAgentLoop
from verl.experimental.agent_loop.row_reading import LESSON
from verl.teaching.lesson import Lesson
from verl.teaching.templates import Messages
from verl.utils.profiler import simple_timer
from verl.workers.probe_author import ProbeAuthor, closing_ids
from verl.workers.rollout.replica import TokenOutput
from verl.workers.teaching_pipeline import TeachingPipeline


class PromptTooLong(ValueError):
    """A question and its outlines do not fit into the teacher's prompt: the row is left out, and counted."""


class TeacherAgentLoop(ClassmateAgentLoop):
    """One row of a teacher. It keeps no state of a row: one serves all rows of a process."""

    pipeline: TeachingPipeline

    async def turn(self, sampling_params: dict[str, Any], columns: Mapping[str, Any]) -> AgentLoopOutput:
        """What the teacher writes for the students of the row, with the lesson in the extra fields.

        Raises:
            PromptTooLong: the teacher would read its prompt without its beginning.
        """
        if self.pipeline.author is not None:
            return await self._two_turns(self.pipeline.author, sampling_params, columns)
        given = columns.get(LESSON)
        lesson = Lesson.from_json(given) if given else await self.pipeline.lesson(columns)
        messages = self.pipeline.teacher_messages(
            columns["raw_prompt"][-1]["content"], lesson, told=columns["extra_info"]
        )
        output = await super().turn(sampling_params, {**columns, "raw_prompt": messages})
        if self.pipeline.teaching.reward.uses_rlt:
            lesson = replace(lesson, log_probs=tuple(output.response_logprobs or ()))
        output.extra_fields[LESSON] = lesson.to_json()
        return output

    async def _two_turns(
        self, author: ProbeAuthor, sampling_params: Mapping[str, Any], columns: Mapping[str, Any]
    ) -> AgentLoopOutput:
        """The teacher's question, the students' replies, and its advice.

        Raises:
            PromptTooLong: the reply leaves no room for advice.
        """
        task, readers = self.pipeline.group_of(columns)
        taught = [self.pipeline.students.students[r] for r in readers]
        asked = author.asks(task.question, taught)
        most = min(author.most_tokens, self.response_length)
        lesson, first = await asyncio.gather(
            self.pipeline.lesson(columns),
            super().turn({**sampling_params, "max_tokens": most}, {**columns, "raw_prompt": asked}),
        )
        said = self.pipeline.text_of(first.response_ids)
        opened = self.pipeline.thought_opened(first.prompt_ids)
        question = author.question_in(said, taught, thought_opened=opened)
        lesson = await author.replied(
            self.pipeline.students, task, lesson, question, draw=self.pipeline.draw_of(columns)
        )
        chat = [*asked, {"role": "assistant", "content": said}]
        goes_on = author.goes_on(self.pipeline.teacher_messages(task.question, lesson))
        output = await self._second_turn(sampling_params, columns, first, chat, goes_on, cut_at=most)
        output.extra_fields[LESSON] = lesson.to_json()
        return output

    async def _second_turn(
        self,
        sampling_params: Mapping[str, Any],
        columns: Mapping[str, Any],
        first: AgentLoopOutput,
        chat: Messages,
        goes_on: Messages,
        *,
        cut_at: int,
    ) -> AgentLoopOutput:
        """The row with the teacher's second turn behind the first one and the user's.

        Args:
            sampling_params: of the first turn.
            columns: of the row.
            first: the row with that turn alone.
            chat: the same in words.
            goes_on: the user's next turn.
            cut_at: most tokens of the first turn.
        """
        closing = closing_ids(first.response_ids, cut_at, self.tokenizer)
        told = first.response_logprobs
        begun, mask, log_probs = await self.ct_merge_context_msg(
            chat,
            [*chat, *goes_on],
            [*first.prompt_ids, *first.response_ids, *closing],
            [*first.response_mask, *(0 for _ in closing)],
            None if told is None else [*told, *(0.0 for _ in closing)],
        )
        room = self.response_length - len(mask)
        if room < 1:
            raise PromptTooLong(
                f"the teacher's question and what it reads behind it have {len(mask)} tokens; raise "
                f"data.max_response_length={self.response_length}, which holds both turns and what stands between them"
            )
        metrics: dict[str, float] = {}
        with simple_timer("generate_sequences", metrics):
            written = await self._goes_on({**sampling_params, "max_tokens": room}, columns, begun.token_ids)
        whole, mask, log_probs = await self.ct_merge_assistant_token(
            begun.token_ids, written.token_ids, mask, log_probs, assistant_logprobs=written.log_probs or None
        )
        spent = first.metrics.generate_sequences + metrics["generate_sequences"]
        return first.model_copy(
            update={
                "response_ids": whole.token_ids[-len(mask) :],
                "response_mask": mask,
                "response_logprobs": log_probs,
                "routed_experts": written.routed_experts,
                "num_turns": 4,
                "metrics": first.metrics.model_copy(update={"generate_sequences": spent}),
                "extra_fields": {**first.extra_fields, **written.extra_fields},
            }
        )

    async def _goes_on(
        self, sampling_params: dict[str, Any], columns: Mapping[str, Any], prompt_ids: list[int]
    ) -> TokenOutput:
        """What the teacher writes behind all that was said, with a seed of its own where the first turn had one."""
        if "seed" in sampling_params:
            sampling_params["seed"] ^= 1
        written = await self.server_manager.generate(
            request_id=uuid4().hex,
            prompt_ids=prompt_ids,
            sampling_params=sampling_params,
            priority=int(columns.get("priority", 0)),
        )
        if not written.token_ids:
            raise RuntimeError("the engine wrote nothing for the teacher's second turn")
        return written

    async def ct_build_initial_tokens(self, messages: list[dict[str, Any]], *args: Any, **kwargs: Any) -> list[int]:
        """As above it; a last turn of the assistant is the beginning of the teacher's own, which it goes on with."""
        if messages[-1]["role"] != "assistant":
            return await super().ct_build_initial_tokens(messages, *args, **kwargs)
        *chat, begun = messages
        ids = await super().ct_build_initial_tokens(chat, *args, **kwargs)
        tokenizer: Any = self.tokenizer
        ids += tokenizer.encode(begun["content"], add_special_tokens=False)
        return self._cap_text_prompt_length(ids)

    def _cap_text_prompt_length(self, prompt_ids: list[int]) -> list[int]:
        """Upstream would cut a prompt at its left, where the system turn is.

        Raises:
            PromptTooLong: it is longer than `data.max_prompt_length`.
        """
        if len(prompt_ids) > self.prompt_length:
            raise PromptTooLong(
                f"the teacher's prompt has {len(prompt_ids)} tokens; raise "
                f"data.max_prompt_length={self.prompt_length}, or lower rcl.protocol.max_probe_tokens"
            )
        return prompt_ids
