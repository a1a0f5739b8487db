"""How a start ends: the plugin must have loaded, a failed run names its log, and an interrupted one can be resumed."""

import os

import pytest

from verl.trainer import launch
from verl.trainer.launch import STARTED_AT, StartupClock


def test_start_up_is_told_by_part(monkeypatch):
    now = 1000.0
    monkeypatch.setenv(STARTED_AT, "990.0")
    monkeypatch.setattr(launch.time, "time", lambda: now)
    clock = StartupClock()
    clock.lap("script and imports")
    now = 1003.0
    clock.lap("Ray")
    assert clock.line() == "start-up 13.0 s: script and imports 10.0, Ray 3.0"


def test_without_a_launch_script_the_clock_starts_with_the_process(monkeypatch):
    monkeypatch.delenv(STARTED_AT, raising=False)
    clock = StartupClock()
    clock.lap("everything so far")
    assert clock.parts["everything so far"] > 0


def ends_with(capsys) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        launch.entry("classmate_cot_ppo_trainer", trainer_name="classmate_cot")
    return ended.value.code, capsys.readouterr().err


@pytest.fixture(autouse=True)
def command_line(monkeypatch):
    monkeypatch.setattr(launch.sys, "argv", ["launch"])
    monkeypatch.setattr(launch.signal, "signal", lambda *_: None)
    monkeypatch.setattr(launch, "compose", lambda *_: {})
    monkeypatch.setitem(os.environ, "HYDRA_FULL_ERROR", "1")


def test_a_plugin_that_did_not_load_is_told(monkeypatch, capsys):
    def not_loaded() -> None:
        raise RuntimeError("verl did not load the plugin")

    monkeypatch.setattr(launch, "require_registered", not_loaded)
    assert ends_with(capsys) == (2, "error: verl did not load the plugin\n")


def test_ctrl_c_says_how_to_go_on(monkeypatch, capsys):
    def interrupted(*_) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "run", interrupted)
    code, said = ends_with(capsys)
    assert code == 130
    assert "resumes the run at its last checkpoint" in said
    assert said.count("\n") == 1
