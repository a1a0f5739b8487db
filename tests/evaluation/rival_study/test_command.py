"""The command and its plan: what it refuses, what it would do, what arms share, and what is not done again."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.evaluation.rival_study.made_up import result, tiny_study
from verl.evaluation.rival_study import __main__ as command
from verl.evaluation.rival_study.presets import STUDIES
from verl.evaluation.rival_study.runs import Places, RivalRun, plan_of
from verl.evaluation.rival_study.spec import FineTuning, RivalArm, RivalStudy
from verl.evaluation.study.results import write_result
from verl.trainer.run.state import write_atomically

STUDY = STUDIES["transfer"]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("transfr", "no study transfr; did you mean transfer?"),
        ("hinted --arms rft_readers", "no arm rft_readers; did you mean rft_reader?"),
        ("hinted --arms rft_worked", "no arm rft_worked; did you mean"),
        ("hinted --jobs 0", "--jobs 0: write 1 or more"),
        ("report --arms rft", "--arms: the report is of all result files; leave it out"),
        ("", "no study is named; write one of hinted, transfer"),
    ],
)
def test_mistakes_are_told_in_one_line(typed: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$") as caught:
        command.main(typed.split())
    assert said in str(caught.value)


def test_the_list_says_what_arms_accept(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    shown = capsys.readouterr().out
    assert "rft_reader: RFT, readers approve; keeps what is right and readers; rounds: 1" in shown
    for study in STUDIES.values():
        for arm in study.arms:
            assert f"  {arm.name}: {arm.title}" in shown


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"method": "rl", "rounds": 2}, "accepts and rounds belong to method='rft'"),
        ({"method": "rft", "accepts": ("readers",)}, "nobody approves; write classmates"),
        ({"method": "rft", "rounds": 0}, "0 rounds; write 1 or more"),
    ],
)
def test_arms_that_cannot_be(changed: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        RivalArm(name="a", title="a", entry="baseline", **changed)  # type: ignore[arg-type]


def test_all_arms_of_a_world_face_the_same_classmates() -> None:
    """Who approves a trace is who pays in RL, and no unseen reader is ever asked in training."""
    for study in STUDIES.values():
        for arm in study.arms:
            assert arm.classmates in ((), study.paced_by.classmates)
            assert {study.reader(name).role for name in arm.classmates} <= {"classmate"}
        assert [reader.role for reader in study.world.readers].count("unseen") == 2


def places(folder: Path, study: RivalStudy) -> Places:
    return Places(study=study, output_dir=folder / "out", results_dir=folder / "results")


def run_of(here: Places, arm: str, seed: int = 11) -> RivalRun:
    return RivalRun(places=here, arm=here.study.arm(arm), seed=seed)


def test_arms_share_the_traces_and_wait_for_the_pace(tmp_path: Path) -> None:
    study = replace(STUDY.of_arms(("start", "rft", "rft_reader")), seeds=(11,))
    plan = plan_of(places(tmp_path, study), jobs=2)
    after = {task.name: task.after for task in plan.tasks}
    assert len(after) == len(plan.tasks) == 2 + 1 + 1 + 2 + 3, "world, start; RL once, traces once, two arms, measures"
    assert after["rl_classmates, seed 11"] == ("world, seed 11",)
    assert after["traces, seed 11"] == ("world, seed 11", "rl_classmates, seed 11")
    assert set(after["rft, seed 11"]) == {"world, seed 11", "rl_classmates, seed 11", "traces, seed 11"}
    assert set(after["measure start, seed 11"]) == {"world, seed 11", "start, seed 11"}
    names = [task.name for task in plan.tasks]
    for place, task in enumerate(plan.tasks):
        assert set(task.after) <= set(names[:place])


def test_what_is_there_is_not_done_again(tmp_path: Path) -> None:
    study = replace(STUDY.of_arms(("rl", "rft")), name="rivals", seeds=(11,))
    here = places(tmp_path, study)
    write_result(replace(result("rft"), key=run_of(here, "rft").key), here.results_dir)
    names = [task.name for task in plan_of(here, jobs=1).tasks]
    assert "rl, seed 11" in names
    assert not {"rft, seed 11", "traces, seed 11", "rl_classmates, seed 11"} & set(names)
    write_result(replace(result("rft"), key="older"), here.results_dir)
    assert plan_of(here, jobs=1).stale == ("rft, seed 11",)


def test_drawn_traces_are_taken_while_they_are_the_same(tmp_path: Path) -> None:
    here = places(tmp_path, replace(STUDY.of_arms(("rft",)), seeds=(11,)))
    run = run_of(here, "rft")
    write_atomically(_made(here.traces(11)), '{"key": "' + run.traces_key + '"}')
    assert "traces, seed 11" not in [task.name for task in plan_of(here, jobs=1).tasks]
    write_atomically(here.traces(11), '{"key": "another"}')
    assert "traces, seed 11" in [task.name for task in plan_of(here, jobs=1).tasks]


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    return path


def test_keys_follow_what_an_arm_follows(tmp_path: Path) -> None:
    here = places(tmp_path, STUDY)
    keys = {arm.name: run_of(here, arm.name).training_key for arm in STUDY.arms}
    assert len(set(keys.values())) == len(keys)
    other = places(tmp_path, replace(STUDY, fine_tuning=FineTuning(lr=1.0)))
    changed = {name for name, key in keys.items() if run_of(other, name).training_key != key}
    assert changed == {arm.name for arm in STUDY.arms if arm.method == "rft"}
    longer = places(tmp_path, replace(STUDY, steps=81))
    changed = {name for name, key in keys.items() if run_of(longer, name).training_key != key}
    assert changed == set(keys) - {"start"}, "who spends RL's tokens follows RL"


def test_the_start_is_measured_where_it_stands(tmp_path: Path) -> None:
    here = places(tmp_path, STUDY)
    assert run_of(here, "start").policy == here.world_folder / "seed_11" / "policy"
    assert run_of(here, "rft").policy == here.folder / "rft_seed11" / "policy"


def test_the_short_form_has_both_kinds() -> None:
    for study in STUDIES.values():
        short = study.short()
        assert {arm.method for arm in short.arms} == {"rl", "rft"}
        assert short.name == f"{study.name}_short"
        assert short.world.name != study.world.name
    assert tiny_study().paced_by.name == "rl_classmates"
