"""A study of teachers in its short form, as a user starts it: worlds, trainings, evaluations, results."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.world import ROOT
from verl.evaluation.study.results import load_results


def run(folder: Path) -> str:
    command = [sys.executable, "-m", "verl.evaluation.teaching_study", "adaptive_teaching", "--short"]
    done = subprocess.run([*command, "--output_dir", str(folder)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_the_short_form_ends_with_results(tmp_path: Path) -> None:
    assert "adaptive_teaching_short: 4 runs, 0 there" in run(tmp_path)
    results = load_results(tmp_path / "results", "adaptive_teaching_short")
    assert {(one.arm, one.seed) for one in results} == {
        (arm, seed) for arm in ("penalty_2", "penalty_0") for seed in (11, 12)
    }
    for one in results:
        assert {"teacher.weak.APG", "null.unseen_llama.APG", "teacher.strong.length"} <= set(one.numbers)
        assert ("fixed_own.all.APG" in one.numbers) == (one.arm == "penalty_2")
    files = {path: path.read_text() for path in (tmp_path / "results").rglob("*.json")}
    assert "adaptive_teaching_short: 4 runs, 4 there" in run(tmp_path)
    assert {path: path.read_text() for path in files} == files
