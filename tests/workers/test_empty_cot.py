"""An empty thought on its way through the real pipeline: nobody is asked, and its markers answer for it."""

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.classmate.toy_tokenizers import byte_bpe
from tests.run_config import run_config
from tests.trainer.ppo.recompute import Options, advantages
from tests.workers.scripted_rows import CLASSMATES, KIND, RESPONSE, Client, answer_of, line_of, run
from verl.classmate.algorithm_config import AdvantageConfig
from verl.classmate.estimators import OUR_ESTIMATORS, PROCESS_ESTIMATORS
from verl.classmate.record import RowRecord
from verl.classmate.row import ScoredRow
from verl.evaluation.recompute import differences, score_again
from verl.trainer.ppo.advantage import compute_advantage, inputs_from_rows, row_fields
from verl.trainer.ppo.advantage.rows import with_advantage
from verl.workers.row_pipeline import RowPipeline
from verl.workers.rows.tensors import advantage_fields

OPTION = "reward_model.classmate_cot_reward_configs.empty_cot_score"
EMPTY = "<think>\n</think>\n\nThe answer is 7."
STRIPPED = "reward_model.classmate_cot_reward_configs.strip_answer=true"
STEP_WISE = "random_truncate_step_wise_utility"


def says(prompt: str) -> str:
    """Right if they read how it is done."""
    return f"</think>It is {7 if 'so 3' in prompt else 3}."


def rows_of(models: Path, texts: list[str], *overrides: str) -> list[ScoredRow]:
    """The answers to one prompt, scored."""
    pipeline = RowPipeline.build(run_config(models, CLASSMATES, *overrides), byte_bpe(), Client(says))
    given = [answer_of(text, rollout=i, uid="0-5-key") for i, text in enumerate(texts)]
    return [asyncio.run(pipeline.run(answer)) for answer in given]


def trained(rows: list[ScoredRow], **options: Any) -> list[RowRecord]:
    """Their records, with the advantages that the real estimator gives them."""
    config = AdvantageConfig(reward_fusion="sum", **options)
    fields = [
        advantage_fields(row) | {"response_mask": torch.ones(len(row.read.answer.response_ids)).long()} for row in rows
    ]
    columns = {
        name: torch.nn.utils.rnn.pad_sequence([row[name] for row in fields], batch_first=True)
        if fields[0][name].ndim == 1 and name != "segment_rewards"
        else torch.stack([row[name] for row in fields])
        for name in row_fields(config)
    }
    uids = np.array([row.read.answer.uid for row in rows], dtype=object)
    inputs = inputs_from_rows(columns, uids, torch.zeros(len(rows), dtype=torch.bool), config)
    results_BR = compute_advantage(inputs, config).advantages_BR
    names = ["classmate_mask", *(["classmate_segments"] if config.per_segment else [])]
    return [
        with_advantage(RowRecord.of(row), results_R[: len(one["response_mask"])], *(one[name] for name in names))
        for row, results_R, one in zip(rows, results_BR, fields, strict=True)
    ]


def test_nobody_is_asked_and_the_row_has_a_reward(models: Path) -> None:
    row, client = run(models, answer=answer_of(EMPTY))
    assert client.requests == []
    line = line_of(row)
    assert {sample["outcome"] for one in line["classmates"] for sample in one["samples"]} == {"empty_cot"}
    assert {sample["score"] for one in line["classmates"] for sample in one["samples"]} == {None}
    assert (line["classmate_valid"], line["classmate_reward"], line["final_reward"]) == (True, 0.0, 1.0)
    excluded, _ = run(models, f"{OPTION}=exclude", answer=answer_of(EMPTY))
    assert (line_of(excluded)["classmate_valid"], line_of(excluded)["final_reward"]) == (False, 1.0)
    assert not excluded.mask.any()


