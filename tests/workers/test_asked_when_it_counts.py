"""Rows whose classmate reward is 0 whatever is answered: nobody is asked, and nothing else about them changes."""

import asyncio
import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.classmate.toy_tokenizers import byte_bpe
from tests.run_config import run_config
from tests.workers.scripted_rows import CLASSMATES, KIND, RESPONSE, THOUGHT, Awake, Client, answer_of, line_of
from verl.classmate.algorithm_config import AdvantageConfig
from verl.classmate.estimators import OUR_ESTIMATORS
from verl.classmate.metrics import row_numbers, step_metrics
from verl.classmate.outcome import Outcome
from verl.classmate.record import RowRecord
from verl.classmate.reply import Reply
from verl.classmate.row import Answer, ScoredRow
from verl.evaluation.recompute import differences, score_again
from verl.trainer.ppo.advantage import compute_advantage, inputs_from_rows, row_fields
from verl.trainer.ppo.batched import score_batch
from verl.workers.row_pipeline import RowPipeline
from verl.workers.rows.tensors import advantage_fields

NODE = "reward_model.classmate_cot_reward_configs"
CONDITION = f"{NODE}.use_classmate_main_cond"
OPTION = f"{NODE}.ask_when_it_counts_only"
INCORRECT = "no_classmate_when_main_incorrect"
WRONG = RESPONSE.replace("answer is 7", "answer is 8")


