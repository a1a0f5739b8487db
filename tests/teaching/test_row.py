"""Solve rates from the student's answers, and what a row says where nothing was shown."""

import math

import pytest

from tests.teaching.rows import rate, row
from verl.classmate.outcome import Outcome
from verl.teaching.row import StudentAnswer, TaughtRow, solve_rate
from verl.teaching.tags import TeachingState


def test_means_over_the_answers() -> None:
    found = solve_rate(
        [
            StudentAnswer(score=1.0, tokens=100),
            StudentAnswer(score=0.0, tokens=200),
            StudentAnswer(score=1.0, tokens=300, finished=False),
            StudentAnswer(parsed=False, tokens=400),
        ]
    )
    assert (found.outcome, found.rate, found.tokens) == (Outcome.ok, 0.5, 250.0)
    assert (found.parsed, found.completed, found.failed) == (0.75, 0.5, 0)


@pytest.mark.guards("substring match, which an empty answer passes")
def test_an_answer_that_was_not_found_is_wrong() -> None:
    """Whatever the checker says of the empty text."""
    assert solve_rate([StudentAnswer(parsed=False, score=1.0)]).rate == 0.0


@pytest.mark.parametrize("outcome", [Outcome.no_answer, Outcome.unfinished_cot])
def test_a_student_without_an_answer_is_wrong(outcome: Outcome) -> None:
    """Its own failure: the row does not leave the group for it."""
    found = solve_rate([StudentAnswer(outcome=outcome), StudentAnswer(score=1.0)])
    assert (found.outcome, found.rate, found.parsed, found.completed, found.failed) == (Outcome.ok, 0.5, 0.5, 0.5, 0)


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (StudentAnswer(outcome=Outcome.timeout), Outcome.timeout),
        (StudentAnswer(outcome=Outcome.judge_error), Outcome.judge_error),
        (StudentAnswer(score=None), Outcome.judge_error),
        (StudentAnswer(score=math.nan), Outcome.judge_error),
        (StudentAnswer(score=math.inf), Outcome.judge_error),
        (StudentAnswer(score=-1.0), Outcome.judge_error),
        (StudentAnswer(score=2.0), Outcome.judge_error),
    ],
)
def test_a_failed_answer_is_in_no_mean(answer: StudentAnswer, outcome: Outcome) -> None:
    alone = solve_rate([answer])
    assert (alone.outcome, alone.failed) == (outcome, 1)
    assert math.isnan(alone.rate)
    both = solve_rate([answer, StudentAnswer(score=1.0)])
    assert (both.outcome, both.rate, both.failed) == (Outcome.ok, 1.0, 1)


def test_no_answers_at_all_are_no_rate() -> None:
    assert solve_rate([]).outcome is Outcome.excluded


@pytest.mark.guards("missing tag forwarding private analysis")
@pytest.mark.parametrize("state", [state for state in TeachingState if state != "ok"])
def test_what_shows_nothing_leaves_the_student_where_it_was(state: TeachingState) -> None:
    """Even where somebody asked the student about the raw text."""
    shown = row(0.25, 1.0, state=state, length=300, leak=True)
    assert shown.taught.rate == 0.25
    assert (shown.shown_length, shown.shown_leak) == (0, False)
    assert TaughtRow(group="q", state=state, base=rate(0.25)).taught.rate == 0.25


def test_rows_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="give what the student made of it"):
        TaughtRow(group="q", state=TeachingState.ok, base=rate(0.0))
    with pytest.raises(ValueError, match="-1 tokens are not possible; write 0 or more"):
        row(length=-1)
