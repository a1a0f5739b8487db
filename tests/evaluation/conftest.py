"""A run to replay, and the command that replays it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.evaluation.dumped_runs import Replayed, Run, made
from verl.evaluation import replay


@pytest.fixture(scope="module")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """For tests that only look at it."""
    return made(tmp_path_factory.mktemp("one") / "run")


@pytest.fixture
def replayed(capsys: pytest.CaptureFixture[str]) -> Callable[..., Replayed]:
    """The command with `--json`: exit code and object."""

    def run(folder: Path, *arguments: str) -> Replayed:
        code = replay.main([str(folder), "--step", "1", "--json", *arguments])
        return code, json.loads(capsys.readouterr().out)

    return run
