"""Classmates that score nothing are told loudly, whatever the reason."""

import io
from collections.abc import Sequence

import pytest

from tests.classmate.rows import record
from verl.classmate.config import from_mapping
from verl.classmate.outcome import Outcome
from verl.classmate.record import RowRecord
from verl.classmate.row import Continuation
from verl.trainer.run.console import Console
from verl.trainer.silent_classmates import SilenceWatch

MODELS = ("first", "second")
ROWS = 4


def rows(*outcomes: Sequence[str] | None) -> list[RowRecord]:
    """A step: for each classmate the outcomes of its rows in turn, of which only `ok` has a score; None: not asked."""
    return [record(*([] if of is None else [said(of[i % len(of)])] for of in outcomes)) for i in range(ROWS)]


def said(outcome: str) -> Continuation:
    return Continuation(sample=0, outcome=Outcome(outcome), score=0.0 if outcome == "ok" else None)


GOOD, BAD = ("no_answer", "ok"), ("no_answer",)


def test_a_silent_classmate_is_told_after_some_steps_and_again() -> None:
    watch = SilenceWatch(MODELS, steps=3)
    told = [watch.step(rows(GOOD, ("unfinished_cot", "no_answer", "no_answer", "no_answer"))) for _ in range(7)]
    assert [len(lines) for lines in told] == [0, 0, 1, 0, 0, 1, 0]
    assert told[2] == [
        "WARNING: classmate 1 (second) has scored nothing for 3 steps (9 no_answer, 3 unfinished_cot)"
    ], "who, since when, and why"
    assert "for 6 steps" in told[5][0]


def test_a_run_without_any_score_is_told_too() -> None:
    watch = SilenceWatch(MODELS, steps=2)
    assert watch.step(rows(BAD, ("timeout",))) == []
    first, second, all_of_them = watch.step(rows(BAD, ("timeout",)))
    assert "(8 no_answer)" in first
    assert "(8 timeout)" in second
    assert "no classmate has scored anything for 2 steps" in all_of_them
    assert all("\n" not in line for line in (first, second, all_of_them))


def test_one_score_ends_the_count() -> None:
    watch = SilenceWatch(MODELS, steps=3)
    steps = [BAD, BAD, GOOD, BAD, BAD, GOOD, BAD, BAD, BAD]
    assert [len(watch.step(rows(GOOD, step))) for step in steps] == [0] * 8 + [1]


@pytest.mark.parametrize("outcome", sorted(set(Outcome) - {Outcome.ok, Outcome.not_needed}))
def test_no_outcome_hides_a_run_without_scores(outcome: str) -> None:
    watch = SilenceWatch(MODELS, steps=1)
    assert any("no classmate has scored anything" in line for line in watch.step(rows((outcome,), (outcome,))))


def test_an_excluded_classmate_is_told_once_while_another_scores() -> None:
    watch = SilenceWatch(MODELS, steps=1)
    assert watch.step(rows(GOOD, ("excluded",))) == []


def test_steps_that_ask_nobody_say_nothing() -> None:
    watch = SilenceWatch(MODELS, steps=1)
    assert watch.step(rows(None, None)) == []
    assert watch.step([record()]) == []
    assert watch.step([]) == []
    assert SilenceWatch([], steps=1).step(rows()) == []
    assert watch.step(rows(GOOD, None)) == [], "one that is not asked is not silent"
    assert watch.step(rows(("not_needed",), ("not_needed",))) == [], "nor one whose answer could not count"


def test_it_can_be_turned_off() -> None:
    steps = from_mapping({"classmate_silence_steps": 0}, require_classmates=False).classmate_silence_steps
    watch = SilenceWatch(MODELS, steps=steps)
    assert [watch.step(rows(BAD, BAD)) for _ in range(5)] == [[]] * 5


def test_a_loud_line_stands_out_on_a_terminal_only() -> None:
    terminal, file = io.StringIO(), io.StringIO()
    Console(terminal, "rich").line("WARNING: [x] nothing", loud=True)
    Console(file, "plain").line("WARNING: [x] nothing", loud=True)
    assert "\x1b[1;31m" in terminal.getvalue()
    assert file.getvalue() == "WARNING: [x] nothing\n"