class Counting:
    """A reward function of the user's: 1 for the right answer."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, solution_str: str, **_: Any) -> float:
        self.texts.append(solution_str)
        return float("7" in solution_str)


class Living(Client):
    """Classmates of which some are out of the run."""

    async def sample(self, classmate: int, prompt_ids: list[int], *, seeds: Sequence[int], **more: Any) -> list[Reply]:
        if classmate in more["excluded"]:
            return [Reply(outcome=Outcome.excluded) for _ in seeds]
        return await super().sample(classmate, prompt_ids, seeds=seeds, **more)


def judged(
    models: Path, *overrides: str, answer: Answer | None = None, excluded: tuple[int, ...] = (), function: Any = None
) -> tuple[ScoredRow, Client]:
    client = Living(lambda _: "The answer is 7.")
    pipeline = RowPipeline.build(run_config(models, CLASSMATES, *overrides), byte_bpe(), client)
    pipeline.manager.compute_score = function
    return asyncio.run(pipeline.run(answer or answer_of(WRONG), excluded=frozenset(excluded))), client


def outcomes(row: ScoredRow) -> set[str]:
    return {sample["outcome"] for one in line_of(row)["classmates"] for sample in one["samples"]}


def test_nobody_is_asked_about_a_wrong_answer(models: Path) -> None:
    row, client = judged(models, f"{CONDITION}={INCORRECT}")
    assert client.requests == []
    assert outcomes(row) == {"not_needed"}
    asked, _ = judged(models, f"{CONDITION}={INCORRECT}", f"{OPTION}=False")
    assert outcomes(asked) == {"ok"}
    prompts = [[one["prompt"] for one in line_of(each)["classmates"]] for each in (row, asked)]
    assert prompts[0] == prompts[1], "the dump shows what they would have been asked"
    assert (row.scores.classmate_valid, row.scores.classmate_reward, row.scores.gamma) == (True, 0.0, 0.0)
    assert line_of(row)["final_reward"] == line_of(asked)["final_reward"] == 0.0
    assert (row.mask == asked.mask).all()
    right, client = judged(models, f"{CONDITION}={INCORRECT}", answer=answer_of())
    assert len(client.requests) == 2
    assert right.scores.classmate_reward == 1.0


@pytest.mark.parametrize(
    ("overrides", "answer"),
    [
        ((f"{CONDITION}=always",), answer_of(WRONG)),
        ((f"{CONDITION}=neg_classmate_when_main_incorrect",), answer_of(WRONG)),
        ((f"{CONDITION}={INCORRECT}",), answer_of(WRONG, validate=True)),
        ((f"{CONDITION}=no_classmate",), answer_of(WRONG, validate=True)),
        ((f"{CONDITION}={INCORRECT}", f"{NODE}.add_consistency_reward=True"), answer_of(WRONG)),
        ((f"{CONDITION}={INCORRECT}", f"{NODE}.main_correct_threshold=0"), answer_of(WRONG)),
        ((f"{CONDITION}=no_classmate", f"{OPTION}=False"), answer_of(WRONG)),
    ],
)
def test_all_are_asked_where_it_counts_or_is_wanted(models: Path, overrides: tuple[str, ...], answer: Answer) -> None:
    """Where gamma is not 0, in validation, and where agreement is a reward of its own."""
    row, client = judged(models, *overrides, answer=answer)
    assert len(client.requests) == 2
    assert outcomes(row) == {"ok"}


def test_with_no_classmate_nobody_is_asked_about_any_row(models: Path) -> None:
    for text in (RESPONSE, WRONG):
        row, client = judged(models, f"{CONDITION}=no_classmate", answer=answer_of(text))
        assert (client.requests, outcomes(row)) == ([], {"not_needed"})


def test_a_function_of_the_users_is_asked_first_only_on_request(models: Path) -> None:
    """It may be a slow judge, for whom the classmates would wait; it never judges the main answer twice."""
    function = Counting()
    row, client = judged(models, f"{CONDITION}={INCORRECT}", function=function)
    assert (len(client.requests), outcomes(row)) == (2, {"ok"})
    assert len(function.texts) == 3
    function = Counting()
    row, client = judged(models, f"{CONDITION}={INCORRECT}", f"{OPTION}=True", function=function)
    assert (client.requests, outcomes(row)) == ([], {"not_needed"})
    assert len(function.texts) == 1
    function = Counting()
    _, client = judged(models, f"{CONDITION}={INCORRECT}", f"{OPTION}=True", function=function, answer=answer_of())
    assert (len(client.requests), len(function.texts)) == (2, 3)


def test_a_verifier_that_fails_leaves_the_row_as_it_was(models: Path) -> None:
    def broken(**_: Any) -> float:
        raise RuntimeError("no")

    row, client = judged(models, f"{CONDITION}={INCORRECT}", f"{OPTION}=True", function=broken)
    assert len(client.requests) == 2
    assert (line_of(row)["main_outcome"], row.scores.main_valid) == ("judge_error", False)


def test_excluded_classmates_and_unshowable_thoughts_stay_so(models: Path) -> None:
    row, _ = judged(models, f"{CONDITION}={INCORRECT}", excluded=(0, 1))
    assert outcomes(row) == {"excluded"}
    assert not row.scores.classmate_valid
    row, _ = judged(models, f"{CONDITION}={INCORRECT}", excluded=(0,))
    assert outcomes(row) == {"excluded", "not_needed"}
    assert row.scores.classmate_valid
    unfinished, _ = judged(models, f"{CONDITION}={INCORRECT}", answer=answer_of("<think>Tom"))
    assert outcomes(unfinished) == {"unfinished_cot"}
    assert (unfinished.scores.classmate_valid, unfinished.scores.asked) == (False, False)
    long, _ = judged(models, f"{CONDITION}={INCORRECT}", "reward_model.classmate_generation_configs.max_model_len=24")
    assert outcomes(long) == {"too_long"}
    assert not long.scores.classmate_valid


def test_metrics_cover_the_rows_that_were_asked(models: Path) -> None:
    rows = [judged(models, f"{CONDITION}={INCORRECT}", answer=answer_of(text))[0] for text in (RESPONSE, WRONG, WRONG)]
    metrics = step_metrics([row_numbers(row) for row in rows])
    assert metrics["classmate/unasked_rows"] == 2
    assert metrics["classmate/outcome/not_needed"] == 4
    assert metrics["classmate/missing_ratio"] == 0
    assert metrics["critic/classmate_scores/mean"] == 1.0
    assert metrics["critic/classmate_asked/mean"] == pytest.approx(1 / 3)
    assert metrics["critic/classmate_reward/mean"] == pytest.approx(1 / 3), "W is 0 in the others"


TEXTS = [
    RESPONSE,
    WRONG,
    RESPONSE.replace("gets", "buys"),
    WRONG.replace("gets", "finds"),
    "<think>Tom has 3",
    "<think>\n</think>\n\nThe answer is 7.",
    f"<think>{THOUGHT}</think>\n\nI cannot say.",
]


def moody(prompt: str) -> str | Outcome:
    """Right, wrong, without an answer or down, as the thought's words have it, so with and without the option alike."""
    if "finds" in prompt:
        return Outcome.engine_error
    return "The answer is 7." if "buys" in prompt or "gets" not in prompt else "</think>It is 3."


