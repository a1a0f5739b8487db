"""launch.sh and launch_with_server.sh as a user starts them, at the root and in scripts/, from any folder."""

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.my_scripts.launching import ROOT, environment

SCRIPTS = ["launch.sh", "launch_with_server.sh"]


def started(script: Path, *words: str, cwd: Path, **variables: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(script), *words],
        cwd=cwd,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("name", SCRIPTS)
def test_at_the_root_and_in_scripts_they_are_the_same(name: str, tmp_path: Path) -> None:
    shown = [started(folder / name, "-h", cwd=tmp_path) for folder in (ROOT, ROOT / "scripts")]
    assert [one.returncode for one in shown] == [0, 0]
    assert shown[0].stdout == shown[1].stdout
    assert shown[0].stdout.startswith(f"usage: ./{name} N_")
    assert list(tmp_path.iterdir()) == []


def test_the_server_script_has_two_numbers(tmp_path: Path) -> None:
    done = started(ROOT / "launch_with_server.sh", "8", "teacher_rcl", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: write N_VLLM N_TRAIN RUN_FILE")
    assert "usage: ./launch_with_server.sh" in done.stderr


def test_what_is_shown_is_one_command_that_a_shell_can_run(tmp_path: Path) -> None:
    world = tmp_path / "it's a world"
    words = ("0", "0", "configs/run/teacher_rcl.yaml", "--dry-run")
    done = started(ROOT / "launch_with_server.sh", *words, cwd=tmp_path, TEACHING_WORLD=world)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == [], "a dry run makes nothing"
    (line,) = done.stdout.splitlines()
    pasted = subprocess.run(
        ["bash", "-c", f"{line} --cfg job"],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert pasted.returncode == 0, pasted.stderr
    assert yaml.safe_load(pasted.stdout)["data"]["train_files"] == f"{world}/train.parquet"
