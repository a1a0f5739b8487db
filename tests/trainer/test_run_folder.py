"""Which folder a start uses, what it refuses, and that a killed run leaves nothing that the next start trips over."""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import yaml

from verl.classmate.errors import ConfigError
from verl.trainer.run_folder import RunFolder, changed_keys, latest_step


@pytest.fixture(autouse=True)
def working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def config(folder: Path | None = None, **changes) -> dict:
    trainer = {
        "project_name": "project",
        "experiment_name": "experiment",
        "default_local_dir": None if folder is None else str(folder),
        "resume_mode": "auto",
        "total_training_steps": 10,
        "logger": [],
    }
    data = {"train_batch_size": 4, "seed": 1}
    for key, value in changes.items():
        (trainer if key in trainer else data)[key] = value
    return {"trainer": trainer, "data": data, "optim": {"lr": 1e-5, "betas": [0.9, 0.999]}}


def abandon(folder: RunFolder) -> None:
    """As if the process that wrote `folder` had been killed."""
    state = json.loads((folder.path / "run.json").read_text())
    state["pid"] = 2**22 + 1
    (folder.path / "run.json").write_text(json.dumps(state))


def save_checkpoint(folder: RunFolder, step: int) -> None:
    (folder.path / f"global_step_{step}").mkdir()
    (folder.path / "latest_checkpointed_iteration.txt").write_text(str(step))


def test_a_new_run_gets_a_folder_of_its_own():
    first, second = RunFolder.open(config()), RunFolder.open(config(seed=2))
    assert first.path != second.path
    assert first.path.parent == Path("outputs/project/experiment").resolve()
    assert first.resumed_from is None
    assert yaml.safe_load((first.path / "config.yaml").read_text()) == config()


def test_the_unfinished_run_with_the_same_config_is_resumed():
    folder = RunFolder.open(config())
    save_checkpoint(folder, 4)
    abandon(folder)
    again = RunFolder.open(config())
    assert (again.path, again.resumed_from) == (folder.path, 4)


def test_it_is_found_behind_newer_runs_with_other_configs():
    folder = RunFolder.open(config())
    save_checkpoint(folder, 4)
    abandon(folder)
    RunFolder.open(config(seed=2)).finish()
    assert RunFolder.open(config()).path == folder.path


def test_it_is_not_taken_up_again_once_the_same_config_has_finished():
    abandon(RunFolder.open(config()))
    RunFolder.open(config(resume_mode="disable")).finish()
    assert RunFolder.open(config()).resumed_from is None


def test_a_finished_run_is_followed_by_a_new_one():
    folder = RunFolder.open(config())
    folder.finish()
    assert RunFolder.open(config()).path != folder.path


def test_resume_mode_disable_starts_anew():
    folder = RunFolder.open(config())
    abandon(folder)
    assert RunFolder.open(config(resume_mode="disable")).path != folder.path


def test_an_unfinished_run_without_a_checkpoint_starts_again_in_its_folder():
    folder = RunFolder.open(config())
    folder.append_metrics(0, {"val": 0.1})
    folder.append_metrics(1, {"loss": 0.2})
    folder.dump_rows(1, [{"a": 1}])
    folder.dump_rows(0, [{"a": 1}], validation=True)
    abandon(folder)
    again = RunFolder.open(config())
    assert (again.path, again.resumed_from) == (folder.path, 0)
    assert list(again.read_metrics()) == []
    assert list(again.path.glob("*/step_*.jsonl")) == []


def test_a_named_folder_with_another_config_is_refused_with_the_keys(tmp_path):
    folder = RunFolder.open(config(tmp_path / "run"))
    abandon(folder)
    before = {file.name: file.read_bytes() for file in folder.path.iterdir() if file.is_file()}
    with pytest.raises(ConfigError, match=r"differs in data\.seed, data\.train_batch_size"):
        RunFolder.open(config(tmp_path / "run", seed=2, train_batch_size=8))
    assert {file.name: file.read_bytes() for file in folder.path.iterdir() if file.is_file()} == before


def test_where_a_run_logs_and_how_far_it_goes_may_change(tmp_path):
    folder = RunFolder.open(config(tmp_path / "run"))
    abandon(folder)
    assert RunFolder.open(config(tmp_path / "run", logger=["wandb"], total_training_steps=20)).resumed_from == 0


def test_a_named_folder_with_a_finished_run_is_refused_unless_it_goes_further(tmp_path):
    folder = RunFolder.open(config(tmp_path / "run"))
    save_checkpoint(folder, 10)
    folder.finish()
    with pytest.raises(ConfigError, match=r"holds a finished run.*total_training_steps"):
        RunFolder.open(config(tmp_path / "run"))
    assert RunFolder.open(config(tmp_path / "run", total_training_steps=20)).resumed_from == 10


def test_a_named_folder_is_not_overwritten_by_a_fresh_start(tmp_path):
    abandon(RunFolder.open(config(tmp_path / "run")))
    with pytest.raises(ConfigError, match="already holds a run"):
        RunFolder.open(config(tmp_path / "run", resume_mode="disable"))


