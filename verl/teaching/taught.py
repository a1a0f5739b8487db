"""A teacher's row when it is scored: what was found in its text, what each student made of it, and the reward by term.

One decision: it is all that metrics, advantage and dump need, and all of it is read back from the dump's line, so that
a step's metrics and a replay are computed from the same values.

    >>> taught = Taught.scored(teaching, leak, pairs, teaching_config)
    >>> taught.reward
    1.5
    >>> Taught.from_record(taught.record())
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl.classmate.outcome import Outcome
from verl.teaching.config import TeachingConfig
from verl.teaching.leak import Leak
from verl.teaching.lesson import StudentLesson, plain, rebuilt, student_lesson, teaching_of
from verl.teaching.rcl import Effect, RclReward, RclTerms, rcl_reward
from verl.teaching.rlt import RltReward, RltTerms
from verl.teaching.row import SolveRate, TaughtRow
from verl.teaching.tags import Teaching, TeachingState

GATE_FIELDS = ("rcl_base", "rcl_change", "rcl_conciseness", "rcl_faults")
"""Numbers of a row that the outcome gate reads; NaN in a row without a reward."""


@dataclass(frozen=True, kw_only=True)
class StudentResult:
    """What one student made of the teaching."""

    lesson: StudentLesson
    """What was known of it before."""
    length: int
    """L, in its own tokenizer."""
    guided: SolveRate | None
    """With the teaching; None where nothing was shown."""
    reward: RclReward
    """Of the teaching, by this student."""

    def row(self, group: str, state: TeachingState, leak: bool, question: Teaching | None) -> TaughtRow:
        """As the reward and the metrics see it."""
        return taught_row(
            self.lesson,
            group=group,
            state=state,
            leak=leak,
            length=self.length,
            guided=self.guided,
            question=question,
        )


_NOT_ASKED = RclReward(outcome=Outcome.excluded)
"""By students that score explanations and answer nothing."""


def taught_row(
    lesson: StudentLesson,
    *,
    group: str,
    state: TeachingState,
    leak: bool,
    length: int,
    guided: SolveRate | None,
    question: Teaching | None,
) -> TaughtRow:
    """What a student made of a teaching, as the reward sees it."""
    return TaughtRow(
        group=f"{group}/{lesson.name}",
        state=state,
        base=lesson.base,
        guided=guided,
        student=lesson.name,
        length=length,
        leak=leak,
        question_state=None if question is None else question.state,
        question_tokens=math.nan if question is None else float(question.tokens),
        probe_tokens=float(lesson.probe.tokens),
        probe_cut=float(lesson.probe.cut),
        cache_hit=lesson.cache_hit,
        student_seconds=lesson.seconds,
    )


@dataclass(frozen=True, kw_only=True)
class Taught:
    """A scored row of a teacher."""

    group: str
    """Of the rollouts that are compared."""
    teaching: Teaching
    """What was found in the teacher's text."""
    leak: Leak
    """In which ways it gives the answer away."""
    students: tuple[StudentResult, ...]
    """Of each student that the row was for."""
    rcl: RclReward | None
    """The reward by what the students made of it, over all of them; None in a run without it."""
    rlt: RltReward | None = None
    """The reward by log-probabilities; None in a run without it."""
    closed: bool = True
    """Whether the explanation's end is marked, where log-probabilities count."""
    question: Teaching | None = None
    """What the teacher asked for the probe; None where it asks nothing of its own."""

    @property
    def outcome(self) -> Outcome:
        """ok, or why the row has no reward."""
        parts = [part for part in (self.rcl, self.rlt) if part is not None]
        return next((part.outcome for part in parts if part.outcome is not Outcome.ok), Outcome.ok)

    @property
    def rows(self) -> list[TaughtRow]:
        """One for each student."""
        return [one.row(self.group, self.teaching.state, self.leak.any, self.question) for one in self.students]

    @property
    def rewards(self) -> list[RclReward]:
        """Likewise."""
        return [one.reward for one in self.students]

    def gate(self) -> dict[str, float]:
        """`GATE_FIELDS`."""
        reward = self.rcl
        if reward is None or reward.effect is None or reward.terms is None:
            return dict.fromkeys(GATE_FIELDS, math.nan)
        effect = reward.effect
        numbers = (effect.base, effect.change, effect.conciseness, reward.terms.faults)
        return dict(zip(GATE_FIELDS, numbers, strict=True))

    def numbers(self) -> dict[str, float]:
        """What is logged of the row, and what `algorithm.filter_groups.metric` can name."""
        effect = None if self.rcl is None else self.rcl.effect
        rlt = math.nan if self.rlt is None or self.rlt.reward is None else self.rlt.reward
        return {
            "rcl_b": math.nan if effect is None else effect.base,
            "rcl_w": math.nan if effect is None else effect.guided,
            "rcl_d": math.nan if effect is None else effect.guided - effect.base,
            "rcl_reward": math.nan if self.rcl is None or self.rcl.reward is None else self.rcl.reward,
            "teaching_tokens": float(self.teaching.tokens),
            "teaching_empty": float(self.teaching.state is TeachingState.empty),
            "teaching_broken": float(not self.teaching.state.keeps_contract),
            "teaching_leak": float(self.leak.any),
            **({} if self.rlt is None else {"rlt_reward": rlt}),
            **({} if self.question is None else {"question_broken": float(not self.question.state.keeps_contract)}),
        }

    def record(self) -> dict[str, Any]:
        """As the dump keeps it, under `teaching`."""
        return {
            "group": self.group,
            "state": self.teaching.state.value,
            "text": self.teaching.text,
            "tokens": self.teaching.tokens,
            "written_tokens": self.teaching.written_tokens,
            "leak": plain(self.leak),
            "students": [plain(one) for one in self.students],
            "rcl": plain(self.rcl),
            "rlt": plain(self.rlt),
            "closed": self.closed,
            **({} if self.question is None else {"question": plain(self.question)}),
        }

    @classmethod
    def from_record(cls, content: Mapping[str, Any]) -> "Taught":
        """The inverse of `record`."""
        rlt = content["rlt"]
        return cls(
            group=content["group"],
            teaching=Teaching(
                text=content["text"],
                state=TeachingState(content["state"]),
                tokens=content["tokens"],
                written_tokens=content["written_tokens"],
            ),
            leak=Leak(**content["leak"]),
            students=tuple(
                StudentResult(
                    lesson=student_lesson(one["lesson"]),
                    length=one["length"],
                    guided=None if one["guided"] is None else rebuilt(SolveRate, one["guided"]),
                    reward=_rcl(one["reward"]),
                )
                for one in content["students"]
            ),
            rcl=None if content["rcl"] is None else _rcl(content["rcl"]),
            rlt=None
            if rlt is None
            else rebuilt(RltReward, rlt | {"terms": None if rlt["terms"] is None else RltTerms(**rlt["terms"])}),
            closed=content["closed"],
            question=teaching_of(content.get("question")),
        )

    @classmethod
    def scored(
        cls,
        *,
        group: str,
        teaching: Teaching,
        leak: Leak,
        results: Sequence[tuple[StudentLesson, int, SolveRate | None]],
        config: TeachingConfig,
        rlt: RltReward | None = None,
        closed: bool = True,
        question: Teaching | None = None,
    ) -> "Taught":
        """A row with its rewards.

        Args:
            group: of the rollouts that are compared.
            teaching: what was found in the teacher's text.
            leak: in which ways it gives the answer away.
            results: of each student: what was known before, L, and its solve rate with the teaching.
            config: of the run.
            rlt: the reward by log-probabilities, where the run has it.
            closed: whether the explanation's end is marked.
            question: what the teacher asked for the probe, where it asks.
        """
        students = []
        for lesson, length, guided in results:
            reward = _NOT_ASKED
            if config.reward.uses_rcl:
                row = taught_row(
                    lesson,
                    group=group,
                    state=teaching.state,
                    leak=leak.any,
                    length=length,
                    guided=guided,
                    question=question,
                )
                reward = rcl_reward(row, config.reward)
            if lesson.probe.outcome is not Outcome.ok:
                reward = RclReward(outcome=lesson.probe.outcome)
            students.append(StudentResult(lesson=lesson, length=length, guided=guided, reward=reward))
        of_students = [one.reward for one in students]
        return cls(
            group=group,
            teaching=teaching,
            leak=leak,
            students=tuple(students),
            rcl=joint_reward(of_students, config.protocol.joint_reduction) if config.reward.uses_rcl else None,
            rlt=rlt,
            closed=closed,
            question=question,
        )


