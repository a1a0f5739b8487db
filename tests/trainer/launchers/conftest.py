"""What tests of launchers share: a folder of their own, no GPU and no world of the user's."""

from pathlib import Path

import pytest


@pytest.fixture
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder; the environment says nothing of GPUs, worlds or tables."""
    for variable in ("CUDA_VISIBLE_DEVICES", "TEACHING_WORLD", "CLASSMATE_COT_AT_END"):
        monkeypatch.delenv(variable, raising=False)
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder
