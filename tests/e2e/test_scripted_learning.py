"""T11: whom a teacher helps and whom it leaves alone, when all but the student's engine is real."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.scripted_learning import WORDS, Student, make_scripted_world
from tests.e2e.watched import watched
from tests.e2e.world import rows

pytestmark = pytest.mark.long
STEPS = 40


@pytest.fixture(scope="module")
def scripted_world(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return make_scripted_world(tmp_path_factory.mktemp("scripted_world"))


def learnt(world: list[str], folder: Path, *, penalty: float) -> tuple[dict[str, float], dict[str, float]]:
    """What a teacher does in its first step and in its last."""
    given = [f"rcl.reward.degradation_penalty={penalty}", f"trainer.total_training_steps={STEPS}"]
    watched([*world, *given, f"trainer.default_local_dir={folder}"], client=Student)
    return summary(rows(folder, 1)), summary(rows(folder, STEPS))


def summary(records: list[dict[str, Any]]) -> dict[str, float]:
    """D on weak questions; shares of rows on strong ones that say nothing, and that take the right answer away."""
    weak = [row for row in records if any(f"kind {word}:" in row["question"] for word in WORDS)]
    strong = [row for row in records if row not in weak]
    assert len(weak) == 2 * len(strong) == 64
    return {
        "weak_gain": sum(change(row) for row in weak) / len(weak),
        "empty": sum(row["teaching"]["state"] == "empty" for row in strong) / len(strong),
        "degrade": sum(change(row) < 0 for row in strong) / len(strong),
    }


def change(row: dict[str, Any]) -> float:
    return float(row["teaching"]["rcl"]["effect"]["change"])


@pytest.mark.acceptance("T11")
def test_a_teacher_helps_the_weak_and_spares_the_strong(scripted_world: list[str], tmp_path: Path) -> None:
    """In 40 steps; without a penalty for harm the strong are harmed.

    With it the strong are told what does not harm them, which here pays as well as saying nothing. That a teacher says
    nothing to whom it cannot help is shown by docs/teaching_study.md.
    """
    first, last = learnt(scripted_world, tmp_path / "two", penalty=2)
    print(json.dumps([first, last]))
    assert first["weak_gain"] < 0.4
    assert first["degrade"] > 0.5
    assert last["weak_gain"] > 0.9
    assert last["degrade"] < 0.1
    _, free = learnt(scripted_world, tmp_path / "none", penalty=0)
    print(json.dumps(free))
    assert free["weak_gain"] > 0.9
    assert free["degrade"] > 0.4
