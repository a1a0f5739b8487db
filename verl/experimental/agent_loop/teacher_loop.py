"""`rcl_teacher`, the loop of a teacher's row: students are asked for an outline, then the teacher writes for them.

One decision: all rollouts of a group share one lesson and so one prompt; only what the teacher writes is trained.

    actor_rollout_ref.rollout.agent.default_agent_loop=rcl_teacher
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.row_loop import ClassmateAgentLoop
from verl.experimental.agent_loop.row_reading import LESSON
from verl.teaching.lesson import Lesson
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
