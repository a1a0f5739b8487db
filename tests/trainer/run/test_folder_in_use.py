"""Of several starts one has a run folder, and none is kept from one whose process has ended."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.trainer.run.folders import config, run_until
from verl.classmate.errors import ConfigError
from verl.trainer.run import lock as run_lock
from verl.trainer.run.folder import RunFolder
from verl.trainer.run.state import QUIET_MIN


@pytest.fixture(autouse=True)
def working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


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


_OPEN = """
import json, os, subprocess, sys, time
from verl.classmate.errors import ConfigError
from verl.trainer.run.folder import RunFolder
print("ready", flush=True)
sys.stdin.readline()
try:
    folder = RunFolder.open(json.loads(sys.argv[1]))
except ConfigError as error:
    print("refused:", error, flush=True)
else:
    if "children" in sys.argv:
        program = subprocess.Popen(["sleep", "60"]).pid
        fork = os.fork() or time.sleep(60)
        print(program, fork, flush=True)
    print("opened:", folder.path, flush=True)
    sys.stdin.readline()
"""


def starts(count: int, *arguments: object) -> list[subprocess.Popen]:
    """Processes that open a run folder at the same moment."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _OPEN, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path.cwd(),
        )
        for _ in range(count)
    ]
    for process in processes:
        assert read(process) == "ready"
    for process in processes:
        say(process)
    return processes


def read(process: subprocess.Popen) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def say(process: subprocess.Popen) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.parametrize("killed_before", [True, False])
def test_of_two_starts_at_once_one_gets_the_named_folder(tmp_path, killed_before):
    if killed_before:
        run_until(tmp_path / "run", 4, 2)
    processes = starts(3, json.dumps(config(tmp_path / "run")))
    opened, *refused = sorted(read(process) for process in processes)
    for process in processes:
        process.kill()
    assert opened == f"opened: {tmp_path / 'run'}"
    assert all(f"refused: trainer.default_local_dir={tmp_path / 'run'} is in use by " in line for line in refused)


def test_of_two_starts_at_once_one_resumes_the_unfinished_run(tmp_path):
    folder = run_until(None, 4, 2)
    processes = starts(2, json.dumps(config()))
    opened = {read(process).removeprefix("opened: ") for process in processes}
    for process in processes:
        process.kill()
    assert len(opened) == 2
    assert str(folder.path) in opened


def test_a_killed_run_is_free_at_once_whatever_it_has_started(tmp_path):
    (run,) = starts(1, json.dumps(config(tmp_path / "run")), "children")
    children = [psutil.Process(int(pid)) for pid in read(run).split()]
    try:
        assert read(run).startswith("opened")
        run.kill()
        run.wait()
        assert all(child.is_running() for child in children)
        assert RunFolder.open(config(tmp_path / "run")).resumed_from == 0
    finally:
        for child in children:
            child.kill()


def test_who_leaves_a_run_leaves_it_to_others(tmp_path):
    folder = RunFolder.open(config(tmp_path / "run"))
    folder.leave()
    (other,) = starts(1, json.dumps(config(tmp_path / "run")))
    try:
        assert read(other).startswith("opened")
        with pytest.raises(ConfigError, match=f"in use by process {other.pid}; wait for it or name another folder"):
            RunFolder.open(config(tmp_path / "run"))
    finally:
        other.kill()
        other.wait()


def of_another_host(folder: RunFolder, *, quiet_min: float, state: str = "running") -> None:
    run_lock.release(folder.path)
    written = json.loads((folder.path / "run.json").read_text()) | {"host": "elsewhere", "state": state}
    (folder.path / "run.json").write_text(json.dumps(written))
    then = time.time() - 60 * quiet_min
    os.utime(folder.path / "run.json", (then, then))


@pytest.mark.parametrize("named", [True, False])
def test_a_run_of_another_host_is_in_use_until_it_has_been_quiet(tmp_path, named):
    path = tmp_path / "run" if named else None
    folder = RunFolder.open(config(path))
    of_another_host(folder, quiet_min=QUIET_MIN - 1)
    with pytest.raises(ConfigError, match=f"a run on elsewhere, which wrote there .* start again {QUIET_MIN} min"):
        RunFolder.open(config(path))
    of_another_host(folder, quiet_min=QUIET_MIN + 1)
    again = RunFolder.open(config(path))
    assert (again.path, again.resumed_from) == (folder.path, 0)
    again.write_metrics(1, {"loss": 0.5})
    of_another_host(again, quiet_min=QUIET_MIN + 1)
    with pytest.raises(ConfigError, match="elsewhere"):
        RunFolder.open(config(path))
    again.leave()
    of_another_host(again, quiet_min=0, state="stopped")
    assert RunFolder.open(config(path)).path == folder.path


def test_another_process_with_the_same_id_does_not_block(tmp_path, other_process):
    folder = RunFolder.open(config(tmp_path / "run"))
    owned_by(folder, other_process, other_process.create_time() - 1000)
    assert RunFolder.open(config(tmp_path / "run")).resumed_from == 0
