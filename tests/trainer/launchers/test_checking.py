"""The run's own checks, made without the servers that its students will have."""

import re
from pathlib import Path

import pytest

from tests.evaluation.teaching.test_real_models import make_world
from tests.trainer.launchers.shown import refusal
from verl.trainer.launchers.checking import main

RCL = ("server", "1", "1", "teacher_rcl", "dataset_id_or_path=rows.parquet")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("world")
    served = f"rcl.students=[{{model: {folder / 'weak'}, backend: openai}}]"
    return ["hardware=cpu", *make_world(folder), served, "rcl.unseen_students=[]"]


def test_a_run_that_is_fine_needs_no_server(run: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(run) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("data.max_promt_length=64", r"data\.max_promt_length"),
        ("rcl.reward.presett=rcl", r"rcl\.reward\.presett: unknown key"),
        ("data.train_files=/nowhere.parquet", r"data\.train_files.*/nowhere\.parquet"),
        ("trainer.logger=[consle]", "consle"),
        ("actor_rollout_ref.model.path=/nowhere", r"actor_rollout_ref\.model\.path=/nowhere does not exist"),
    ],
)
def test_a_mistake_is_one_line(wrong: str, says: str, run: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*run, wrong]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(says, line), line


def test_a_wrong_key_of_students_is_told_at_once(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refusal(capsys, *RCL, "reward_model.clasmate_backend=hf")
    assert "reward_model.clasmate_backend: unknown key" in line


def test_only_a_run_with_servers_is_checked_apart(clean: Path) -> None:
    from verl.trainer.launchers.arguments import parse
    from verl.trainer.launchers.plan import make_plan

    words = ("teacher_rcl", "dataset_id_or_path=rows.parquet", "--dry-run")
    served = make_plan(parse("server", ["1", "1", *words]))
    assert served.check is not None
    assert served.check.argv[3:] == served.argv[3:], "the run's own arguments"
    assert make_plan(parse("server", ["0", "1", *words])).check is None
