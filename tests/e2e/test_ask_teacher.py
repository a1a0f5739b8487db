"""`examples/ask_teacher.py` lets a teacher advise a student."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.evaluation.teaching.test_real_models import make_world
from tests.test_structure import ROOT

SCRIPT = ROOT / "examples" / "ask_teacher.py"


def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True)


@pytest.mark.slow
def test_a_student_is_advised(tmp_path: Path) -> None:
    """Random models write nothing that keeps the tags, which is said."""
    make_world(tmp_path)
    done = ask(str(tmp_path / "policy"), str(tmp_path / "weak"), "What is 1 + 2?", "--max_new_tokens", "8")
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert any(line.startswith("the student plans:") for line in lines)
    assert any(line.startswith("the teacher advises: nothing (") for line in lines)
    assert any(line.startswith("without advice:") for line in lines)
