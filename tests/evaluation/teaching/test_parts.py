"""The parts of an evaluation that ask nobody: rows, the journal, groups, and how numbers are written."""

from pathlib import Path

import pytest

from tests.evaluation.teaching.scripted import row, write_rows
from verl.classmate.outcome import Outcome
from verl.evaluation.teaching.items import load_items
from verl.evaluation.teaching.journal import Journal
from verl.evaluation.teaching.trials import Answers
from verl.evaluation.teaching.view import _plus, _share_of
from verl.teaching.row import StudentAnswer


def test_a_small_evaluation_asks_part_of_a_larger_one(tmp_path: Path) -> None:
    rows = [row(i, "carry") for i in range(50)]
    write_rows(tmp_path / "one.parquet", rows)
    write_rows(tmp_path / "turned.parquet", rows[::-1])
    few = load_items([str(tmp_path / "one.parquet")], option="--data", most=5).chosen
    more = load_items([str(tmp_path / "one.parquet")], option="--data", most=20).chosen
    turned = load_items([str(tmp_path / "turned.parquet")], option="--data", most=5).chosen
    assert {one.name for one in few} < {one.name for one in more}
    assert {one.name for one in few} == {one.name for one in turned}
    assert [one.name for one in few] != [f"scripted/{i}" for i in range(5)]


def test_rows_of_one_number_are_named_by_their_place(tmp_path: Path) -> None:
    write_rows(tmp_path / "two.parquet", [row(3, "carry"), row(3, "borrow"), row(4, "carry", truth="")])
    items = load_items([str(tmp_path / "two.parquet")], option="--data")
    assert [one.name for one in items.chosen] == ["scripted/0", "scripted/1"]
    assert (items.rows, items.without_truth) == (3, 1)


def test_a_journal_goes_on_behind_a_line_that_was_cut(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    with Journal.open(file, {"seed": 1}) as journal:
        journal.put("a", [1.5])
        journal.put("b", {"text": "é"})
    file.write_bytes(file.read_bytes()[:-3])
    with Journal.open(file, {"seed": 1}) as journal:
        assert (journal.get("a"), journal.get("b"), journal.reused) == ([1.5], None, 1)
        journal.put("b", 2)
    with Journal.open(file, {"seed": 1}) as journal:
        assert (journal.get("a"), journal.get("b")) == ([1.5], 2)


def test_a_journal_of_another_evaluation_is_begun_anew(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    with Journal.open(file, {"seed": 1}) as journal:
        journal.put("a", 1)
    with Journal.open(file, {"seed": 2}) as journal:
        assert journal.get("a") is None
    with Journal.open(file, {"seed": 1}) as journal:
        assert journal.get("a") is None


def test_a_failed_answer_is_no_wrong_one() -> None:
    answers = Answers.of_students(
        [
            StudentAnswer(score=1.0, tokens=3),
            StudentAnswer(outcome=Outcome.no_answer, parsed=False, tokens=9, finished=False),
            StudentAnswer(outcome=Outcome.timeout),
            StudentAnswer(outcome=Outcome.ok, score=None),
        ],
        errors=[None, None, "no answer within 60 s", None],
    )
    assert [(one.score, one.parsed, one.stopped) for one in answers.responses] == [(1, True, True), (0, False, False)]
    assert (answers.failed, answers.outcome, answers.error) == (2, Outcome.timeout, "no answer within 60 s")
    assert Answers.of_plain(answers.plain()) == answers


@pytest.mark.parametrize(("value", "said"), [(1.0, "1"), (0.999, ">.99"), (0.974, ".97"), (0.0, ".00"), (None, "-")])
def test_what_is_not_quite_one_is_not_shown_as_one(value: float | None, said: str) -> None:
    assert _share_of(value) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.594, "+.59"), (-0.25, "-.25"), (-0.001, ".00"), (1.0, "+1"), (65.57, "+65.6"), (420.2, "+420")],
)
def test_signed_numbers_are_short(value: float, said: str) -> None:
    assert _plus(value) == said