@pytest.fixture
def other_process():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield psutil.Process(process.pid)
    process.kill()
    process.wait()


def owned_by(folder: RunFolder, process: psutil.Process, started: float) -> None:
    state = json.loads((folder.path / "run.json").read_text())
    state |= {"pid": process.pid, "process_started": started}
    (folder.path / "run.json").write_text(json.dumps(state))


def test_a_run_in_use_is_left_alone(tmp_path, other_process):
    named, unnamed = RunFolder.open(config(tmp_path / "run")), RunFolder.open(config())
    for folder in (named, unnamed):
        owned_by(folder, other_process, other_process.create_time())
    with pytest.raises(ConfigError, match=f"in use by process {other_process.pid}"):
        RunFolder.open(config(tmp_path / "run"))
    assert RunFolder.open(config()).path != unnamed.path


def test_another_process_with_the_same_id_does_not_block(tmp_path, other_process):
    folder = RunFolder.open(config(tmp_path / "run"))
    owned_by(folder, other_process, other_process.create_time() - 1000)
    assert RunFolder.open(config(tmp_path / "run")).resumed_from == 0


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        RunFolder.open(config(tmp_path / "file" / "run"))


def test_a_resumed_run_forgets_what_it_does_again(tmp_path):
    folder = RunFolder.open(config(tmp_path / "run"))
    for step in range(7):
        folder.append_metrics(step, {"loss": float(step)})
        folder.dump_rows(step, [{"step": step}])
    folder.dump_rows(0, [{"step": 0}], validation=True)
    folder.dump_rows(6, [{"step": 6}], validation=True)
    save_checkpoint(folder, 4)
    abandon(folder)
    again = RunFolder.open(config(tmp_path / "run"))
    assert [line["step"] for line in again.read_metrics()] == [0, 1, 2, 3, 4]
    assert sorted(path.name for path in again.path.glob("rollouts/*")) == [f"step_{step}.jsonl" for step in range(5)]
    assert [path.name for path in again.path.glob("val_preds/*")] == ["step_0.jsonl"]


def test_a_line_that_a_killed_run_left_incomplete_is_dropped(tmp_path):
    folder = RunFolder.open(config(tmp_path / "run"))
    folder.append_metrics(1, {"loss": 0.5})
    save_checkpoint(folder, 1)
    with folder.metrics_path.open("a") as f:
        f.write('{"step": 2, "lo')
    abandon(folder)
    again = RunFolder.open(config(tmp_path / "run"))
    again.append_metrics(2, {"loss": 0.25})
    assert list(again.read_metrics()) == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}]


def test_kill_while_writing_leaves_whole_files(tmp_path):
    """The process is killed at any moment of a loop that writes: what stands under the final names is whole."""
    script = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "from verl.trainer.run_folder import RunFolder\n"
        "folder = RunFolder.open(json.loads(sys.argv[1]))\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    folder.dump_rows(1, [{'text': 'x' * 100000} for _ in range(20)])\n"
        "    folder.append_metrics(1, {'loss': 0.5})\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, json.dumps(config(tmp_path / "run"))], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    while not (tmp_path / "run" / "rollouts" / "step_1.jsonl").exists():
        psutil.Process(process.pid).cpu_percent(interval=0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    rows = (tmp_path / "run" / "rollouts" / "step_1.jsonl").read_text().splitlines()
    assert [len(json.loads(row)["text"]) for row in rows] == [100000] * 20
    assert json.loads((tmp_path / "run" / "run.json").read_text())["pid"] == process.pid
    assert all(
        line == {"step": 1, "loss": 0.5} for line in RunFolder(path=tmp_path / "run", resumed_from=0).read_metrics()
    )
    assert RunFolder.open(config(tmp_path / "run")).resumed_from == 0


def test_a_checkpoint_counts_when_its_folder_and_its_number_are_there(tmp_path):
    assert latest_step(tmp_path) == 0
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("")
    assert latest_step(tmp_path) == 0
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("4")
    assert latest_step(tmp_path) == 0
    (tmp_path / "global_step_4").mkdir()
    assert latest_step(tmp_path) == 4


def test_metrics_are_json_also_where_a_number_is_none(tmp_path):
    folder = RunFolder.open(config(tmp_path / "run"))
    folder.append_metrics(1, {"a": math.nan, "b": math.inf, "c": 1})
    assert list(folder.read_metrics()) == [{"step": 1, "a": None, "b": None, "c": 1}]


def test_changed_keys_are_dotted_and_see_added_and_removed_ones():
    old = {"a": {"b": 1, "c": [1, 2]}, "trainer": {"logger": []}}
    new = {"a": {"b": 2, "c": [1, 2], "d": 3}, "trainer": {"logger": ["wandb"]}}
    assert changed_keys(old, new) == ["a.b", "a.d"]
