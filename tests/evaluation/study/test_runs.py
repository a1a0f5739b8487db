"""What is left to do of a study: what is taken as it is, what is made again, and in which order."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.evaluation.study.studies import tiny_study
from verl.evaluation.study.runs import PAIR, Places, Run, plan_of
from verl.evaluation.study.spec import Study
from verl.trainer.run.state import write_state

LR = "actor_rollout_ref.actor.optim.lr"


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(study=tiny_study(), output_dir=tmp_path / "out", results_dir=tmp_path / "results")


def of(places: Places, arm: str = "two", seed: int = 11) -> Run:
    return Run(places=places, arm=places.study.arm(arm), seed=seed)


def with_study(places: Places, study: Study) -> Places:
    return replace(places, study=study)


def put_result(run: Run, key: str) -> None:
    run.result.parent.mkdir(parents=True, exist_ok=True)
    run.result.write_text(json.dumps({"key": key}))


def test_nothing_starts_before_what_it_needs(places: Places) -> None:
    plan = plan_of(places, jobs=2)
    assert (len(plan.runs), plan.there, plan.stale) == (4, 0, ())
    names = [task.name for task in plan.tasks]
    assert len(names) == len(set(names)) == 2 * (1 + 1 + 2 * 2)
    for place, task in enumerate(plan.tasks):
        assert set(task.after) <= set(names[:place])
    by_name = {task.name: task for task in plan.tasks}
    assert by_name["two, seed 12"].after == ("world, seed 12",)
    assert set(by_name["measure two, seed 12"].after) == {"world, seed 12", "start, seed 12", "two, seed 12"}
    assert names.index("world, seed 12") < names.index("two, seed 11"), "a core would wait for it"
    assert by_name["world, seed 11"].cores > by_name["world, seed 12"].cores == 1, "the first has the readers"


def test_a_result_counts_under_its_key_only(places: Places) -> None:
    run = of(places)
    put_result(run, run.key)
    plan = plan_of(places, jobs=2)
    assert plan.there == 1
    assert "two, seed 11" not in [task.name for task in plan.tasks]
    put_result(run, "another")
    plan = plan_of(places, jobs=2)
    assert (plan.there, plan.stale) == (0, ("two, seed 11",))
    assert "two, seed 11" in [task.name for task in plan.tasks]
    run.result.write_text("{half")
    assert plan_of(places, jobs=2).there == 0


def test_the_key_follows_what_the_run_follows(places: Places) -> None:
    study, key = places.study, of(places).key
    assert of(places).key == key
    changed = [
        with_study(places, replace(study, settings=(*study.settings, f"{LR}=1e-3"))),
        with_study(places, replace(study, steps=3)),
        with_study(places, replace(study, world=replace(study.world, slip_share=0.1))),
        with_study(places, replace(study, strips_by_clause=False)),
    ]
    assert key not in {of(other).key for other in changed}
    elsewhere = replace(places, output_dir=places.output_dir / "moved")
    assert of(elsewhere).key == key
    assert of(places, seed=12).key != key


def test_another_reader_means_to_measure_again_not_to_train(places: Places) -> None:
    study, run = places.study, of(places)
    readers = tuple(
        replace(r, model=replace(r.model, steps=5)) if r.role == "unseen" else r for r in study.world.readers
    )
    other = of(with_study(places, replace(study, world=replace(study.world, readers=readers))))
    assert other.training_key == run.training_key
    assert other.key != run.key


def test_a_finished_training_is_measured_and_no_other(places: Places) -> None:
    run = of(places)
    run.prepare()
    run.folder.mkdir()
    assert not run.is_trained()
    model = run.folder / "global_step_2" / "actor" / "huggingface"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    write_state(run.folder, "finished")
    assert run.is_trained()
    names = [task.name for task in plan_of(places, jobs=2).tasks]
    assert "measure two, seed 11" in names
    assert "two, seed 11" not in names
    run.take_policy()
    run.take_policy()
    assert (run.policy / "config.json").exists()
    assert not (run.folder / "global_step_2").exists()
    slower = with_study(places, replace(places.study, settings=(*places.study.settings, f"{LR}=1e-5")))
    assert not of(slower).is_trained()
    of(slower).prepare()
    assert not run.folder.exists(), "what another training left would be taken for its own"


def test_the_command_is_one_that_can_be_typed(places: Places) -> None:
    world = places.world_folder
    command = of(places).command
    assert command[:3] == ("-m", "verl.trainer.classmate_cot_main_ppo", "--config-name=classmate_cot_ppo_trainer")
    assert "debug=true" in command
    assert (
        f"reward_model.classmate_model_name_or_path_list=[{world}/readers/classmate_a,{world}/readers/classmate_b]"
        in (command)
    )
    assert {f"actor_rollout_ref.model.path={world}/seed_11/policy", "data.seed=11"} <= set(command)
    assert not [one for one in of(places, "baseline").command if "classmate_model_name" in one]


def test_a_pair_differs_in_ray_alone_and_stays_apart(places: Places) -> None:
    here, ray = (replace(of(places), kind=kind) for kind in PAIR)
    folder = "trainer.default_local_dir="
    typed = [{one for one in run.command if not one.startswith(folder)} for run in (here, ray)]
    assert typed[0] - typed[1] == {"debug=true"}
    assert typed[1] - typed[0] == set()
    assert "trainer.deterministic=true" in typed[1]
    assert len({run.result for run in (of(places), here, ray)}) == 3
    assert not ray.result.is_relative_to(places.results_dir)
    assert {run.kind for run in plan_of(places, jobs=2, kinds=PAIR).runs} == set(PAIR)
