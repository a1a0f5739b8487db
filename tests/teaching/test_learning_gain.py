"""The gain that stays: paired by question, by hand; what failed is in no number."""

import pytest

from tests.teaching.collected_rows import row
from verl.teaching.collected import CollectedTeaching
from verl.teaching.learning_gain import ALONE, SOLUTIONS, TEACHINGS, gain_table


def arm(*pairs: tuple[float, float] | None) -> list[CollectedTeaching]:
    """One row for each question: b and w; None: a call failed."""
    made = []
    for i, pair in enumerate(pairs):
        b, w = pair or (None, None)
        made.append(row(question=f"q{i}", b=b, w=w, D=None, outcome="ok" if pair else "timeout"))
    return made


def test_four_numbers_and_what_was_learnt() -> None:
    table = gain_table(
        {
            ALONE: arm((0.0, 0.5), (0.5, 1.0), (1.0, 1.0)),
            TEACHINGS: arm((0.5, 0.5), (1.0, 1.0), (1.0, 0.5)),
            SOLUTIONS: arm((0.5, 1.0), (0.5, 1.0), (1.0, 1.0)),
        },
        trained_on={TEACHINGS: (12, 340), SOLUTIONS: (12, 300)},
    )
    alone, taught = table.arms[ALONE], table.arms[TEACHINGS]
    assert (alone.without.value, alone.with_teacher.value) == pytest.approx((0.5, 2.5 / 3))
    assert (taught.without.value, taught.with_teacher.value) == pytest.approx((2.5 / 3, 2 / 3))
    assert taught.learnt_without.value == pytest.approx(1 / 3)
    assert taught.learnt_with.value == pytest.approx(-0.5 / 3)
    assert alone.learnt_without.value is None
    assert table.over_rival.value == pytest.approx(0.5 / 3)
    low, high = taught.learnt_without.interval or (None, None)
    assert (low, high) == (0.0, 0.5), "no question became worse"
    shown = table.text()
    assert "trained on teachings" in shown
    assert "+0.333 [+0.000,+0.500]" in shown
    assert all(len(line) <= 130 for line in shown.splitlines())


def test_a_question_is_compared_with_itself_alone() -> None:
    table = gain_table({ALONE: arm((0.0, 0.0), None, (1.0, 1.0)), TEACHINGS: arm((0.5, 1.0), (1.0, 1.0), None)})
    taught = table.arms[TEACHINGS]
    assert (taught.items, taught.lost) == (2, 1)
    assert taught.learnt_without.value == 0.5, "q0 alone has both sides"
    assert taught.learnt_without.interval is None
    assert table.over_rival.value is None
    assert "lost: 1 questions of as it was, 1 questions of trained on teachings" in table.text()


def test_the_same_rows_give_the_same_interval() -> None:
    rows = {ALONE: arm(*((i % 3 / 2, 1.0) for i in range(20)))}
    assert gain_table(rows) == gain_table(rows)


def test_nothing_to_compare_with_is_an_error() -> None:
    with pytest.raises(ValueError, match="as it was is missing"):
        gain_table({TEACHINGS: arm((0.0, 1.0))})
    with pytest.raises(ValueError, match="is there twice"):
        gain_table({ALONE: [*arm((0.0, 1.0)), row(question="q0", variation=1)]})


def test_a_question_without_a_row_is_lost_too() -> None:
    table = gain_table({ALONE: arm((0.0, 1.0), (1.0, 1.0))}, questions=5)
    assert (table.arms[ALONE].items, table.arms[ALONE].lost) == (2, 3)


def test_an_evaluation_in_which_all_failed_has_no_numbers() -> None:
    table = gain_table({ALONE: arm(None, None), TEACHINGS: arm((1.0, 1.0), (1.0, 1.0))})
    assert table.arms[ALONE].without.value is None
    assert table.arms[TEACHINGS].learnt_without.value is None