def test_its_markers_are_pushed_down_and_nothing_else(models: Path) -> None:
    """All answers are right: but for the classmates the rows would be equal."""
    _, empty = trained(rows_of(models, [RESPONSE, EMPTY]), adv_estimator="gdpo_wo_bn")
    assert empty.advantage_on_cot == pytest.approx(-(0.5**0.5), abs=1e-5)
    assert empty.advantage == 0.0
    ids = answer_of(EMPTY).response_ids
    assert byte_bpe().decode(ids[: empty.handed_over_tokens]) == "<think>\n</think>"
    for record in trained(rows_of(models, [RESPONSE, EMPTY], f"{OPTION}=exclude"), adv_estimator="gdpo_wo_bn"):
        assert {record.advantage, record.advantage_on_cot} <= {0.0, None}, "the escape that it was"


def test_a_thought_that_is_only_its_answer_is_pushed_down(models: Path) -> None:
    """Without its answer nothing is left of it, and it must not escape what an empty thought gets."""
    bare = "<think>So 7.</think>\n\nThe answer is 7."
    longer = "<think>so 3 and 4 it is. So 7.</think>\n\nThe answer is 7."
    _, stripped = trained(rows_of(models, [longer, bare], STRIPPED), adv_estimator="gdpo_wo_bn")
    assert stripped.advantage_on_cot == pytest.approx(-(0.5**0.5), abs=1e-5)
    ids = answer_of(bare).response_ids
    assert byte_bpe().decode(ids[: stripped.handed_over_tokens]) == "<think>So 7.</think>"


@pytest.mark.parametrize("kind", ["vanilla_reward", "remove_wo_cot", STEP_WISE])
@pytest.mark.parametrize("estimator", [name for name in OUR_ESTIMATORS if name not in PROCESS_ESTIMATORS])
@pytest.mark.parametrize("option", ["lowest", "exclude"])
def test_advantages_are_those_of_the_formulas(models: Path, kind: str, estimator: str, option: str) -> None:
    texts = [RESPONSE, EMPTY, RESPONSE.replace("so 3", "yes 3"), EMPTY.replace("7", "8"), RESPONSE.replace("7.", "9.")]
    rows = rows_of(models, texts, f"{KIND}={kind}", f"{OPTION}={option}")
    records = trained(rows, adv_estimator=estimator, classmate_reward_type=kind)
    lines = [json.loads(record.to_json()) for record in records]
    options = Options(reward_type=kind, condition="always", estimator=estimator, empty=option)
    expected = advantages(lines, options)
    assert expected is not None
    for line, one in zip(lines, expected, strict=True):
        if line["advantage"] is not None:
            assert line["advantage"] == pytest.approx(one.off_cot, abs=1e-5)
        if "advantage_on_segments" in line:
            pairs = zip(line["advantage_on_segments"], one.segments, strict=True)
            assert all(value is None or value == pytest.approx(wanted, abs=1e-5) for value, wanted in pairs)
        elif line["advantage_on_cot"] is not None:
            assert line["advantage_on_cot"] == pytest.approx(one.on_cot, abs=1e-5)
    assert any(line["advantage_on_cot"] for line in lines)


@pytest.mark.parametrize("kind", ["vanilla_reward", STEP_WISE])
def test_a_replay_comes_to_the_same(models: Path, kind: str) -> None:
    pipeline = RowPipeline.build(run_config(models, CLASSMATES, f"{KIND}={kind}"), byte_bpe(), Client(says))
    row = asyncio.run(pipeline.run(answer_of(EMPTY)))
    record = RowRecord.from_json(RowRecord.of(row).to_json())
    again = asyncio.run(score_again(pipeline, record, rescore=False))
    assert list(differences(line_of(row), line_of(again))) == []
    assert again.scores.classmate_valid
    assert (again.mask == row.mask).all()


def test_with_another_question_the_partners_scale_counts(models: Path) -> None:
    partner = dataclasses.replace(answer_of().task, question="And five pears?", data_source="openai/gsm8k")
    kind = f"{KIND}=help_other_questions"
    row, client = run(models, kind, answer=answer_of(" ", partner=partner))
    assert client.requests == []
    assert (row.scores.classmate_valid, row.scores.classmate_score) == (True, 0.0)
    assert row.mask.all()
    nobody, _ = run(models, kind, answer=answer_of(" "))
    assert not nobody.scores.classmate_valid, "whatever it had written"
