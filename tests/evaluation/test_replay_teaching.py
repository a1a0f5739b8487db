"""The table of a teacher's step: what its students were, what they were told, and what it was worth by term."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from tests.workers.scripted_students import scripted_pipeline, taught, teaching_config
from verl.classmate.record import RowRecord
from verl.evaluation import replay

TEXTS = (
    "<thinking>It forgets.</thinking><teaching>Mind the carry.</teaching>",
    "<teaching></teaching>",
    "Mind the carry.",
    "<teaching>Mind the carry: 7</teaching>",
)


def dumped(folder: Path) -> Path:
    """A run folder with one step of a teacher, whose student is wrong unless it is told to carry."""
    pipeline, _ = scripted_pipeline(folder)
    rows = [RowRecord.of(row).to_json() for row in taught(pipeline, *TEXTS)]
    run = folder / "run"
    (run / "rollouts").mkdir(parents=True)
    (run / "rollouts" / "step_1.jsonl").write_text("".join(f"{row}\n" for row in rows))
    (run / "config.yaml").write_text(OmegaConf.to_yaml(teaching_config(folder), resolve=True))
    return run


def test_the_table_says_what_a_teachers_row_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = dumped(tmp_path)
    assert replay.main([str(run), "--step", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (head,) = [number for number, line in enumerate(lines) if line.split()[:2] == ["row", "index"]]
    assert " ".join(lines[head].split()) == "row index n student b w advice L leak terms of r r advantage"
    cells = [line.split() for line in lines[head + 1 : head + 5]]
    assert [one[3:7] for one in cells] == [
        ["text_bpe", "0", "1", "ok"],
        ["text_bpe", "0", "0", "empty"],
        ["text_bpe", "0", "0", "missing"],
        ["text_bpe", "0", "1", "ok"],
    ]
    helped, silent, broken, told = cells
    assert int(helped[7]) > 0
    assert helped[8:11] == ["improvement", "+1", "efficiency"]
    assert float(helped[12]) == pytest.approx(1 + float(helped[11]), abs=2e-3), "r is the sum of its terms"
    assert silent[7:9] == ["0", "0"], "no terms"
    assert broken[7:11] == ["0", "format", "-0.5", "-0.5"]
    assert told[8] == "told"
    assert max(map(len, lines[head:])) <= 120
    assert "classmate" not in "\n".join(lines[head:])


def test_what_an_option_changes_stands_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = dumped(tmp_path)
    assert replay.main([str(run), "--step", "1", "rcl.reward.format_penalty=1.5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (broken,) = [line.split() for line in lines if "missing" in line]
    assert broken[8:12] == ["format", "-1.5", "-1.5", "-0.5"]
    assert any("r was" in line for line in lines)
