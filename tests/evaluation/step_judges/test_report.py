"""The page of step judges, from made-up results; and the command."""

import json
from pathlib import Path
from typing import Any

import pytest

from verl.evaluation.step_judges.__main__ import main
from verl.evaluation.step_judges.report import TITLES, check_report, tables, write_report

KINDS = ("all", "copy", "arithmetic", "combining", "slip")
PREDICTIONS = [
    {"text": "Both find errors.", "measure": "judges.both.f1.all", "above": 0.9},
    {"text": "A head does not know copies.", "measure": "judges.head.f1.copy", "below": 0.5},
    {"text": "Votes gain.", "measure": "search.judges.both.less_majority.value", "interval_above": 0.0},
]


def result(seed: int, f1: float, gain: float) -> dict[str, Any]:
    """Of a seed: all F1 are `f1`."""
    judge = {
        "f1": dict.fromkeys(KINDS, f1),
        "weakest_step": dict.fromkeys(KINDS, 0.8),
        "weakest_planted": 0.95,
        "tokens": 120.0,
        "tokens_trained": 2_000_000,
    }
    less = {"value": gain, "low": gain - 0.1, "high": gain + 0.1}
    chosen = {"best": 0.8, "weighted": 0.9, "less_majority": less}
    return {
        "seed": seed,
        "judges": dict.fromkeys(TITLES, judge),
        "search": {"pass@1": 0.4, "any": 0.9, "majority": 0.6, "judges": dict.fromkeys(TITLES, chosen)},
    }


RESULTS = [result(11, 0.92, 0.3), result(12, 0.94, 0.2)]


def test_predictions_are_judged_by_means_and_intervals() -> None:
    text = tables(RESULTS, PREDICTIONS)
    assert "| Both find errors. | 0.930 ± 0.127 | right |" in text
    assert "| A head does not know copies. | 0.930 ± 0.127 | wrong |" in text
    # 0.25 with half an interval of 12.706 * 0.0707 / sqrt(2): 0 lies in it.
    assert "| Votes gain. | 0.250 ± 0.635 | wrong |" in text
    assert "+0.300 [0.200, 0.400]; +0.200 [0.100, 0.300]" in text


def test_one_seed_excludes_nothing() -> None:
    assert "| Votes gain. | 0.300 | wrong |" in tables(RESULTS[:1], PREDICTIONS)


def test_seeds_that_agree_wholly_exclude_zero() -> None:
    same = [result(seed, 0.92, 0.25) for seed in (11, 12, 13)]
    assert "| Votes gain. | 0.250 ± 0.000 | right |" in tables(same, PREDICTIONS)


def test_a_prediction_without_a_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="above, below, interval_above"):
        tables(RESULTS, [{"text": "Something.", "measure": "judges.both.f1.all"}])


def test_a_page_says_what_the_files_say(tmp_path: Path) -> None:
    folder = tmp_path / "step_judges"
    folder.mkdir()
    (folder / "predictions.yaml").write_text(json.dumps({"predictions": PREDICTIONS}))
    page = folder.with_suffix(".md")
    page.write_text("before\n<!-- results -->\nold\n<!-- /results -->\nafter\n")
    with pytest.raises(ValueError, match="has no results"):
        write_report(folder)
    for one in RESULTS:
        (folder / f"seed_{one['seed']}.json").write_text(json.dumps(one))
    assert check_report(folder)
    write_report(folder)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert check_report(folder) == []
    assert main(["report", "--check", "--results_dir", str(folder)]) == 0


def test_the_page_of_the_documents_is_up_to_date() -> None:
    assert check_report(Path("docs/step_judges")) == []


def test_what_measures_nothing_does_not_go_to_the_page() -> None:
    with pytest.raises(ValueError, match="--results_dir"):
        main(["--short"])


@pytest.mark.long
def test_the_short_form_ends_with_results(tmp_path: Path) -> None:
    options = ["--seeds", "0", "--short", "--output_dir", str(tmp_path / "out"), "--results_dir", str(tmp_path / "res")]
    assert main(options) == 0
    found = json.loads((tmp_path / "res/seed_0.json").read_text())
    assert set(found["judges"]) == set(TITLES) == set(found["search"]["judges"])
    assert found["rows"]["test"] > 0
