"""`examples/test_classmate_cot.py` tells which models can be classmates."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.tiny import make_tiny_world
from tests.e2e.world import ROOT


@pytest.mark.slow
def test_it_shows_what_a_model_answers_and_why_another_cannot(tmp_path: Path) -> None:
    model = str(make_tiny_world(tmp_path).model)
    missing = str(tmp_path / "missing")

    def check(*models: str) -> subprocess.CompletedProcess:
        script = ROOT / "examples" / "test_classmate_cot.py"
        command = [sys.executable, str(script), *models, "--max_new_tokens", "4"]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)

    good = check(model)
    assert good.returncode == 0, good.stderr[-2000:]
    assert "<think>\\nTom has 3 and gets 4, so 3+4=7.\\n</think>" in good.stdout
    assert "answered" in good.stdout
    both = check(missing, model)
    assert both.returncode == 1
    assert f"{missing}\n  cannot be a classmate:" in both.stdout
    assert "answered" in both.stdout, "the others are asked all the same"
