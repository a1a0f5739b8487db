"""What is compared of two recorded runs: numbers, not how long they took."""

import json
from pathlib import Path

from tests.e2e.recorded import differences


def test_seconds_are_no_difference(tmp_path: Path) -> None:
    for number, name in enumerate(("before", "after")):
        (tmp_path / name).mkdir()
        timed = ("timing_s/step", "rcl/student_seconds", "rcl/student/weak/student_seconds")
        line = {"step": 1, "rcl/student/weak/b": number, **dict.fromkeys(timed, number)}
        (tmp_path / name / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    (told,) = differences(tmp_path / "before", tmp_path / "after")
    assert "rcl/student/weak/b" in told
