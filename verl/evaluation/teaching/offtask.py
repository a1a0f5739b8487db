"""What the teacher still knows beside teaching: questions that it answers itself, before its training and after.

One decision: both are asked the same chats, greedily and in their own template, and answers are found and compared as
those of students are. What could not be asked is in no share.

    >>> retention = retention_of(before, after)
    >>> retention.before.share, retention.after.share, retention.p
    (0.93, 0.91, 0.5)
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from verl.classmate.outcome import Outcome
from verl.evaluation.teaching.asking import ANSWERS, Asking, Unit
from verl.evaluation.teaching.items import Item, chat_of
from verl.evaluation.teaching.serving import Patiently
from verl.evaluation.teaching.sources import Source
from verl.evaluation.teaching.trials import Answers, Setting
from verl.evaluation.teaching.tutors import Teacher
from verl.teaching.answers import AnswerRules, extract_answer, same_as_truth
from verl.teaching.evaluation_metrics import Response
from verl.teaching.tags import outline_of
from verl.utils.significance import sign_test, wilson

_SETTING = Setting(decoding="greedy", seed=0)


@dataclass(frozen=True, kw_only=True)
class Share:
    """How many of a model's answers are right."""

    right: int
    """Of them."""
    answered: int
    """Questions to which there is a response."""
    unparsed: int
    """Responses without an answer; they count as wrong."""
    failed: int
    """Questions that could not be asked; they are in no share."""

    @property
    def share(self) -> float | None:
        """None without a response."""
        return self.right / self.answered if self.answered else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Wilson's, 95 %."""
        return wilson(self.right, self.answered)


@dataclass(frozen=True, kw_only=True)
class Retention:
    """A teacher beside what it was trained from."""

    after: Share
    """The trained one."""
    before: Share | None
    """The untrained one; None where it is not known."""
    lost: int
    """Questions that only the untrained one answers rightly."""
    won: int
    """Questions that only the trained one does."""
    p: float | None
    """McNemar's exact p of these two; None without an untrained one."""


def ask_offtask(asking: Asking, source: Source, teacher: Teacher, items: Sequence[Item]) -> dict[str, Answers]:
    """A teacher's own answers, by item."""
    found: dict[str, Answers] = {}

    units = []
    for item in items:
        ask = partial(_answer, source, teacher, item)
        units.append(Unit(f"offtask|{teacher.name}|{item.name}", ask, ANSWERS).goes_to(found, item.name))
    asking.ask(f"off task: {teacher.name} answers", [teacher.name], units)
    return found


async def _answer(source: Source, teacher: Teacher, item: Item, client: Patiently) -> Answers:
    outcome, raw, error = await teacher.said(client, chat_of(item), item, _SETTING)
    if outcome is not Outcome.ok:
        return Answers(responses=(), failed=1, outcome=outcome, error=error)
    teaching = source.teaching
    rules = AnswerRules.of(
        item.task.data_source, teaching.templates.tags, allow_last_number=teaching.extract.allow_last_number
    )
    found = extract_answer(outline_of(raw, teaching.templates.tags), rules)
    try:
        same = await asyncio.to_thread(same_as_truth, found.text, str(item.task.ground_truth))
    except RuntimeError as failure:
        return Answers(responses=(), failed=1, outcome=Outcome.judge_error, error=str(failure), first=raw)
    if same is None:
        return Answers(
            responses=(), failed=1, outcome=Outcome.judge_error, error="math-verify could not compare", first=raw
        )
    response = Response(score=float(same), parsed=found.text is not None, stopped=not found.truncated, tokens=0)
    return Answers(responses=(response,), failed=0, first=raw)


def retention_of(before: Mapping[str, Answers] | None, after: Mapping[str, Answers]) -> Retention:
    """The trained teacher beside the untrained one; None: that one was not asked."""
    right_before, right_after = ({} if one is None else _scores(one) for one in (before, after))
    both = right_before.keys() & right_after.keys()
    lost = sum(right_before[name] > right_after[name] for name in both)
    won = sum(right_before[name] < right_after[name] for name in both)
    return Retention(
        after=_share(after),
        before=None if before is None else _share(before),
        lost=lost,
        won=won,
        p=None if before is None or not both else sign_test(won, lost),
    )


def _scores(answers: Mapping[str, Answers]) -> dict[str, float]:
    return {name: one.responses[0].score for name, one in answers.items() if one.responses}


def _share(answers: Mapping[str, Answers]) -> Share:
    scores = _scores(answers)
    return Share(
        right=int(sum(scores.values())),
        answered=len(scores),
        unparsed=sum(not one.responses[0].parsed for one in answers.values() if one.responses),
        failed=len(answers) - len(scores),
    )
