"""The page of studies of teachers, from made-up results."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.evaluation.teaching_study.made_up import MADE_UP, SEEDS, result, write_all
from verl.classmate.errors import ConfigError
from verl.evaluation.study.results import write_result
from verl.evaluation.teaching_study.report import check_report, write_report

PREDICTIONS = """
predictions:
  - name: more than fixed advice
    text: The weak student gains more.
    study: adaptive
    kind: exceeds
    left: penalty_2
    measure: teacher.weak.APG
    right: penalty_2
    right_measure: fixed_own.weak.APG
    by: 0.2
  - name: no harm
    text: The strong student loses less.
    study: adaptive
    kind: exceeds
    left: penalty_0
    measure: teacher.strong.harm
    right: penalty_2
    by: 0.05
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Results of two studies, with a page beside them."""
    made = tmp_path / "teaching_study"
    write_all(made)
    (made / "predictions.yaml").write_text(PREDICTIONS)
    (tmp_path / "teaching_study.md").write_text("# Page\n\n<!-- results -->\n<!-- /results -->\nThe end.\n")
    return made


def page(folder: Path) -> str:
    return folder.with_suffix(".md").read_text()


def test_a_page_says_what_the_files_say(folder: Path) -> None:
    written = write_report(folder, MADE_UP)
    assert {path.name for path in written} == {"teaching_study.md", "adaptive_gains.png", "told_leaks.png"}
    text = page(folder)
    assert text.startswith("# Page")
    assert text.endswith("The end.\n")
    assert "2 predictions: 1 held, 1 refuted, 0 open" in text
    assert "| trained teacher" not in text
    assert "| teacher, degradation_penalty=2 | +0.50 ± 0.02 | +0.50 ± 0.02 |" in text
    assert re.search(r"\| zero_gain \| 0.02 ± 0.00 \| 0.80", text)
    assert "`` Remember `the` carry. ``" in text
    assert check_report(folder, MADE_UP) == []
    assert write_report(folder, MADE_UP) == [], "nothing has changed"


def test_another_result_makes_the_page_stale(folder: Path) -> None:
    write_report(folder, MADE_UP)
    one = result(seed=11)
    write_result(replace(one, numbers=one.numbers | {"teacher.weak.APG": 0.9}), folder)
    wrong = check_report(folder, MADE_UP)
    assert any("adaptive_gains.png: not drawn from these" in line for line in wrong)
    assert any("not what the result files give" in line for line in wrong)


def test_no_verdict_on_fewer_seeds(folder: Path) -> None:
    (folder / "adaptive" / f"penalty_2_seed{SEEDS[0]}.json").unlink()
    write_report(folder, MADE_UP)
    assert "0 held, 0 refuted, 2 open" in page(folder)
    assert "**Missing seeds**: degradation_penalty=2 at 11" in page(folder)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("teacher.weak.APG", "teacher.weak.APGG", "is never measured in adaptive"),
        ("left: penalty_2", "left: penalty_3", "'penalty_3' is no arm of adaptive; write one of: penalty_2, penalty_0"),
        ("study: adaptive", "study: adaptiv", "'adaptiv' is no study"),
    ],
)
def test_a_prediction_that_nothing_can_test(folder: Path, old: str, new: str, said: str) -> None:
    (folder / "predictions.yaml").write_text(PREDICTIONS.replace(old, new, 1))
    with pytest.raises(ConfigError, match=re.escape(said)):
        write_report(folder, MADE_UP)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("teacher.weak.w", 1.2, "from 0 to 1"),
        ("teacher.all.leak", -0.1, "from 0 to 1"),
        ("null.strong.APG", -1.5, "from -1 to 1"),
        ("teacher.weak.length", -7, "of 0 or more"),
        ("offtask.after", 75, "from 0 to 1"),
    ],
)
def test_a_number_that_cannot_be_is_refused(name: str, value: float, allowed: str, folder: Path) -> None:
    one = result()
    write_result(replace(one, numbers=one.numbers | {name: float(value)}), folder)
    for reads in (write_report, check_report):
        with pytest.raises(ValueError, match=f"{name}={value:g} is no number {allowed}; remove the file") as refused:
            reads(folder, MADE_UP)
        assert "adaptive" in str(refused.value)
        assert "\n" not in str(refused.value)


def test_extremes_that_can_be_are_taken(folder: Path) -> None:
    one = result()
    extremes = {"teacher.weak.w": 1.0, "teacher.weak.leak": 0.0, "teacher.weak.APG": -1.0, "teacher.weak.TES": 25.0}
    write_result(replace(one, numbers=one.numbers | extremes), folder)
    write_report(folder, MADE_UP)
