"""The page in the repository is what its result files give."""

from pathlib import Path

from verl.evaluation.teaching_study.report import check_report


def test_the_page_is_up_to_date() -> None:
    assert check_report(Path(__file__).parents[3] / "docs" / "teaching_study") == []
