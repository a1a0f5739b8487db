"""The frozen copy of the policy is the one of the start, or the run ends."""

import os
from pathlib import Path

import pytest

from verl.classmate.errors import ClassmateEngineError
from verl.trainer.frozen_weights import FrozenWeights


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "policy"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    for part in (1, 2):
        (folder / f"model-{part}.safetensors").write_bytes(bytes([part]) * 1000)
    return folder


def test_weights_that_change_end_the_run_in_one_line(model: Path, tmp_path: Path) -> None:
    guard = FrozenWeights(str(model), record=tmp_path / "record.json")
    guard.check()
    os.utime(model / "model-1.safetensors")
    (model / "config.json").write_text('{"a": 1}')
    guard.check()
    (model / "model-2.safetensors").write_bytes(b"\3" * 1000)
    with pytest.raises(ClassmateEngineError, match=r"policy have changed .*\(model-2\.safetensors\)") as error:
        guard.check()
    assert "\n" not in str(error.value)


def test_a_resumed_run_compares_with_its_first_start(model: Path, tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    FrozenWeights(str(model), record=record)
    FrozenWeights(str(model), record=record)
    (model / "model-1.safetensors").unlink()
    with pytest.raises(ClassmateEngineError, match=r"model-1\.safetensors"):
        FrozenWeights(str(model), record=record)


def test_files_that_stay_are_not_read_again(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = FrozenWeights(str(model), record=tmp_path / "record.json")

    def read(*_: object) -> None:
        raise AssertionError("a file was read again")

    monkeypatch.setattr("hashlib.file_digest", read)
    guard.check()


def test_a_model_that_lies_elsewhere_is_not_checked(tmp_path: Path) -> None:
    guard = FrozenWeights("nobody/no-such-model", record=tmp_path / "record.json")
    assert not guard.known
    guard.check()
