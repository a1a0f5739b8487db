"""One teacher with students on all three engines: in the process group, on vLLM, and on a server."""

import math
import re
import shutil
from pathlib import Path

import pytest

from tests.e2e.hosting import hosting
from tests.e2e.teacher_world import TEACH, make_teacher_world
from tests.e2e.world import finished, rows, steps
from tests.evaluation.teaching.test_real_models import save_model
from verl.evaluation.replay import main as replay

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def test_students_on_every_engine_are_asked_and_scored(tmp_path: Path) -> None:
    pytest.importorskip("vllm")
    hosted, mapping, folder = tmp_path / "hosted", tmp_path / "mapping.json", tmp_path / "run"
    world = [one for one in make_teacher_world(tmp_path) if not one.startswith(("rcl.students", "rcl.unseen"))]
    shutil.copytree(tmp_path / "other", hosted)
    # On a CPU vLLM takes heads of 32 and more.
    save_model(tmp_path / "strong", seed=2, width=64)
    students = f"{{model: {tmp_path / 'weak'},backend: hf}},{{model: {tmp_path / 'strong'},backend: vllm}}"
    given = [
        f"rcl.students=[{students},{{model: {hosted},backend: openai}}]",
        "rcl.unseen_students=[]",
        f"reward_model.host_classmate_name_to_url_json_fn={mapping}",
        "rcl.protocol.student_assignment=all",
        "rcl.reward.drop_unsolved_groups=false",
        # An epoch: four questions, each a group for each student, in batches of four.
        "trainer.total_training_steps=3",
        f"trainer.default_local_dir={folder}",
    ]
    with hosting(hosted, mapping=mapping, log=tmp_path / "hosting.txt"):
        terminal = finished([*TEACH, *world, *given], log=tmp_path / "terminal.txt")
    found = steps(folder)
    assert sorted(found) == [1, 2, 3]
    for line in found.values():
        assert line["rcl/excluded_rows"] == 0
    asked: dict[str, list[float]] = {}
    for step in found:
        for row in rows(folder, step):
            (one,) = row["teaching"]["students"]
            asked.setdefault(one["lesson"]["name"], []).append(one["lesson"]["base"]["rate"])
    assert sorted(asked) == ["hosted", "strong", "weak"], "each question is a group of each student"
    assert all(math.isfinite(rate) for rates in asked.values() for rate in rates)
    assert len({len(rates) for rates in asked.values()}) == 1
    for name, engine in (("weak", "hf"), ("strong", "vllm"), ("hosted", "openai")):
        assert re.search(rf"{engine}\b.*\b{name}\b", str(terminal)), f"the plan says where {name} runs"
    assert replay([str(folder), "--step", "2"]) == 0
