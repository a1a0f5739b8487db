"""A study of rivals in its short form, as a user starts it: world, RL, traces, fine-tuning, results."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.world import ROOT
from verl.evaluation.study.results import load_results


def run(folder: Path) -> str:
    command = [sys.executable, "-m", "verl.evaluation.rival_study", "hinted", "--short", "--seeds", "11"]
    done = subprocess.run([*command, "--output_dir", str(folder)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_the_short_form_ends_with_results(tmp_path: Path) -> None:
    assert "hinted_short: 2 runs, 0 there" in run(tmp_path)
    found = {one.arm: one for one in load_results(tmp_path / "results", "hinted_short")}
    rl, rft = found["rl_classmates"].numbers, next(one for arm, one in found.items() if arm != "rl_classmates").numbers
    assert 0 <= rft["tokens_sampled"] - rl["tokens_sampled"] <= 64, "equal tokens, but for the last trace"
    assert rft["tokens_read"] > 0
    assert {"sound", "sound_when_right", "follows_hint", "unseen", "accuracy"} <= set(rl)
    files = {path: path.read_text() for path in (tmp_path / "results").rglob("*.json")}
    assert "hinted_short: 2 runs, 2 there" in run(tmp_path)
    assert {path: path.read_text() for path in files} == files
