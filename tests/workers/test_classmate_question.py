"""Which question the classmates are shown of a row with a hint: the real prompts, and what a replay makes of them."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.classmate.toy_tokenizers import byte_bpe
from tests.run_config import run_config
from tests.workers.scripted_rows import CLASSMATES, KIND, QUESTION, THOUGHT, Client, answer_of, line_of, run
from verl.classmate.errors import ConfigError
from verl.classmate.record import RowRecord
from verl.classmate.row import Answer, Task
from verl.evaluation.recompute import differences, score_again
from verl.workers.row_pipeline import RowPipeline

OPTION = "reward_model.classmate_cot_reward_configs.classmate_question=hint_removed"
HINT = "I think the answer is 9."


def task_of(question: str = QUESTION, **reward_model: Any) -> Task:
    """With a hint."""
    keys = {"ground_truth": "7", "hint_str_for_monitor": HINT, "hinted_answer": "9", "prompt_without_hint": question}
    return replace(answer_of().task, question=f"{question} {HINT}", reward_model=keys | reward_model)


def hinted(**changes: Any) -> Answer:
    task = task_of()
    return answer_of(**{"task": task, "messages": [{"role": "user", "content": task.question}]} | changes)


def prompts(models: Path, *overrides: str, answer: Answer) -> list[str]:
    _, client = run(models, *overrides, answer=answer)
    assert client.requests
    return [request["prompt"] for request in client.requests]


@pytest.mark.parametrize("kind", ["vanilla_reward", "remove_wo_cot", "random_truncate_step_wise_utility"])
def test_the_hint_is_gone_and_nothing_else(models: Path, kind: str) -> None:
    shown = prompts(models, f"{KIND}={kind}", answer=hinted())
    without = prompts(models, f"{KIND}={kind}", OPTION, answer=hinted())
    assert all(f"{QUESTION} {HINT}" in prompt for prompt in shown)
    assert without == [prompt.replace(f" {HINT}", "") for prompt in shown]
    assert without == prompts(models, f"{KIND}={kind}", answer=answer_of()), "as if nobody had hinted"


def test_the_policy_sees_it_and_the_verifier_knows_it(models: Path) -> None:
    row, _ = run(models, OPTION, answer=hinted())
    line = line_of(row)
    assert line["messages"] == [{"role": "user", "content": f"{QUESTION} {HINT}"}]
    assert line["question"] == f"{QUESTION} {HINT}"
    assert line["follows_hint"] == 0.0
    followed, _ = run(models, OPTION, answer=hinted(response_ids=answer_of("<think>9</think>It is 9.").response_ids))
    assert line_of(followed)["follows_hint"] == 1.0


def test_a_hint_that_the_thought_repeats_stays(models: Path) -> None:
    told = answer_of("<think>The user says 9.</think>It is 9.").response_ids
    assert all("The user says 9." in prompt for prompt in prompts(models, OPTION, answer=hinted(response_ids=told)))


def test_a_removed_hint_does_not_shield_the_answer(models: Path) -> None:
    """Without the answer, what is shown does not hold it, even if the user had named it."""
    strip = "reward_model.classmate_cot_reward_configs.strip_answer=true"
    told = answer_of("<think>3 and 4. It is 9. Done in 2 steps.</think>The answer is 9.").response_ids
    assert all("9" not in prompt for prompt in prompts(models, OPTION, strip, answer=hinted(response_ids=told)))


def test_a_row_that_nobody_reads_need_not_say_it(models: Path) -> None:
    task = task_of(prompt_without_hint=None)
    answer = answer_of(task=task, messages=[{"role": "user", "content": task.question}])
    pipeline = RowPipeline.build(run_config(models, (), OPTION), byte_bpe(), Client(lambda _: ""))
    assert asyncio.run(pipeline.run(answer)).main.score == 1.0


def test_earlier_turns_stay(models: Path) -> None:
    before = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Yes?"}]
    answer = hinted(messages=[*before, {"role": "user", "content": task_of().question}])
    for prompt in prompts(models, OPTION, answer=answer):
        assert prompt.index("Hello.") < prompt.index("Yes?") < prompt.index(QUESTION) < prompt.index(THOUGHT)
        assert HINT not in prompt


def test_rows_without_a_hint_are_shown_in_full(models: Path) -> None:
    empty = {"hint_str_for_monitor": None, "hinted_answer": None, "prompt_without_hint": None}
    for task in (answer_of().task, task_of(**empty)):
        messages = [{"role": "user", "content": task.question}]
        answer = answer_of(task=task, messages=messages)
        assert prompts(models, OPTION, answer=answer) == prompts(models, answer=answer)


def test_another_question_of_the_batch_loses_its_hint_too(models: Path) -> None:
    partner = task_of("And five pears and five plums?", ground_truth="10")
    kind = f"{KIND}=help_other_questions"
    for prompt in prompts(models, kind, OPTION, answer=hinted(partner=partner)):
        assert prompt.index(QUESTION) < prompt.index("And five pears and five plums?")
        assert HINT not in prompt
    assert all(prompt.count(HINT) == 2 for prompt in prompts(models, kind, answer=hinted(partner=partner)))


def test_the_rows_similar_question_is_shown_as_it_stands(models: Path) -> None:
    task = task_of(paired_similar_q="One and one?", paired_similar_q_gt="2")
    for prompt in prompts(models, f"{KIND}=help_other_similar_questions", OPTION, answer=hinted(task=task)):
        assert prompt.count(QUESTION) == 1
        assert "One and one?" in prompt
        assert HINT not in prompt


@pytest.mark.parametrize("key", ["hint_str_for_monitor", "hinted_answer"])
def test_a_hint_that_nobody_can_take_out_is_a_mistake(models: Path, key: str) -> None:
    """Of rows that could not be looked at when the run started."""
    task = replace(task_of(), reward_model={"ground_truth": "7", key: "9"})
    with pytest.raises(ConfigError, match=r"has a hint, but no reward_model\.prompt_without_hint.*question=full$"):
        run(models, OPTION, answer=hinted(task=task))
    assert prompts(models, answer=hinted(task=task))


def test_a_replay_comes_to_the_same(models: Path) -> None:
    client = Client(lambda _: "It is 7.")
    pipeline = RowPipeline.build(run_config(models, CLASSMATES, f"{KIND}=remove_wo_cot", OPTION), byte_bpe(), client)
    row = asyncio.run(pipeline.run(hinted()))
    record = RowRecord.from_json(RowRecord.of(row).to_json())
    again = asyncio.run(score_again(pipeline, record, rescore=False))
    assert list(differences(line_of(row), line_of(again))) == []
    assert HINT not in str(line_of(again)["classmates"])
