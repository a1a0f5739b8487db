"""A row's way: every view is asked with seeds of its own, and what comes back becomes reward, numbers and record."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.classmate.toy_tokenizers import TOKENIZERS, byte_bpe
from tests.run_config import run_config
from tests.workers.scripted_rows import (
    CLASSMATES,
    KIND,
    PARTNER,
    QUESTION,
    RESPONSE,
    SEGMENTS,
    THOUGHT,
    Client,
    answer_of,
    line_of,
    run,
)
from verl.classmate.metrics import row_numbers
from verl.classmate.row import ScoredRow, Task, Verdict
from verl.workers.row_pipeline import RowPipeline


def knows_whole_thought(prompt: str) -> str:
    """Right if and only if the end of the thought is in the prompt."""
    return "It is 7." if "= 7." in prompt else "It is 3."


def test_the_question_alone_is_asked_too_and_subtracted(models: Path) -> None:
    row, client = run(models, f"{KIND}=remove_wo_cot", say=knows_whole_thought)
    assert [request["classmate"] for request in client.requests] == [0, 0, 1, 1]
    with_thought, alone = client.requests[0]["prompt"], client.requests[1]["prompt"]
    assert alone == with_thought.replace(THOUGHT, "")
    assert (row.scores.classmate_score, line_of(row)["final_reward"]) == (1.0, 2.0)
    assert row_numbers(row)["classmate_alone_score"] == 0.0
    (recorded, _) = line_of(row)["classmates"]
    assert (recorded["prompt"], recorded["further_prompts"]) == (with_thought, [alone])
    assert [(sample["view"], sample["score"]) for sample in recorded["samples"]] == [(0, 1.0), (1, 0.0)]
    knowing, _ = run(models, f"{KIND}=remove_wo_cot")
    assert knowing.scores.classmate_score == 0.0, "a thought that tells them nothing new earns nothing"


@pytest.mark.guards("same seed for every step and row")
def test_every_request_of_a_row_has_a_seed_of_its_own(models: Path) -> None:
    options = (f"{KIND}=random_truncate_step_wise_utility", f"{SEGMENTS}=3",
               "reward_model.classmate_generation_configs.num_return_sequences=2")  # fmt: skip
    _, client = run(models, *options)
    assert len(client.seeds) >= 2 * 3 * 2, "two classmates, three views or more, two samples"
    assert len(set(client.seeds)) == len(client.seeds)
    _, other = run(models, *options, answer=answer_of(step=6))
    assert not set(client.seeds) & set(other.seeds)
    _, other = run(models, *options, answer=answer_of(rollout=3))
    alone = {
        seed
        for request in client.requests
        if request["prompt"].endswith(("<think>", "<think></think>"))
        for seed in request["seeds"]
    }
    assert set(client.seeds) & set(other.seeds) == alone, "what the rows of a prompt share: the question alone"
    _, again = run(models, *options)
    assert again.requests == client.requests


@pytest.mark.parametrize(("clue", "rewards"), [("3 apples", [1.0, 0.0]), ("gets 4", [0.0, 1.0]), ("= 7", [0.0, 0.0])])
def test_step_wise_utility_credits_the_segment_that_helped(models: Path, clue: str, rewards: list[float]) -> None:
    """In validation prefixes of 0.37 and 0.63 of the words are shown: up to `3 apples`, up to `so`."""
    row, _ = run(
        models,
        f"{KIND}=random_truncate_step_wise_utility",
        "reward_model.classmate_cot_reward_configs.keep_unit=words",
        say=lambda prompt: "</think>It is 7." if clue in prompt else "</think>It is 3.",
        answer=answer_of(validate=True),
    )
    assert row.scores.segment_rewards_K.tolist() == rewards == line_of(row)["segment_rewards"]
    assert row.scores.classmate_reward == sum(rewards)
    ids = np.array(answer_of().response_ids)
    texts = [byte_bpe().decode(ids[row.segments == number]).strip() for number in (1, 2)]
    assert texts == ["Tom has 3 apples", "and gets 4, so"]


def test_a_prompt_that_does_not_fit_asks_nobody_anything(models: Path) -> None:
    """Not the question alone either, with which there would be nothing to compare."""
    fits = len(TOKENIZERS["text_bpe"]().encode(QUESTION)) + 24
    row, client = run(
        models, f"{KIND}=remove_wo_cot", f"reward_model.classmate_generation_configs.max_model_len={fits}"
    )
    assert client.requests == []
    assert {sample["outcome"] for one in line_of(row)["classmates"] for sample in one["samples"]} == {"too_long"}
    assert not row.scores.asked
    assert not row.mask.any()


def test_help_with_another_question_is_scored_by_its_truth(models: Path) -> None:
    row, client = run(
        models, f"{KIND}=help_other_questions", say=lambda _: "It is 10.", answer=answer_of(partner=PARTNER)
    )
    for request in client.requests:
        assert RESPONSE in request["prompt"]
        assert request["prompt"].index(RESPONSE) < request["prompt"].index(PARTNER.question)
    assert (row.scores.base_reward, row.scores.classmate_score) == (1.0, 1.0)
    assert row.mask.all()
    assert line_of(row)["partner"] == vars(PARTNER)
    wrong, _ = run(models, f"{KIND}=help_other_questions", answer=answer_of(partner=PARTNER))
    assert wrong.scores.classmate_score == 0.0, "7 is the answer of the row itself"
    alone, client = run(models, f"{KIND}=help_other_questions")
    assert client.requests == []
    assert {s["outcome"] for c in line_of(alone)["classmates"] for s in c["samples"]} == {"no_partner"}
    assert (alone.scores.classmate_valid, alone.scores.final_reward) == (False, 1.0)


def test_the_similar_question_comes_with_the_row(models: Path) -> None:
    task = Task(
        data_source="hinted_arithmetic",
        reward_model={"ground_truth": "7", "paired_similar_q": "One and one?", "paired_similar_q_gt": "2"},
        extra_info={"index": 3},
    )
    row, client = run(models, f"{KIND}=help_other_similar_questions", say=lambda _: "2", answer=answer_of(task=task))
    assert all("One and one?" in request["prompt"] for request in client.requests)
    assert row.scores.classmate_score == 1.0
    alone, _ = run(models, f"{KIND}=help_other_similar_questions")
    assert {s["outcome"] for c in line_of(alone)["classmates"] for s in c["samples"]} == {"no_partner"}


def test_consistency_is_agreement_with_the_policys_answer(models: Path) -> None:
    wrong = answer_of(f"<think>{THOUGHT}</think>\n\nThe answer is 8.")
    option = "reward_model.classmate_cot_reward_configs.add_consistency_reward=True"
    row, _ = run(models, option, say=lambda _: "It is 8.", answer=wrong)
    assert (row.scores.classmate_score, row.scores.consistency_reward) == (0.0, 1.0)
    assert line_of(row)["classmates"][0]["samples"][0]["consistency"] == 1.0
    assert row.scores.final_reward == 1.0
    silent, _ = run(models, option, answer=answer_of(f"<think>{THOUGHT}</think>\n\nI cannot say."))
    assert not silent.scores.consistency_valid, "there is nothing to agree with"


def test_what_was_scored_before_is_not_scored_again(models: Path) -> None:
    """A judge that costs money is asked once, also by whoever judges a row again."""
    calls = []

    def compute_score(solution_str: str, **_: Any) -> float:
        calls.append(solution_str)
        return 0.25

    pipeline = RowPipeline.build(run_config(models, CLASSMATES), byte_bpe(), Client(lambda _: "It is 7."))
    pipeline.manager.compute_score = compute_score

    async def twice() -> tuple[ScoredRow, ScoredRow]:
        row = pipeline.read(answer_of())
        asked = [await pipeline.ask(row, m) for m in pipeline.asks(row)]
        first = await pipeline.score(row, asked)
        assert len(calls) == 3
        return first, await pipeline.score(row, first.asked, main=Verdict(score=0.25))

    first, second = asyncio.run(twice())
    assert len(calls) == 3
    assert line_of(first) == line_of(second)


def test_the_record_holds_all_that_judging_again_needs(models: Path) -> None:
    answer = answer_of(partner=PARTNER)
    row, _ = run(models, f"{KIND}=help_other_questions", answer=answer)
    record = json.loads(json.dumps(line_of(row)))
    assert record == line_of(row), "plain JSON"
    assert record["messages"] == answer.messages
    assert (record["response_ids"], record["prompt_end_ids"]) == (answer.response_ids, answer.prompt_ids)
    assert (record["reward_model"], record["extra_info"]) == (answer.task.reward_model, answer.task.extra_info)
    assert Task(**record["partner"]) == PARTNER


def test_classmates_that_think_are_read_behind_their_thought(models: Path) -> None:
    row, _ = run(
        models,
        f"{KIND}=help_other_questions",
        say=lambda _: "<think>5 + 5 = 11</think>It is 10.",
        answer=answer_of(partner=PARTNER),
    )
    assert [one["samples"][0]["text"] for one in line_of(row)["classmates"]] == ["It is 10."] * 2
    endless, _ = run(
        models, f"{KIND}=help_other_questions", say=lambda _: "<think>10", answer=answer_of(partner=PARTNER)
    )
    assert {s["outcome"] for c in line_of(endless)["classmates"] for s in c["samples"]} == {"no_answer"}


def test_a_prefixs_judge_hears_only_what_follows_the_thought(models: Path) -> None:
    keep = "reward_model.classmate_cot_reward_configs.main_cot_keep_rate=0.3"
    row, client = run(models, keep, say=lambda _: " and so 7</think>It is 9.")
    assert not any(request["prompt"].endswith("</think>") for request in client.requests)
    assert [one["samples"][0]["text"] for one in line_of(row)["classmates"]] == ["It is 9."] * 2
    assert 0 < line_of(row)["handed_over_tokens"] < 0.4 * line_of(row)["response_tokens"]
