"""T11: whom a teacher helps and whom it leaves alone, when all but the student's engine is real."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.e2e.scripted_learning import WORDS, Student, make_scripted_world
from tests.e2e.watched import watched
from tests.e2e.world import rows

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(torch.cuda.is_available(), reason="deterministic runs are refused on a GPU"),
]
STEPS, EARLY = 18, 8


@pytest.fixture(scope="module")
def scripted_world(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return make_scripted_world(tmp_path_factory.mktemp("scripted_world"))


def learnt(world: list[str], folder: Path, *, penalty: float, steps: int) -> dict[int, dict[str, float]]:
    """What a teacher does in each of its steps."""
    given = [f"rcl.reward.degradation_penalty={penalty}", f"trainer.total_training_steps={steps}"]
    watched([*world, *given, f"trainer.default_local_dir={folder}"], client=Student)
    found = {step: summary(rows(folder, step)) for step in range(1, steps + 1)}
    print(json.dumps(found))
    return found


def summary(records: list[dict[str, Any]]) -> dict[str, float]:
    """D on weak questions; shares of rows on strong ones that say nothing, and that take the right answer away."""
    weak = [row for row in records if any(f"kind {word}:" in row["question"] for word in WORDS)]
    strong = [row for row in records if row not in weak]
    assert len(weak) == 2 * len(strong) == 128
    return {
        "weak_gain": sum(change(row) for row in weak) / len(weak),
        "empty": sum(row["teaching"]["state"] == "empty" for row in strong) / len(strong),
        "degrade": sum(change(row) < 0 for row in strong) / len(strong),
    }


def change(row: dict[str, Any]) -> float:
    return float(row["teaching"]["rcl"]["effect"]["change"])


@pytest.mark.acceptance("T11")
def test_a_teacher_helps_the_weak_and_spares_the_strong(scripted_world: list[str], tmp_path: Path) -> None:
    """In 18 steps; without a penalty for harm it tells the strong what helps the weak."""
    found = learnt(scripted_world, tmp_path / "two", penalty=2, steps=STEPS)
    first, early, last = (found[step] for step in (1, EARLY, STEPS))
    assert first["weak_gain"] < 0.4
    assert first["degrade"] > 0.4
    assert last["weak_gain"] > 0.8
    assert last["empty"] > 0.8
    assert last["degrade"] < 0.1
    free = learnt(scripted_world, tmp_path / "none", penalty=0, steps=EARLY)[EARLY]
    assert free["weak_gain"] > first["weak_gain"]
    assert free["degrade"] > 0.7
    assert early["degrade"] < 0.4
