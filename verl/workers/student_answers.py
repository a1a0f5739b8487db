"""Answers of students as solve rates count them, and as baselines are stored.

>>> solve_rate([student_answer(one) for one in continuations]).rate
0.75
"""

from collections.abc import Sequence

from verl.classmate.outcome import Outcome
from verl.classmate.row import Continuation
from verl.teaching.baseline_cache import Baseline
from verl.teaching.row import StudentAnswer


def student_answer(one: Continuation) -> StudentAnswer:
    """An answer as solve rates count it."""
    return StudentAnswer(
        outcome=one.outcome,
        score=one.score,
        parsed=one.outcome is Outcome.ok,
        finished=one.finish_reason != "length",
        tokens=one.token_length,
    )


def stored_answers(baseline: Baseline) -> tuple[StudentAnswer, ...]:
    """Stored answers as solve rates count them; what had no answer stands there with the finish reason `no_answer`."""
    return tuple(
        StudentAnswer(
            outcome=Outcome.no_answer if reason.startswith(_NO_ANSWER) else Outcome.ok,
            score=score,
            parsed=not reason.startswith(_NO_ANSWER),
            finished=not reason.endswith("length"),
            tokens=length,
        )
        for score, length, reason in zip(
            baseline.scores, baseline.response_lengths, baseline.finish_reasons, strict=True
        )
    )


_NO_ANSWER = "no_answer:"
"""In front of the finish reason of a stored response in which no answer was found."""


def baseline_of(answers: Sequence[Continuation]) -> Baseline:
    """What is stored of answers none of which failed."""
    found = [one.outcome is Outcome.ok for one in answers]
    return Baseline(
        scores=tuple(
            one.score if ok and one.score is not None else 0.0 for one, ok in zip(answers, found, strict=True)
        ),
        response_lengths=tuple(one.token_length for one in answers),
        finish_reasons=tuple(
            f"{'' if ok else _NO_ANSWER}{one.finish_reason or 'stop'}" for one, ok in zip(answers, found, strict=True)
        ),
        texts=tuple(one.text or "" for one in answers),
    )
