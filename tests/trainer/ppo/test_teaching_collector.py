"""What a training run keeps for students: each step once, wherever it was killed, and no held-out question."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from omegaconf import DictConfig, OmegaConf

from tests.workers.scripted_students import QUESTION, scripted_pipeline, taught, teaching_config
from verl.classmate.config import RunConfig, this_run
from verl.classmate.record import RowRecord
from verl.teaching.shards import read_shards
from verl.trainer.ppo.start_up import OpenRun
from verl.trainer.ppo.teaching_collector import TeachingCollector
from verl.trainer.run.console import Console
from verl.trainer.run.folder import RunFolder

TAUGHT = "<thinking>x</thinking><teaching>Mind the carry.</teaching>"
HARMS = "<teaching>guess</teaching>"


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[RowRecord]]:
    folder = tmp_path_factory.mktemp("run")
    pipeline, engines = scripted_pipeline(folder, "rcl.reward.leak.mode=report")
    rows = taught(pipeline, TAUGHT, HARMS, "no tag at all", "<teaching></teaching>")
    engines.failing.add("classmate/0")
    made = [RowRecord.of(row) for row in rows]
    (failed,) = map(RowRecord.of, taught(pipeline, "<teaching>Try again.</teaching>"))
    return folder, [*made, replace(failed, answer=replace(failed.answer, rollout=len(made)))]


def open_collector(
    run: Path, parts: Path, *overrides: str, question: str = "Another one?"
) -> tuple[TeachingCollector | None, io.StringIO]:
    """As a start makes it."""
    held_out = parts / f"val_{len(overrides)}_{hash(question)}.parquet"
    pd.DataFrame([{"prompt": [{"role": "user", "content": question}]}]).to_parquet(held_out)
    config: DictConfig = teaching_config(parts, "rcl.collect.enable=true", f"data.val_files={held_out}", *overrides)
    plain: Any = OmegaConf.to_container(config, resolve=True)
    read: RunConfig = this_run(config)
    said = io.StringIO()
    opened = OpenRun(config=read, folder=RunFolder(path=run, resumed_from=None), console=Console(said, "plain"))
    run.mkdir(exist_ok=True)
    assert plain["rcl"]["collect"]["enable"] is not None
    return TeachingCollector.of_run(config, opened), said


def test_all_rows_are_kept_with_flags(records: tuple[Path, list[RowRecord]], tmp_path: Path) -> None:
    parts, rows = records
    collector, _ = open_collector(tmp_path / "run", parts)
    assert collector is not None
    collector.keep(1, rows)
    found = read_shards([tmp_path / "run"]).rows
    told = {one.teaching or one.state: (one.state, one.b, one.w, one.outcome) for one in found}
    assert told == {
        "Mind the carry.": ("ok", 0.0, 1.0, "ok"),
        "guess": ("ok", 0.0, 0.0, "ok"),
        "missing": ("missing", 0.0, 0.0, "ok"),
        "empty": ("empty", 0.0, 0.0, "ok"),
        "Try again.": ("ok", 0.0, None, "engine_error"),
    }
    one = next(row for row in found if row.teaching == "Mind the carry.")
    assert one.reward is not None
    assert one.reward > 1
    assert one.teacher.endswith("@0"), "the weights before the first update wrote step 1"
    assert [item.text for item in one.baseline] == ["<solution>3</solution>"] * 4, "what contrastive sets need"
    assert one.probe == "I take the ones."


def test_a_step_that_is_trained_again_is_there_once(records: tuple[Path, list[RowRecord]], tmp_path: Path) -> None:
    parts, rows = records
    run = tmp_path / "run"
    collector, _ = open_collector(run, parts)
    assert collector is not None
    for step in (1, 2, 3):
        collector.keep(step, [replace(row, answer=replace(row.answer, step=step)) for row in rows])
    # A kill -9 in the middle of a write leaves a partial file, and the last checkpoint is of step 1.
    (run / "teachings" / "step_4.jsonl.partial").write_text('{"schema": 1, "ru')
    RunFolder(path=run, resumed_from=1).forget_after(1)
    assert {one.step for one in read_shards([run]).rows} == {1}
    again, _ = open_collector(run, parts)
    assert again is not None
    again.keep(1, [])
    again.keep(2, [replace(row, answer=replace(row.answer, step=2)) for row in rows[:2]])
    found = read_shards([run])
    assert sorted(one.step for one in found.rows) == [1] * 5 + [2] * 2
    assert found.counts == {"repeated": 0, "cut": 0}
    assert len({one.run for one in found.rows}) == 1, "a resumed run is the same one"


def test_held_out_questions_are_never_kept(records: tuple[Path, list[RowRecord]], tmp_path: Path) -> None:
    parts, rows = records
    collector, said = open_collector(tmp_path / "run", parts, question=f" {QUESTION.upper()}\n")
    assert collector is not None
    collector.keep(1, rows)
    collector.keep(2, rows)
    assert "5 of 5 rows of step 1 are of held-out questions" in said.getvalue()
    assert said.getvalue().count("held-out") == 1
    assert (tmp_path / "run" / "teachings" / "step_2.jsonl").read_text() == ""


def test_a_run_that_collects_nothing_has_no_folder(records: tuple[Path, list[RowRecord]], tmp_path: Path) -> None:
    collector, _ = open_collector(tmp_path / "run", records[0], "rcl.collect.enable=false")
    assert collector is None
    assert not (tmp_path / "run" / "teachings").exists()
