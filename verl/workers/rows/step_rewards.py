"""A row put to the process reward model: its steps in characters and tokens, and what each is worth.

One decision: a row that the model cannot judge whole (a failure, a step that does not fit) has no rewards of steps at
all; a part of them would compare unlike with unlike.

    >>> found = await StepRewarder(client, tokenizer).ask(read)
    >>> found.ends, found.scores
    ((17, 31), (0.98, 0.03))
"""

import math
from typing import Any, Protocol

from verl.classmate import cot
from verl.classmate.frozen import PROCESS
from verl.classmate.outcome import Outcome
from verl.classmate.reply import Reply
from verl.classmate.row import ReadRow, StepRewards
from verl.stepwise.step import StepScore
from verl.stepwise.steps import split_steps


class JudgesSteps(Protocol):
    """What is needed of a `ClassmateClient`."""

    async def score_steps(self, model: str, problem: str, steps: list[str]) -> "list[StepScore | None] | Reply":
        """What each step is worth, or why there is nothing."""
        ...


class StepRewarder:
    """Asks for the rewards of a row's steps."""

    def __init__(self, client: JudgesSteps, tokenizer: Any) -> None:
        """Keeps its parts; `tokenizer` is the policy's."""
        self._client, self._tokenizer = client, tokenizer

    async def ask(self, row: ReadRow) -> StepRewards:
        """What each step of the response's last turn is worth; a failure is an outcome.

        The problem is the row's `extra_info.problem`, as the pipeline writes it, or else what the user asked.
        """
        steps = steps_of(row, self._tokenizer)
        if not steps:
            return StepRewards(outcome=Outcome.no_answer)
        task = row.answer.task
        problem = str(task.extra_info.get("problem") or task.question)
        told = await self._client.score_steps(PROCESS, problem, [text for text, _ in steps])
        if isinstance(told, Reply):
            return StepRewards(outcome=told.outcome, error=told.error)
        judged = [one for one in told if one is not None]
        if len(judged) < len(steps):
            said = f"the model reads {len(judged)} of {len(steps)} steps"
            return StepRewards(outcome=Outcome.engine_error, error=said)
        if not all(math.isfinite(number) for one in judged for number in one):
            return StepRewards(outcome=Outcome.engine_error, error="a step's reward is no finite number")
        return StepRewards(
            ends=tuple(end for _, end in steps),
            scores=tuple(float(one.score) for one in judged),
            rewards=tuple(float(one.reward) for one in judged),
        )


def steps_of(row: ReadRow, tokenizer: Any) -> list[tuple[str, int]]:
    """Text and last token, in the response, of each step of its last turn; the last step ends with the turn.

    Steps that end within one token are one.
    """
    answer, span = row.answer, row.span
    turn = answer.last_turn
    ids = answer.response_ids[turn]
    found: list[tuple[str, int]] = []
    for step in split_steps(span.text):
        end = turn.start + max(1, cot.first_token_from(span, ids, tokenizer, step.char_end)) - 1
        if found and end <= found[-1][1]:
            found[-1] = (found[-1][0] + step.text, found[-1][1])
        else:
            found.append((step.text, end))
    if found:
        found[-1] = (found[-1][0], turn.stop - 1)
    return found
