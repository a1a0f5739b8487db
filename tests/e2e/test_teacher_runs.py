"""Teachers in real runs: both schedules and one process agree, students die and runs are killed, weights stay whose."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.teacher_world import TEACH, make_teacher_world
from tests.e2e.test_failures import at_work
from tests.e2e.world import finished, rows, start, steps
from verl.evaluation.replay import main as replay

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def teacher_world(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return make_teacher_world(tmp_path_factory.mktemp("teacher_world"))


def taught(folder: Path, step: int) -> list[dict[str, Any]]:
    """The rows of a step without what depends on the clock and on who asked first."""
    found = rows(folder, step)
    for row in found:
        for students in (row["teaching"]["students"], json.loads(row["lesson"])["students"]):
            for one in students:
                one = one.get("lesson", one)
                one.pop("seconds")
                one.pop("cache_hit")
        del row["lesson"]
    return found


def test_schedules_and_one_process_agree(teacher_world: list[str], tmp_path: Path) -> None:
    """The same outlines, teachings, answers, rewards and advantages; and replay finds them again."""

    def run(name: str, *overrides: str) -> list[list[dict[str, Any]]]:
        folder = tmp_path / name
        given = ["trainer.deterministic=true", "trainer.total_training_steps=2", *overrides]
        finished([*TEACH, *teacher_world, f"trainer.default_local_dir={folder}", *given], log=tmp_path / f"{name}.txt")
        assert replay([str(folder), "--step", "2"]) == 0
        return [taught(folder, step) for step in (1, 2)]

    streamed = run("streamed")
    states = {row["teaching"]["state"] for step in streamed for row in step}
    assert {"ok", "empty"} <= states, states
    assert run("batched", "reward_model.classmate_schedule=batched") == streamed
    assert run("debug", "debug=true") == streamed
    for step in streamed:
        groups: dict[str, set[tuple[str, float]]] = {}
        for row in step:
            (one,) = row["teaching"]["students"]
            seen = (one["lesson"]["probe"]["text"], one["lesson"]["base"]["rate"])
            groups.setdefault(row["uid"], set()).add(seen)
            guided = row["classmates"][one["lesson"]["reader"]]["samples"]
            assert len(guided) == (1 if row["teaching"]["state"] == "ok" else 0)
        assert all(len(seen) == 1 for seen in groups.values()), "one probe and one baseline for a group"


def test_only_the_teacher_learns(teacher_world: list[str], tmp_path: Path) -> None:
    """After a step with a large learning rate the students' files are as they were, and the policy is not."""
    world = Path(next(one for one in teacher_world if one.startswith("actor_rollout_ref.model.path=")).split("=")[1])
    weights = {name: world.parent / name / "model.safetensors" for name in ("policy", "weak", "strong")}
    before = {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in weights.items()}
    folder = tmp_path / "run"
    given = ["trainer.total_training_steps=2", "actor_rollout_ref.actor.optim.lr=0.02", "trainer.save_freq=2"]
    # Every group counts, whatever its student solves.
    given += ["rcl.reward.drop_unsolved_groups=false", "debug=true", f"trainer.default_local_dir={folder}"]
    finished([*TEACH, *teacher_world, *given], log=tmp_path / "run.txt")
    after = {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in weights.items()}
    assert after == before
    trained = folder / "global_step_2" / "actor" / "huggingface" / "model.safetensors"
    assert hashlib.sha256(trained.read_bytes()).hexdigest() != before["policy"]


def test_a_student_that_dies_costs_rows_and_no_reward(teacher_world: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    given = [
        "trainer.total_training_steps=6",
        "rcl.unseen_students=[]",
        f"trainer.default_local_dir={folder}",
    ]
    with start([*TEACH, *teacher_world, *given], log=tmp_path / "terminal.txt") as run:
        at_work(run, folder, step=2).kill()
        assert run.wait() == 0, run.terminal
        terminal = run.terminal
    found = steps(folder)
    assert sorted(found) == [1, 2, 3, 4, 5, 6]
    assert "restart 1 of 3" in terminal
    assert "student" in terminal
    lost = [row for step in found for row in rows(folder, step) if not row["main_valid"]]
    assert all(row["base_reward"] is None and row["advantage"] in (0.0, None) for row in lost)
    assert sum(found[step]["rcl/excluded_rows"] for step in found) > 0


def test_a_killed_run_goes_on(teacher_world: list[str], tmp_path: Path) -> None:
    """With the baselines that it had asked for."""
    folder = tmp_path / "run"
    given = [
        *TEACH,
        *teacher_world,
        "trainer.total_training_steps=3",
        "trainer.save_freq=1",
        f"trainer.default_local_dir={folder}",
    ]
    with start(given, log=tmp_path / "first.txt") as run:
        run.wait_for(lambda: (folder / "latest_checkpointed_iteration.txt").exists())
        run.kill()
    assert 3 not in steps(folder)
    assert "resumes at step" in finished(given, log=tmp_path / "second.txt")
    assert sorted(steps(folder)) == [1, 2, 3]
    last = rows(folder, 3)
    assert all(one["lesson"]["cache_hit"] == 1 for row in last for one in row["teaching"]["students"])
