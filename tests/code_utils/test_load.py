"""Many clients at once: every answer is right, however long the queue."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.bench.sandbox import put_under_load

ROOT = Path(__file__).resolve().parents[2]


def test_fifty_clients_get_right_answers(url: str) -> None:
    load = put_under_load(url, clients=50, seconds=2)
    assert not load.wrong
    assert len(load.waits) >= 50


@pytest.mark.long
def test_fifty_clients_for_a_minute_get_right_answers() -> None:
    command = [sys.executable, str(ROOT / "scripts/bench/sandbox.py"), "--clients", "50", "--seconds", "60"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["wrong"] == 0
    assert result["requests"] > 50
