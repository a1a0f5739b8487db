"""A row's steps on their way to the process reward model, and its answer back as tensors and as a line of the dump."""

import asyncio
import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from tests.e2e.tiny import make_tiny_world
from verl.classmate import cot
from verl.classmate.outcome import Outcome
from verl.classmate.record import RowRecord
from verl.classmate.reply import Reply
from verl.classmate.reward_config import ClassmateCotRewardConfig
from verl.classmate.reward_scale import RewardScale
from verl.classmate.row import Answer, ReadRow, StepRewards, Task, Verdict
from verl.classmate.scoring import RewardRules, score_row
from verl.reasoning.prm.config import PRMConfig
from verl.stepwise.step import StepScore
from verl.trainer.ppo.advantage.rows import with_advantage
from verl.workers.prm.head_scorer import HeadScorer
from verl.workers.prm.model import ProcessRewardModel
from verl.workers.rollout.hf_rollout_server.engine import EngineConfig
from verl.workers.rows.step_rewards import StepRewarder, steps_of
from verl.workers.rows.tensors import advantage_fields
from verl.workers.step_worker import StepScoringWorker

TEXT = "first we add 1 + 2 = 3.\nthen we add 3 + 4 = 7.\nso the answer is 7."


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_world(tmp_path_factory.mktemp("tiny"), context=256).model


@pytest.fixture(scope="module")
def tokenizer(policy: Path) -> Any:
    return AutoTokenizer.from_pretrained(policy)


def read(tokenizer: Any, text: str = TEXT, turns: tuple[tuple[int, int], ...] = ()) -> ReadRow:
    ids = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
    first = turns[-1][0] if turns else 0
    told = {"index": 0, "problem": "1 + 2 + 4 = ?"}
    task = Task(question="asked", data_source="tiny", reward_model={"ground_truth": "7"}, extra_info=told)
    answer = Answer(
        messages=(), prompt_ids=(), response_ids=[2] * first + ids, task=task, uid="u", step=1, rollout=0,
        validate=False, turns=turns,
    )  # fmt: skip
    return ReadRow.unshown(answer, cot.locate(ids, tokenizer, None, preopened=False))


class Judge:
    """Says what it was told to, and keeps what it was asked."""

    def __init__(self, said: Any) -> None:
        self.said, self.asked = said, list[tuple[str, list[str]]]()

    async def score_steps(self, model: str, problem: str, steps: list[str]) -> Any:
        self.asked.append((problem, steps))
        return self.said


def test_steps_are_the_splitters_and_end_where_they_end(tokenizer: Any) -> None:
    row = read(tokenizer)
    found = steps_of(row, tokenizer)
    assert [text for text, _ in found] == TEXT.splitlines(keepends=True)
    # A character is a token here, and the last step has the end of the sequence too.
    assert [end for _, end in found] == [23, 46, len(TEXT)]
    later = steps_of(read(tokenizer, turns=((0, 3), (5, 5 + len(TEXT) + 1))), tokenizer)
    assert [end for _, end in later] == [28, 51, len(TEXT) + 5]


def scored(tokenizer: Any, said: Any) -> tuple[StepRewards, dict[str, torch.Tensor], RowRecord]:
    row, judge = read(tokenizer), Judge(said)
    steps = asyncio.run(StepRewarder(judge, tokenizer).ask(row))
    assert judge.asked == [("1 + 2 + 4 = ?", TEXT.splitlines(keepends=True))]
    rules = RewardRules(
        config=ClassmateCotRewardConfig(), scale=RewardScale(), classmate_scale=RewardScale(), weights=(),
        format_weight=0.0,
    )  # fmt: skip
    whole = dataclasses.replace(score_row(row, Verdict(score=1.0), [], rules), steps=steps)
    return steps, advantage_fields(whole), RowRecord.of(whole)


def test_they_become_tensors_and_a_line(tokenizer: Any) -> None:
    steps, fields, record = scored(tokenizer, [StepScore(0.9, 0.9), StepScore(0.2, 0.2), StepScore(0.8, 0.8)])
    assert steps.ends == (23, 46, len(TEXT))
    assert torch.nonzero(fields["step_ends"]).flatten().tolist() == list(steps.ends)
    assert fields["process_rewards"][list(steps.ends)].tolist() == pytest.approx([0.9, 0.2, 0.8])
    assert fields["process_valid"]
    advantages = torch.cat([torch.full((24,), 2.0), torch.full((23,), 1.0), torch.full((len(TEXT) - 46,), -1.0)])
    trained = with_advantage(record, advantages, torch.zeros(len(advantages)))
    back = RowRecord.from_json(trained.to_json())
    assert back.steps == dataclasses.replace(steps, advantages=(2.0, 1.0, -1.0))


@pytest.mark.guards("a failed process reward counts as 0")
@pytest.mark.parametrize(
    "said",
    [
        Reply(outcome=Outcome.timeout, error="no answer within 1 s"),
        [StepScore(0.9, 0.9), StepScore(0.2, 0.2), None],
        [StepScore(0.9, 0.9), StepScore(math.nan, math.nan), StepScore(0.8, 0.8)],
    ],
)
def test_what_cannot_be_judged_whole_has_no_rewards(tokenizer: Any, said: Any) -> None:
    steps, fields, record = scored(tokenizer, said)
    assert steps.outcome is not Outcome.ok
    assert steps.error
    assert not fields["process_valid"]
    assert not fields["step_ends"].any()
    assert RowRecord.from_json(record.to_json()).steps == steps


@pytest.mark.parametrize("implicit", [False, True])
def test_the_engine_scores_as_the_pipeline_does(policy: Path, tmp_path: Path, implicit: bool) -> None:
    config = PRMConfig(base_model_name=str(policy), max_length=200, template="plain", implicit=implicit)
    model, tokenizer = ProcessRewardModel.from_base(config)
    if implicit:
        with torch.no_grad():
            for parameter in model.backbone.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
    folder = model.save(tmp_path / "prm", tokenizer)
    worker = StepScoringWorker(EngineConfig(model_path=str(folder)))
    solutions = [TEXT.splitlines(), TEXT.splitlines()[:1]]

    async def ask() -> list[list[StepScore | None]]:
        return list(await asyncio.gather(*(worker.score_steps("1 + 2?", steps) for steps in solutions)))

    found = asyncio.run(ask())
    assert worker.batches == 1
    expected = HeadScorer.load(folder).score_steps(["1 + 2?"] * 2, solutions)
    for judged, scores in zip(found, expected, strict=True):
        kept = [one for one in judged if one is not None]
        assert [one.score for one in kept] == pytest.approx(scores, abs=1e-4)
        if implicit:
            odds = np.log(np.array([one.score for one in kept]) / (1 - np.array([one.score for one in kept])))
            assert np.cumsum([one.reward for one in kept]) == pytest.approx(odds, abs=1e-3)
        else:
            assert [one.reward for one in kept] == [one.score for one in kept]