@pytest.mark.parametrize("kind", ["vanilla_reward", "remove_wo_cot", "random_truncate_step_wise_utility"])
@pytest.mark.parametrize("condition", [INCORRECT, "no_classmate"])
def test_advantages_are_the_same_with_and_without(models: Path, kind: str, condition: str) -> None:
    """To the last bit, of every estimator, whatever the classmates would have said or failed to say."""
    texts = [TEXTS[i % len(TEXTS)] for i in range(24)] + [WRONG.replace("gets", "finds")] * 4
    answers = [answer_of(text, rollout=i % 4, uid=f"{i // 4}-5-key") for i, text in enumerate(texts)]
    uids = np.array([answer.uid for answer in answers], dtype=object)

    def rows(option: str) -> tuple[list[dict[str, torch.Tensor]], int]:
        client = Client(moody)
        config = run_config(models, CLASSMATES, f"{KIND}={kind}", f"{CONDITION}={condition}", f"{OPTION}={option}")
        pipeline = RowPipeline.build(config, byte_bpe(), client)
        fields = []
        for answer in answers:
            row = asyncio.run(pipeline.run(answer))
            fields.append(advantage_fields(row) | {"response_mask": torch.ones(len(answer.response_ids)).long()})
        return fields, len(client.requests)

    (without, all_requests), (with_it, requests) = rows("False"), rows("auto")
    assert requests < all_requests / 1.5
    for estimator, fusion, fraction in itertools.product(OUR_ESTIMATORS, ("sum", "weighted_average"), (0.0, 0.9)):
        config = AdvantageConfig(
            adv_estimator=estimator,
            classmate_reward_type=kind,
            reward_fusion=fusion,  # type: ignore[arg-type]
            min_classmate_valid_fraction=fraction,
            classmate_reward_weight=0.5,
        )
        results = []
        for fields in (without, with_it):
            columns = {
                name: torch.nn.utils.rnn.pad_sequence([row[name] for row in fields], batch_first=True)
                if fields[0][name].ndim == 1
                else torch.stack([row[name] for row in fields])
                for name in row_fields(config)
            }
            inputs = inputs_from_rows(columns, uids, torch.zeros(len(fields), dtype=torch.bool), config)
            results.append(compute_advantage(inputs, config).advantages_BR)
        assert torch.equal(*results), (estimator, fusion, fraction)
        assert results[0].abs().max() > 0.1


def test_a_replay_comes_to_the_same(models: Path) -> None:
    config = run_config(models, CLASSMATES, f"{KIND}=remove_wo_cot", f"{CONDITION}={INCORRECT}")
    pipeline = RowPipeline.build(config, byte_bpe(), Client(lambda _: "It is 7."))
    for text in (RESPONSE, WRONG):
        row = asyncio.run(pipeline.run(answer_of(text)))
        again = asyncio.run(score_again(pipeline, RowRecord.of(row), rescore=False))
        assert list(differences(line_of(row), line_of(again))) == []
        assert again.scores.classmate_valid


def test_the_schedule_batched_asks_no_more(models: Path) -> None:
    """And the verifier is asked about each main answer once."""
    client, function = Client(lambda _: "The answer is 7."), Counting()
    config = run_config(models, CLASSMATES, f"{CONDITION}={INCORRECT}", f"{OPTION}=True")
    pipeline = RowPipeline.build(config, byte_bpe(), client)
    pipeline.manager.compute_score = function
    answers = [answer_of(RESPONSE), answer_of(WRONG, rollout=3)]
    classmates: Any = Awake()
    scored = score_batch(pipeline, pipeline.reward, classmates, answers, [{}, {}], frozenset())
    right, wrong = asyncio.run(scored)
    assert (outcomes(right), outcomes(wrong)) == ({"ok"}, {"not_needed"})
    assert (len(client.requests), len(function.texts)) == (2, 2 + 2)


def test_a_judge_among_the_runs_engines_is_never_asked_first(models: Path) -> None:
    """It may be asleep while the classmates are awake."""
    pipeline = RowPipeline.build(
        run_config(models, CLASSMATES, f"{CONDITION}={INCORRECT}", f"{OPTION}=True"), byte_bpe(), Client(lambda _: "7")
    )
    spec = SimpleNamespace(in_run=True)
    row = pipeline.read(answer_of(WRONG))
    task = dataclasses.replace(row.answer.task, data_source="sycophancy")
    row = dataclasses.replace(row, answer=dataclasses.replace(row.answer, task=task))
    pipeline.manager.reward_config = SimpleNamespace(judge=lambda *, validate: spec)  # type: ignore[assignment]
    assert asyncio.run(pipeline.weigh(row)) == (None, True)
