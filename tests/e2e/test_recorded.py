"""Two records of one code are the same; a number, a row or a weight that is not is named."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from tests.e2e import recorded
from tests.e2e.world import World

CASE = "main@debug"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(torch.cuda.is_available(), reason="deterministic runs are refused on a GPU"),
]


def change_first_line(path: Path, key: str) -> None:
    first, *others = path.read_text().splitlines(keepends=True)
    path.write_text("".join([json.dumps(json.loads(first) | {key: -1.5}) + "\n", *others]))


def test_what_differs_between_two_records_is_named(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    recorded.record(before, world, only=CASE)
    recorded.record(after, world, only=CASE)
    assert recorded.compare(before, after) == 0
    shutil.copytree(before / CASE, before / "other@debug")
    assert recorded.compare(before, after) == 1
    assert "missing  other@debug" in capsys.readouterr().out

    change_first_line(after / CASE / "metrics.jsonl", "actor/grad_norm")
    change_first_line(after / CASE / "rollouts" / "step_1.jsonl", "final_reward")
    (weights,) = (after / CASE).glob("global_step_*/actor/huggingface/*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    shutil.rmtree(before / "other@debug")
    assert recorded.compare(before, after) == 1
    told = capsys.readouterr().out
    for where in (
        "step_1.jsonl row 0 final_reward",
        "metrics.jsonl line 0 actor/grad_norm",
        "safetensors: other content",
    ):
        assert where in told
    # Nothing is run again that is there.
    recorded.record(before, world, only=CASE)
    assert capsys.readouterr().out == ""
