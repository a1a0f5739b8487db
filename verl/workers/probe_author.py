"""A teacher that writes what its student is asked for the probe (`rcl.protocol.probe.author: teacher`).

One decision: it is one conversation and one row. The teacher asks in a first turn, reads the reply in the user's next
turn, and teaches in its second; both turns are trained with the row's one advantage, and what stands between them is
the environment's. So a group still shares one prompt and one baseline, and no estimator has outputs to merge.

    >>> author = ProbeAuthor(teaching)
    >>> messages = author.asks("What is 58 + 27?", [student])             # the first prompt
    >>> question = author.question_in("<teaching>Which ones carry?</teaching>", [student])
    >>> lesson = await author.replied(students, task, lesson, question, draw=3)
    >>> author.goes_on(teacher_messages)                                  # the user's second turn
"""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from verl.classmate.outcome import Outcome
from verl.classmate.row import Task
from verl.teaching.config import TeachingConfig
from verl.teaching.lesson import Lesson, StudentLesson
from verl.teaching.tags import Teaching, extract_teaching
from verl.teaching.templates import Messages
from verl.workers.student import Student
from verl.workers.students import Students


class ProbeAuthor:
    """What is said before, between and behind a teacher's two turns."""

    def __init__(self, teaching: TeachingConfig) -> None:
        """`teaching` is the typed node `rcl`."""
        self._teaching = teaching

    @property
    def most_tokens(self) -> int:
        """Of the first turn, in the teacher's tokens."""
        return self._teaching.protocol.probe.max_question_tokens

    def asks(self, question: str, students: Sequence[Student]) -> Messages:
        """What the teacher is asked for its question; it is the row's prompt, the same for all rollouts of a group."""
        names = " and ".join(one.name for one in students)
        return self._teaching.templates.asks_teacher(
            question,
            question_limit=self.most_tokens,
            student_name=names if self._teaching.protocol.name_student else None,
        )

    def question_in(self, raw: str, students: Sequence[Student], *, thought_opened: bool = False) -> Teaching:
        """The question in a teacher's first turn; its text is empty where there is none that can be put to anybody.

        Args:
            raw: the turn.
            students: who is asked.
            thought_opened: as for `extract_teaching`.
        """
        return extract_teaching(
            raw,
            self._teaching.templates.tags,
            count_tokens=lambda text: max(one.count(text) for one in students),
            # The turn itself is bounded.
            max_tokens=sys.maxsize,
            overflow="penalize",
            thought_opened=thought_opened,
        )

    async def replied(self, students: Students, task: Task, lesson: Lesson, question: Teaching, *, draw: int) -> Lesson:
        """A lesson with the question, and with what the students reply to it; nobody is asked a blank one.

        Args:
            students: all of the run's.
            task: the problem.
            lesson: with the students' baselines.
            question: in the teacher's first turn.
            draw: which reply this is; rollouts that ask the same get the same reply.
        """

        async def of(one: StudentLesson) -> StudentLesson:
            if not question.text or one.outcome is not Outcome.ok:
                return one
            probe = await students.outline(task, one.reader, draw=draw, asked=question.text)
            return replace(one, probe=probe)

        asked = tuple(await asyncio.gather(*map(of, lesson.students)))
        return replace(lesson, students=asked, question=question)

    def goes_on(self, adaptive: Messages) -> Messages:
        """T as the user's next turn: not every chat template takes a second system turn."""
        return [{"role": "user", "content": "\n\n".join(turn["content"] for turn in adaptive)}]


def closing_ids(token_ids: Sequence[int], cut_at: int, tokenizer: Any) -> list[int]:
    """What stands behind a first turn that stopped at its budget, so that the user's next one follows a turn's end."""
    if len(token_ids) < cut_at or token_ids[-1] == tokenizer.eos_token_id:
        return []
    return [tokenizer.eos_token_id]
