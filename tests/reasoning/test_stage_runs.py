"""A stage runs once, goes on after a kill, runs again when its inputs changed, and leaves models without copies."""

import json
import os
from pathlib import Path

import pytest

from verl.reasoning.manifest import NAME, STARTED
from verl.reasoning.stage_runs import Made, StageRuns, place_model


class Stage:
    """Work that counts its calls, and can be killed after its checkpoint."""

    def __init__(self) -> None:
        self.calls = 0
        self.killed = False
        self.found: list[bool] = []

    def __call__(self, folder: Path) -> Made:
        self.calls += 1
        self.found.append((folder / "checkpoint").exists())
        (folder / "checkpoint").write_text("half")
        if self.killed:
            raise KeyboardInterrupt
        (folder / "out").mkdir(exist_ok=True)
        (folder / "out" / "result.txt").write_text("whole")
        return Made(files=("out",), counts={"problems": 2})


def test_a_finished_stage_is_skipped(tmp_path: Path) -> None:
    stage, said = Stage(), list[str]()
    for _ in range(2):
        runs = StageRuns(tmp_path, on_event=said.append)
        folder = runs.run("rl", stage, config={"a": 1})
    assert stage.calls == 1
    assert (folder / "out" / "result.txt").read_text() == "whole"
    assert runs.seconds == {"rl": 0.0}
    assert said == ["rl: begins (it has not run)", "rl: done before, nothing has changed"]


def test_a_killed_stage_goes_on_from_what_it_left(tmp_path: Path) -> None:
    stage, said = Stage(), list[str]()
    stage.killed = True
    with pytest.raises(KeyboardInterrupt):
        StageRuns(tmp_path, on_event=said.append).run("rl", stage, config=1)
    stage.killed = False
    StageRuns(tmp_path, on_event=said.append).run("rl", stage, config=1)
    assert stage.found == [False, True]
    assert said[-1] == "rl: goes on (it was not finished)"


def test_what_a_stage_cost_is_kept_over_kills_and_reruns(tmp_path: Path) -> None:
    stage = Stage()
    stage.killed = True
    with pytest.raises(KeyboardInterrupt):
        StageRuns(tmp_path, on_event=print).run("rl", stage, config=1)
    # The attempt began a minute before its last file was written.
    started = tmp_path / "rl" / STARTED
    told = json.loads(started.read_text())
    started.write_text(json.dumps({**told, "since": (tmp_path / "rl" / "checkpoint").stat().st_mtime - 60}))
    os.utime(started, (told["since"] - 60,) * 2)
    stage.killed = False
    runs = StageRuns(tmp_path, on_event=print)
    runs.run("rl", stage, config=1)
    assert runs.seconds["rl"] < 30
    assert runs.costs["rl"].seconds == pytest.approx(60 + runs.seconds["rl"], abs=1)
    again = StageRuns(tmp_path, on_event=print)
    again.run("rl", stage, config=1)
    assert again.seconds["rl"] == 0
    assert again.costs["rl"] == runs.costs["rl"]
    assert again.costs["rl"].counts == {"problems": 2}


def test_a_stage_made_by_an_older_version_has_no_known_cost(tmp_path: Path) -> None:
    folder = StageRuns(tmp_path, on_event=print).run("rl", Stage(), config=1)
    told = json.loads((folder / NAME).read_text())
    (folder / NAME).write_text(json.dumps({key: value for key, value in told.items() if key != "seconds"}))
    runs = StageRuns(tmp_path, on_event=print)
    runs.run("rl", Stage(), config=1)
    assert runs.costs["rl"].seconds is None


def test_a_stage_with_another_config_begins_anew(tmp_path: Path) -> None:
    stage, said = Stage(), list[str]()
    runs = StageRuns(tmp_path, on_event=said.append)
    runs.run("rl", stage, config={"a": 1})
    runs.run("rl", stage, config={"a": 2})
    assert stage.found == [False, False]
    assert said[-1] == "rl: begins (its config changed)"
    # What was made before is kept.
    assert (tmp_path / "rl.old-1" / "out" / "result.txt").is_file()


def test_a_stage_follows_its_parents_outputs(tmp_path: Path) -> None:
    parent, child = tmp_path / "traces.jsonl", Stage()
    runs = StageRuns(tmp_path / "runs", on_event=lambda line: None)
    for text in ("one", "one", "two"):
        parent.write_text(text)
        runs.run("cot", child, config=None, parents={"traces": parent})
    assert child.calls == 2


def test_a_checkpoint_is_no_output_of_a_stage(tmp_path: Path) -> None:
    stage = Stage()
    runs = StageRuns(tmp_path, on_event=lambda line: None)
    folder = runs.run("rl", stage, config=1)
    (folder / "checkpoint").unlink()
    runs.run("rl", stage, config=1)
    assert stage.calls == 1
    (folder / "out" / "result.txt").write_text("changed")
    runs.run("rl", stage, config=1)
    assert stage.calls == 2


def test_without_resume_a_stage_is_made_again(tmp_path: Path) -> None:
    stage = Stage()
    for _ in range(2):
        StageRuns(tmp_path, resume=False, on_event=lambda line: None).run("rl", stage, config=1)
    assert stage.found == [False, False]


def test_a_parent_that_was_not_made_is_named(tmp_path: Path) -> None:
    runs = StageRuns(tmp_path, on_event=lambda line: None)
    with pytest.raises(FileNotFoundError, match="traces"):
        runs.run("cot", Stage(), config=1, parents={"traces": tmp_path / "absent"})
    assert not (tmp_path / "cot" / NAME).exists()


def test_a_placed_model_is_linked_and_nothing_but_a_model(tmp_path: Path) -> None:
    source, stage = tmp_path / "source", tmp_path / "stage"
    for name in ("config.json", "model.safetensors", "started.json", "x.partial", "run/log", "checkpoints/1/w"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    target = place_model(source, stage)
    assert target == stage / "model"
    files = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    assert files == {"config.json", "model.safetensors"}
    assert (target / "model.safetensors").samefile(source / "model.safetensors")
    # Again, from another model: nothing of the first stays; and from itself: nothing is lost.
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text("other")
    place_model(other, stage)
    assert place_model(target, stage) == target
    assert [path.name for path in target.iterdir()] == ["config.json"]
    assert (source / "model.safetensors").read_text() == "model.safetensors"
