"""What is known of one rollout of a teacher: its advice, and what the student made of the question with and without it.

One decision: a student that could not be asked is an `Outcome`, never a rate of 0, and advice that shows nothing leaves
the student where it was (w is b), whatever else stands in the row. So nobody can be asked about raw text by mistake.

    >>> base = solve_rate([StudentAnswer(score=1.0), StudentAnswer(score=0.0)])
    >>> row = TaughtRow(group="q1", state=TeachingState.empty, base=base)
    >>> row.taught.rate
    0.5
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from verl.classmate.outcome import POLICY_FAILURES, Outcome
from verl.teaching.tags import TeachingState


@dataclass(frozen=True, kw_only=True)
class StudentAnswer:
    """One answer of the student."""

    outcome: Outcome = Outcome.ok
    """What became of the request, or of the checker's look at it (`judge_error`). A student that wrote no answer
    (`no_answer`, `unfinished_cot`) was wrong; any other failure is nobody's answer."""
    score: float | None = None
    """c, 0 to 1, by the checker."""
    parsed: bool = True
    """Whether an answer was found in it; one that was not counts as wrong."""
    finished: bool = True
    """Whether it ended before its budget did."""
    tokens: int = 0
    """Of the full response, in the student's tokenizer."""


@dataclass(frozen=True, kw_only=True)
class SolveRate:
    """What the student made of a question in several answers, under one condition."""

    outcome: Outcome = Outcome.ok
    """ok, or why there is no rate."""
    rate: float = math.nan
    """b or w: the mean of the answers' scores; NaN if there is none."""
    tokens: float = math.nan
    """Mean over the full responses."""
    parsed: float = math.nan
    """Share of the responses in which an answer was found."""
    completed: float = math.nan
    """Share of the responses that ended by themselves and in which an answer was found."""
    failed: int = 0
    """Requests that came to nothing; they are in no mean."""


def solve_rate(answers: Sequence[StudentAnswer]) -> SolveRate:
    """The mean over the answers that could be had; without any, the failure that most of them share."""
    counted = [(one, score) for one in answers if (score := _score(one)) is not None]
    failed = len(answers) - len(counted)
    if not counted:
        reasons = Counter(Outcome.judge_error if one.outcome is Outcome.ok else one.outcome for one in answers)
        return SolveRate(outcome=reasons.most_common(1)[0][0] if reasons else Outcome.excluded, failed=failed)

    def mean(values: Iterable[float]) -> float:
        return math.fsum(values) / len(counted)

    return SolveRate(
        rate=mean(score for _, score in counted),
        tokens=mean(one.tokens for one, _ in counted),
        parsed=mean(_is_parsed(one) for one, _ in counted),
        completed=mean(_is_parsed(one) and one.finished for one, _ in counted),
        failed=failed,
    )


def _score(answer: StudentAnswer) -> float | None:
    """c; None if there is none."""
    if answer.outcome not in POLICY_FAILURES | {Outcome.ok}:
        return None
    if not _is_parsed(answer):
        return 0.0
    return answer.score if answer.score is not None and 0 <= answer.score <= 1 else None


def _is_parsed(answer: StudentAnswer) -> bool:
    return answer.parsed and answer.outcome is Outcome.ok


@dataclass(frozen=True, kw_only=True)
class TaughtRow:
    """One rollout of the teacher."""

    group: str
    """(question, student) pair, the same in all of its rollouts."""
    state: TeachingState
    """What was found where the advice should stand."""
    base: SolveRate
    """Of the student alone; measured once for the group."""
    guided: SolveRate | None = None
    """Of the student with the advice; not looked at where nothing was shown."""
    student: str = ""
    """Key of the student."""
    length: int = 0
    """L, tokens of the advice in the student's tokenizer; not looked at where nothing was shown."""
    leak: bool = False
    """Whether the advice gives the answer away (`verl.teaching.leak`); not looked at where nothing was shown."""
    question_state: TeachingState | None = None
    """What was found where the teacher's question for the probe should stand; None where it asks nothing."""
    question_tokens: float = math.nan
    """Of that question, in the student's tokenizer."""
    probe_tokens: float = math.nan
    """Of the student's outline."""
    probe_cut: float = math.nan
    """1 if the outline was cut at its budget."""
    cache_hit: float = math.nan
    """1 if the baseline came out of the cache."""
    student_seconds: float = math.nan
    """Of one call of the student, on average."""

    def __post_init__(self) -> None:
        if self.shown and self.guided is None:
            raise ValueError("TaughtRow.guided: advice was shown; give what the student made of it, or another state")
        if self.length < 0:
            raise ValueError(f"TaughtRow.length: {self.length} tokens are not possible; write 0 or more")

    @property
    def keeps_contract(self) -> bool:
        """Whether advice and question stand in their tags."""
        states = (self.state, self.question_state or self.state)
        return all(state.keeps_contract for state in states)

    @property
    def shown(self) -> bool:
        """Whether the student sees any advice."""
        return self.state is TeachingState.ok

    @property
    def shown_length(self) -> int:
        """L of what the student sees."""
        return self.length if self.shown else 0

    @property
    def shown_leak(self) -> bool:
        """Whether the student sees the answer."""
        return self.leak and self.shown

    @property
    def taught(self) -> SolveRate:
        """With the advice; as without it where nothing is shown."""
        return self.guided if self.shown and self.guided is not None else self.base
