"""The cost of length in a row that the real pipeline scores: whose tokens count, and against which length."""

from pathlib import Path

import pytest

from tests.classmate.toy_tokenizers import byte_bpe
from tests.workers.scripted_rows import RESPONSE, answer_of, line_of, run
from verl.classmate.metrics import row_numbers

COST = "reward_model.length_cost=0.5"
LONGEST = 64
"""`data.max_response_length` of these runs."""


@pytest.mark.parametrize("validate", [False, True])
def test_a_response_pays_for_its_share_of_the_longest(models: Path, validate: bool) -> None:
    row, _ = run(models, COST, answer=answer_of(validate=validate))
    cost = 0.5 * len(answer_of().response_ids) / LONGEST
    assert line_of(row)["base_reward"] == pytest.approx(1 - cost)
    assert line_of(row)["final_reward"] == pytest.approx(2 - cost)
    assert row_numbers(row)["length_cost"] == pytest.approx(cost)
    assert row_numbers(row)["main_model_reward"] == 1.0
    free, _ = run(models, answer=answer_of(validate=validate))
    assert line_of(free)["base_reward"] == 1.0


def test_a_baseline_pays_too(models: Path) -> None:
    row, client = run(models, COST, "trainer.v1.trainer_mode=baseline")
    assert client.requests == []
    assert line_of(row)["final_reward"] == pytest.approx(1 - 0.5 * len(answer_of().response_ids) / LONGEST)


def test_an_unfinished_thought_pays(models: Path) -> None:
    unfinished = answer_of("<think>Tom has 3 apples and")
    row, _ = run(models, COST, answer=unfinished)
    assert line_of(row)["base_reward"] == pytest.approx(-0.5 * len(unfinished.response_ids) / LONGEST)


def test_what_a_tool_wrote_is_free(models: Path) -> None:
    tokenizer = byte_bpe()
    called, told, answered = (tokenizer.encode(text, add_special_tokens=False) for text in ("ask", "told", RESPONSE))
    last = len(called) + len(told)
    conversation = answer_of(
        response_ids=[*called, *told, *answered], turns=((0, len(called)), (last, last + len(answered)))
    )
    row, _ = run(models, COST, answer=conversation)
    assert line_of(row)["base_reward"] == pytest.approx(1 - 0.5 * (len(called) + len(answered)) / LONGEST)
