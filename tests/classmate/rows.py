"""Rows of tests, stage by stage."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from verl.classmate.cot import CotKind, CotSpan
from verl.classmate.outcome import Outcome
from verl.classmate.record import RowRecord
from verl.classmate.row import Answer, Asked, Continuation, ReadRow, Task, Verdict

SPAN = CotSpan(kind=CotKind.closed, text="abc", cot="a", cot_char=0, start=1, end=6, output="c", output_start=7,
               output_end=9, skip_special=True)  # fmt: skip

TASK = Task(
    question="3 + 4?",
    data_source="hinted_arithmetic",
    reward_model={"ground_truth": "7", "hinted_answer": "9"},
    extra_info={"index": 3},
)


def answer_to(task: Task = TASK, **changes: Any) -> Answer:
    """Of ten tokens, about which nothing is known."""
    fields: dict[str, Any] = {
        "messages": [{"role": "user", "content": task.question}],
        "prompt_ids": [1],
        "response_ids": list(range(10)),
        "task": task,
        "uid": "0-1-key",
        "step": 1,
        "rollout": 0,
        "validate": False,
    }
    return Answer(**fields | changes)


def read_row(
    span: CotSpan = SPAN, *, task: Task = TASK, samples: int = 1, views: int = 1, partner: Task | None = None
) -> ReadRow:
    """A row that was shown in so many views."""
    read = ReadRow.unshown(answer_to(task, partner=partner), span)
    chat = ({"role": "user", "content": task.question},)
    return replace(read, thoughts=("a",) * views, chat=chat, close=True, samples=samples)


def asked(continuations: Sequence[Continuation], *, model: str = "m", views: int = 1) -> Asked:
    """What one classmate said."""
    return Asked(model=model, thinks=True, prompts=("q",) * views, continuations=tuple(continuations))


def record(*classmates: Sequence[Continuation], main: Verdict | None = None) -> RowRecord:
    """A row of a dump, with what each classmate said."""
    return RowRecord(
        answer=answer_to(),
        response=SPAN.text,
        transcript=None,
        cot=SPAN.cot,
        cot_kind=SPAN.kind,
        kept_cot="a",
        keep_rate=1.0,
        handed_over_tokens=5,
        output=SPAN.output,
        main=main or Verdict(outcome=Outcome.ok, score=1.0),
        asked=tuple(asked(items, model=f"m{m}") for m, items in enumerate(classmates)),
        base_reward=1.0,
        classmate_score=1.0,
        gamma=1.0,
        classmate_reward=1.0,
        final_reward=2.0,
        main_valid=True,
        classmate_valid=True,
        consistency_reward=None,
        segment_rewards=(),
        follows_hint=0.0,
    )
