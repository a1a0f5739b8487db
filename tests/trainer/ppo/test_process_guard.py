"""The guards that remember: a scripted hack ends a run, junk is refused, other numbers of steps earn nothing."""

import asyncio
import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from tests.trainer.ppo.advantage.test_process import Row, inputs_of, row
from verl.classmate.errors import ConfigError
from verl.classmate.outcome import Outcome
from verl.classmate.process_config import ProcessRewardConfig
from verl.classmate.reply import Reply
from verl.stepwise.step import StepScore
from verl.trainer.ppo.process_guard import FILE, ProcessGuard


def trainer(folder: Path = Path(), step: int = 0, **options: Any) -> Any:
    process = ProcessRewardConfig(**{"model": "prm", **options})
    node = {"default_local_dir": str(folder), "resume_mode": "auto", "resume_from_path": None}
    config = OmegaConf.create({"trainer": node})
    return SimpleNamespace(reward_config=SimpleNamespace(process=process), global_steps=step, config=config)


def answers(right: int, reward: float, *, steps: int = 2) -> list[Row]:
    return [row("a", float(i < right), *[(1, reward)] * steps) for i in range(8)]


@pytest.mark.guards("a policy exploits its process rewards unseen")
def test_a_scripted_hack_ends_the_run() -> None:
    guard = ProcessGuard(trainer(stop_after=6))
    metrics: dict[str, Any] = {}
    for i in range(6):
        guard.admitted(inputs_of(answers(6 - i, 0.4 + 0.1 * i)), metrics)
        if i < 5:
            guard.after(metrics)
    told = "rose from 0.400 to 0.900 while the share of right answers fell from 0.750 to 0.125"
    with pytest.raises(RuntimeError, match=re.escape(told)):
        guard.after(metrics)
    assert metrics["reasoning/process_accuracy"] == pytest.approx(1 / 8)


def test_answers_cut_into_more_steps_earn_nothing_by_them() -> None:
    guard, metrics = ProcessGuard(trainer()), dict[str, Any]()
    guard.admitted(inputs_of(answers(4, 0.5)), metrics)
    later = guard.admitted(inputs_of([*answers(4, 0.5), *answers(4, 0.9, steps=4)]), metrics)
    assert later.process_valid_B is not None
    assert later.process_valid_B.tolist() == [True] * 8 + [False] * 8
    assert metrics["reasoning/process_capped"] == 0.5
    assert metrics["reasoning/process_failed"] == 0


def test_rows_that_could_not_be_scored_are_counted() -> None:
    guard, metrics = ProcessGuard(trainer()), dict[str, Any]()
    rows = [*answers(4, 0.5)[:6], row("a", 1.0, (2, 0.0), scored=False), row("a", 0.0, (2, 0.0), scored=False)]
    inputs = inputs_of(rows)
    assert torch.equal(guard.admitted(inputs, metrics).process_valid_B, inputs.process_valid_B)  # type: ignore[arg-type]
    assert metrics["reasoning/process_failed"] == 0.25
    assert guard.watch.process == (0.5,)


class Likes:
    def __init__(self, score: float | None) -> None:
        self.score = score

    async def score_steps(self, model: str, problem: str, steps: list[str]) -> Any:
        if self.score is None:
            return Reply(outcome=Outcome.engine_error, error="it died")
        return [StepScore(self.score, self.score) for _ in steps]


@pytest.mark.guards("junk text is rewarded by a process reward model")
def test_a_model_that_likes_junk_is_refused() -> None:
    guard = ProcessGuard(trainer())
    asyncio.run(guard.refuse_junk(Likes(0.19)))
    with pytest.raises(ConfigError, match=r"gives the answer 'thanks' 0\.21, more than 0\.2"):
        asyncio.run(guard.refuse_junk(Likes(0.21)))
    with pytest.raises(ConfigError, match=r"judges no step \(it died\)"):
        asyncio.run(guard.refuse_junk(Likes(None)))
    asyncio.run(ProcessGuard(trainer(max_junk_score=1.0)).refuse_junk(Likes(0.99)))


def test_a_checkpoint_keeps_what_is_remembered(tmp_path: Path) -> None:
    guard = ProcessGuard(trainer(tmp_path))
    guard.admitted(inputs_of(answers(4, 0.5)), {})
    guard._trainer.global_steps = 3
    guard.saved_before(lambda: None)()
    assert (tmp_path / "global_step_3" / FILE).is_file()
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("3")
    assert dataclasses.asdict(ProcessGuard(trainer(tmp_path, step=3)).watch) == dataclasses.asdict(guard.watch)
