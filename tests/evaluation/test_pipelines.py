"""Runs of the pipeline side by side: numbers worked out by hand, and what a user sees who names the wrong folder."""

import json
from pathlib import Path
from typing import Any

import pytest

from verl.evaluation import pipelines
from verl.reasoning.estimates import Estimate
from verl.reasoning.evaluation import EvalReport, EvalSettings


def report(stage: str, right: dict[str, tuple[bool, ...]], majority: bool, weighted: bool) -> dict[str, Any]:
    share = sum(sum(some) for some in right.values()) / sum(len(some) for some in right.values())
    chosen = {"majority": dict.fromkeys(right, majority), "weighted": dict.fromkeys(right, weighted)}
    told = Estimate(value=share, low=0.0, high=1.0, n=len(right))
    return EvalReport(
        stage=stage,
        model=stage,
        settings=EvalSettings(k=2),
        num_evaluated=len(right),
        excluded=0,
        pass_at_1=told,
        maj_at_k=told,
        right=right,
        chosen=chosen,
    ).as_dict()


def run(folder: Path, base: tuple[bool, ...], rl: tuple[bool, ...], seconds: float) -> Path:
    folder.mkdir()
    metrics = {
        "base": report("base", {"a": base, "b": base}, majority=False, weighted=True),
        "pure_rl": report("pure_rl", {"a": rl, "b": rl}, majority=True, weighted=True),
    }
    said = {"metrics": metrics, "timings": {"pure_rl": seconds, "evaluation/base_test": 30.0}}
    (folder / pipelines.REPORT).write_text(json.dumps(said))
    return folder


def test_means_over_runs_are_those_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = run(tmp_path / "one", base=(False, False), rl=(True, True), seconds=30.0)
    two = run(tmp_path / "two", base=(False, True), rl=(True, True), seconds=90.0)
    assert pipelines.main([str(one), str(two)]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    cells = {line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]] for line in rows}
    # t with one degree of freedom is 12.706; the deviation of 0 and .5 is .354, so half an interval is 3.177.
    assert cells["base"][0] == "0.250 ± 3.177"
    assert cells["pure_rl"][:2] == ["1.000 ± 0.000", "+0.750 ± 3.177 [2 of 2] over base"]
    assert cells["base"][3] == "+1.000 ± 0.000 [2 of 2]", "weighted is right and majority is not, for both problems"
    assert cells["pure_rl"][3] == "+0.000 ± 0.000 [0 of 2]"
    assert cells["pure_rl"][5] == "60 ± 381"


def test_a_run_that_has_not_ended_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pipelines.main([str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "pipeline_report.json is not there" in told
