"""The page of studies of rivals, from made-up results."""

from pathlib import Path

import pytest

from tests.evaluation.rival_study.made_up import ARMS, SEEDS, STUDY, result
from verl.classmate.errors import ConfigError
from verl.evaluation.rival_study.report import check_report, write_report
from verl.evaluation.study.results import write_result

STUDIES = {"rivals": STUDY}
PREDICTIONS = """
predictions:
  - name: RL with classmates is read better
    text: Unseen readers follow it better than plain RFT.
    study: rivals
    kind: exceeds
    left: rl_classmates
    right: rft
    by: 0.2
  - name: it costs more reading
    text: Readers of RFT read as much.
    study: rivals
    kind: exceeds
    measure: tokens_read
    left: rl_classmates
    right: rft_reader
    by: 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Results of all arms, with a page beside them."""
    made = tmp_path / "rival_study"
    for arm in ARMS:
        for seed in SEEDS:
            write_result(result(arm, seed), made)
    (made / "predictions.yaml").write_text(PREDICTIONS)
    (tmp_path / "rival_study.md").write_text("# Page\n\n<!-- results -->\n<!-- /results -->\nThe end.\n")
    return made


def test_a_page_says_what_the_files_say(folder: Path) -> None:
    written = write_report(folder, STUDIES)
    assert {path.name for path in written} == {
        "rival_study.md",
        "rivals_unseen.png",
        "rivals_styles.png",
        "rivals_curves.png",
    }
    text = folder.with_suffix(".md").read_text()
    assert "2 predictions: 1 held, 1 refuted, 0 open" in text
    assert "| RL with two classmates | 3 | 0.84 ± 0.02 | 20.0 ± 2.5 | 0.70 ± 0.02 |" in text
    assert "| RL with two classmates | RFT | +0.00 ± 0.00 | 1 | +0.50 ± 0.00 | 0.25 |" in text
    assert "| RFT | 140 | 250 | 670 | 60 |" in text
    assert check_report(folder, STUDIES) == []
    assert write_report(folder, STUDIES) == [], "nothing has changed"


def test_arms_that_were_not_run_are_left_out(folder: Path) -> None:
    for path in (folder / "rivals").glob("rft_*.json"):
        path.unlink()
    write_report(folder, STUDIES)
    text = folder.with_suffix(".md").read_text()
    assert "| RL with two classmates | RFT, readers approve |" not in text
    assert "**Missing seeds**: RFT at" in text.replace("RFT, readers approve at 11, 12, 13; ", "")


def test_a_prediction_of_a_number_that_there_is_not(folder: Path) -> None:
    (folder / "predictions.yaml").write_text(PREDICTIONS.replace("tokens_read", "tokens_reed"))
    with pytest.raises(ConfigError, match="'tokens_reed' is never measured in rivals"):
        write_report(folder, STUDIES)
