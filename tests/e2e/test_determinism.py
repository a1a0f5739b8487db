"""`trainer.deterministic=true`: the same numbers in every run, also after `kill -9` and a new start."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.e2e.world import MAIN, World, finished, graded_reward, metrics, rows, settings, start

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(torch.cuda.is_available(), reason="deterministic runs are refused on a GPU"),
]
STEPS, SAVE_FREQ = 4, 2
_TIMES = ("timing_s/", "timing_per_token_ms/", "perf/", "actor/perf/")
"""Prefixes of metrics that tell how fast and how large, not what."""


def _numbers(folder: Path, step: int) -> dict[str, Any]:
    (line,) = [line for line in metrics(folder) if line["step"] == step]
    return {key: value for key, value in line.items() if not key.startswith(_TIMES)}


def test_same_numbers_in_every_run_and_after_kill_and_resume(world: World, tmp_path: Path) -> None:
    def arguments(folder: Path) -> list[str]:
        return settings(
            world,
            folder,
            "trainer.deterministic=true",
            f"trainer.total_training_steps={STEPS}",
            f"trainer.save_freq={SAVE_FREQ}",
            graded_reward(tmp_path),
        )

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    finished([*MAIN, *arguments(whole)], log=tmp_path / "whole.txt")

    with start([*MAIN, *arguments(broken)], log=tmp_path / "broken.txt") as run:
        run.wait_for((broken / "rollouts" / f"step_{SAVE_FREQ + 1}.jsonl").exists)
        run.kill()
    assert (broken / "latest_checkpointed_iteration.txt").read_text() == str(SAVE_FREQ)
    for step in range(1, SAVE_FREQ + 1):
        _assert_same(whole, broken, step)
    assert not (broken / f"global_step_{STEPS}").exists()

    terminal = finished([*MAIN, *arguments(broken)], log=tmp_path / "resumed.txt")
    assert f"(resumes at step {SAVE_FREQ})" in terminal
    assert f"step {SAVE_FREQ + 1}/{STEPS}" in terminal
    assert f"step {SAVE_FREQ}/{STEPS}" not in terminal
    assert [line["step"] for line in metrics(broken)] == [line["step"] for line in metrics(whole)]
    for step in range(1, STEPS + 1):
        _assert_same(whole, broken, step)
    assert _numbers(whole, 0) == _numbers(broken, 0)
    for step in (0, STEPS):
        assert rows(whole, step, validation=True) == rows(broken, step, validation=True)


def _assert_same(first: Path, second: Path, step: int) -> None:
    """Byte for byte, and to the last digit."""
    dump = Path("rollouts") / f"step_{step}.jsonl"
    assert (first / dump).read_bytes() == (second / dump).read_bytes()
    assert _numbers(first, step) == _numbers(second, step)


def test_resume_without_it_is_the_same_but_for_rounding(world: World, tmp_path: Path) -> None:
    def arguments(folder: Path) -> list[str]:
        return settings(
            world,
            folder,
            f"trainer.total_training_steps={SAVE_FREQ + 1}",
            f"trainer.save_freq={SAVE_FREQ}",
            graded_reward(tmp_path),
        )

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    finished([*MAIN, *arguments(whole)], log=tmp_path / "whole.txt")
    # What a kill in the step after the checkpoint leaves: its numbers are written, its weights are not.
    shutil.copytree(whole, broken, ignore=shutil.ignore_patterns(f"global_step_{SAVE_FREQ + 1}"))
    (broken / "latest_checkpointed_iteration.txt").write_text(str(SAVE_FREQ))
    (broken / "rollouts" / f"step_{SAVE_FREQ + 1}.jsonl").unlink()

    terminal = finished([*MAIN, *arguments(broken)], log=tmp_path / "resumed.txt")
    assert f"(resumes at step {SAVE_FREQ})" in terminal
    assert [line["step"] for line in metrics(broken)] == [line["step"] for line in metrics(whole)]
    expected, resumed = rows(whole, SAVE_FREQ + 1), rows(broken, SAVE_FREQ + 1)
    assert [row["question"] for row in resumed] == [row["question"] for row in expected], "the same prompts"
    same = [row["response"] == other["response"] for row, other in zip(resumed, expected, strict=True)]
    assert sum(same) >= 0.9 * len(same), "rounding decides a sampled token in a few rows at most"
    for key in ("critic/score/mean", "actor/entropy", "response_length/mean", "actor/grad_norm"):
        assert _numbers(broken, SAVE_FREQ + 1)[key] == pytest.approx(_numbers(whole, SAVE_FREQ + 1)[key], rel=0.1), key