def joint_reward(rewards: Sequence[RclReward], reduction: str) -> RclReward:
    """One reward for all students of a row; that of one student where there is one.

    Without a reward by one of them there is none, since rows of a group are compared.

    Args:
        rewards: one for each student.
        reduction: `mean` over the students, or `min`, that of the student who fares worst.
    """
    failed = next((one for one in rewards if one.outcome is not Outcome.ok), None)
    if failed is not None or len(rewards) == 1:
        return failed or rewards[0]
    effects = [one.effect for one in rewards if one.effect is not None]
    terms = [one.terms for one in rewards if one.terms is not None]
    if reduction == "min":
        worst = min(rewards, key=lambda one: one.reward if one.reward is not None else math.inf)
        assert worst.effect is not None, "a row with a reward has an effect"
        # Rows of a group have one baseline, whichever student fares worst in each.
        base = _mean([one.base for one in effects])
        return dataclasses.replace(worst, effect=dataclasses.replace(worst.effect, base=base))
    return RclReward(
        outcome=Outcome.ok,
        reward=_mean([one.reward for one in rewards if one.reward is not None]),
        terms=RclTerms(
            **{name: _mean([getattr(one, name) for one in terms]) for name in RclTerms.__dataclass_fields__}
        ),
        effect=Effect(**{name: _mean([getattr(one, name) for one in effects]) for name in Effect.__dataclass_fields__}),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _rcl(content: Mapping[str, Any]) -> RclReward:
    terms, effect = content["terms"], content["effect"]
    return RclReward(
        outcome=Outcome(content["outcome"]),
        reward=content["reward"],
        terms=None if terms is None else RclTerms(**terms),
        effect=None if effect is None else Effect(**effect),
    )
