"""The agent loop: from the policy's tokens to what the classmates are asked, the reward, and the fields of the row.

The engines are played by scripts of answers, since what is looked at is what reaches them and what is made of it.
"""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from tests.classmate.toy_tokenizers import TOKENIZERS
from tests.experimental.agent_loop.scripted_loop import composed, run
from tests.workers.scripted_rows import QUESTION, RESPONSE, THOUGHT
from verl.classmate.outcome import Outcome
from verl.classmate.record import asked_from_json
from verl.experimental.agent_loop.row_reading import ASKED_EARLY


def test_each_classmate_reads_question_and_thought_in_its_tokens(config: DictConfig) -> None:
    row = run(config, RESPONSE)
    assert [request["classmate"] for request in row.classmates.requests] == [0, 1]
    for request, recorded in zip(row.classmates.requests, row.record["classmates"], strict=True):
        for text in (request["prompt"], recorded["prompt"]):
            assert QUESTION in text
            assert THOUGHT.strip() in text
            assert "The answer is" not in text, "the thought alone is handed over"
    assert row.record["classmates"][0]["prompt"].endswith(f"<think>{THOUGHT}</think>")
    seeds = [seed for request in row.classmates.requests for seed in request["seeds"]]
    assert len({*seeds, row.policy.requests[0]["sampling_params"]["seed"]}) == 5, "every request has a seed of its own"


def test_those_who_take_turns_are_left_to_the_trainer(config: DictConfig) -> None:
    later = run(config, RESPONSE, read_later=("classmate/0", "classmate/1"))
    assert later.classmates.requests == []
    assert later.output.extra_fields[ASKED_EARLY] == {}
    early = run(config, RESPONSE, read_later=("judge",))
    assert [request["classmate"] for request in early.classmates.requests] == [0, 1]
    asked = asked_from_json(early.output.extra_fields[ASKED_EARLY][1])
    assert [item.text for item in asked.continuations] == ["The answer is 7.", "The answer is 8."]
    assert all(item.outcome is Outcome.ok for item in asked.continuations)


def test_live_self_play_asks_the_policy_in_its_own_tokens(config: DictConfig, models: Path) -> None:
    node = "reward_model.classmate_cot_reward_configs"
    live = composed(models, f"{node}.self_play=live", "actor_rollout_ref.model.path=policy")
    row = run(live, RESPONSE, live_client=True)
    assert [record["model"] for record in row.record["classmates"]][2] == "policy"
    answers = row.policy.requests[1:]
    assert len(answers) == 2, "S samples"
    assert len({request["sampling_params"]["seed"] for request in row.policy.requests}) == 3
    tokenizer = TOKENIZERS["byte_bpe"]()
    for request in answers:
        assert tokenizer.decode(request["prompt_ids"]).endswith(f"<think>{THOUGHT}</think>")
        assert request["sampling_params"]["max_tokens"] == 16
        assert request["sampling_params"]["temperature"] == 0.7


def test_the_reward_and_the_fields_of_the_row(config: DictConfig) -> None:
    row = run(config, RESPONSE)
    fields = row.output.as_dict()
    assert (fields["base_reward"], fields["classmate_reward"], fields["final_reward"]) == (1.0, 0.5, 1.5)
    assert fields["classmate_scores"].tolist() == [[1.0, 0.0], [1.0, 0.0]]
    assert fields["rm_scores"].sum() == 1.5
    assert fields["rm_scores"][-1] == 1.5
    assert (bool(fields["main_valid"]), bool(fields["classmate_valid"])) == (True, True)
    assert bool(fields["main_correct"])
    assert fields["classmate_mask"].shape == fields["responses"].shape == fields["response_mask"].shape
    tokenizer = TOKENIZERS["byte_bpe"]()
    handed_over = tokenizer.decode(fields["responses"][fields["classmate_mask"].bool()])
    assert handed_over.strip() == THOUGHT.strip()
    record = row.record
    assert (record["cot"], record["output"], record["response"]) == (THOUGHT, "\n\nThe answer is 7.", RESPONSE)
    assert [s["text"] for s in record["classmates"][1]["samples"]] == ["The answer is 7.", "The answer is 8."]
    assert (record["step"], record["rollout"], record["index"], record["uid"]) == (5, 2, 3, "0-1-key")


def test_the_actors_mask_is_there_where_the_loss_counts_a_part(config: DictConfig, models: Path) -> None:
    assert "actor_mask" not in run(config, RESPONSE).output.as_dict()
    mode = "reward_model.token_level_main_reward_mode=output_only"
    fields = run(composed(models, "algorithm.adv_estimator=grpo", mode), RESPONSE).output.as_dict()
    tokenizer = TOKENIZERS["byte_bpe"]()
    counted = tokenizer.decode(fields["responses"][fields["actor_mask"].bool()])
    assert counted == "<think></think>\n\nThe answer is 7."
    assert fields["response_mask"].all(), "metrics count all tokens"


@pytest.mark.guards("same seed for every step and row")
def test_seeds_follow_from_run_step_row_and_rollout(config: DictConfig) -> None:
    def seeds(**columns: Any) -> list[int]:
        row = run(config, RESPONSE, **columns)
        policy = row.policy.requests[0]["sampling_params"]["seed"]
        return [policy, *(seed for request in row.classmates.requests for seed in request["seeds"])]

    first = seeds()
    assert first == seeds()
    for change in ({"global_steps": 6}, {"session_id": 3}, {"extra_info": {"index": 4}}):
        assert not set(first) & set(seeds(**change)), change


def test_vllm_is_asked_without_seeds(models: Path) -> None:
    """It serves seeded requests one by one; `trainer.deterministic` is for the engine hf."""
    engine = "actor_rollout_ref.rollout.name=vllm"
    assert run(composed(models, engine), RESPONSE).policy.requests[0]["sampling_params"] == {"temperature": 1.0}
    seeded = run(composed(models, engine, "trainer.deterministic=true"), RESPONSE)
    assert set(seeded.policy.requests[0]["sampling_params"]) == {"temperature", "seed"}


@pytest.mark.guards("unfinished CoT closed and rewarded")
@pytest.mark.guards("crash on an empty CoT")
@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("<think>\nTom has 3", Outcome.unfinished_cot),
        ("<think>\n</think>\n\nThe answer is 7.", Outcome.empty_cot),
        ("The answer is 7.", Outcome.unfinished_cot),
    ],
)
def test_without_a_whole_thought_nobody_is_asked(config: DictConfig, text: str, outcome: Outcome) -> None:
    row = run(config, text)
    assert row.classmates.requests == []
    is_empty = outcome is Outcome.empty_cot
    assert row.output.scored.scores.classmate_valid == is_empty, "it has the lowest score, which is 0 here"
    assert {s["outcome"] for c in row.record["classmates"] for s in c["samples"]} == {outcome.value}
    assert all(s["score"] is None for c in row.record["classmates"] for s in c["samples"])
    assert row.record["final_reward"] == row.record["base_reward"]
    assert bool(sum(row.output.scored.mask)) == is_empty


@pytest.mark.parametrize("outcome", [Outcome.timeout, Outcome.engine_error, Outcome.excluded])
def test_a_classmate_that_fails_is_left_out(config: DictConfig, outcome: Outcome) -> None:
    row = run(config, RESPONSE, failing={0: outcome})
    assert {sample["outcome"] for sample in row.record["classmates"][0]["samples"]} == {outcome.value}
    assert (row.record["classmate_score"], row.record["final_reward"]) == (0.5, 1.5)
    alone = run(config, RESPONSE, failing={0: outcome, 1: outcome})
    assert (alone.record["classmate_valid"], alone.record["final_reward"]) == (False, 1.0)
    assert alone.record["classmate_reward"] is None


def test_excluded_classmates_reach_the_client(config: DictConfig) -> None:
    row = run(config, RESPONSE, excluded_classmates=(1,))
    assert {request["excluded"] for request in row.classmates.requests} == {frozenset({1})}


@pytest.mark.guards("validation settings ignored")
def test_validation_asks_as_val_kwargs_say(config: DictConfig) -> None:
    row = run(config, RESPONSE, is_validate=True)
    assert [len(request["seeds"]) for request in row.classmates.requests] == [1, 1]
    assert all(request["validate"] for request in row.classmates.requests)


def test_a_thought_beyond_a_classmates_context_is_too_long(models: Path) -> None:
    config = composed(models, "reward_model.classmate_generation_configs.max_model_len=24")
    row = run(config, RESPONSE)
    assert row.classmates.requests == []
    assert {s["outcome"] for c in row.record["classmates"] for s in c["samples"]} == {"too_long"}


@pytest.mark.guards("baseline and classmate validation curves on different quantities")
def test_the_baseline_asks_in_validation_only(models: Path) -> None:
    config = composed(models, "trainer.v1.trainer_mode=baseline")
    training = run(config, RESPONSE)
    assert training.classmates.requests == []
    assert training.record["classmates"] == []
    assert training.record["final_reward"] == 1.0
    assert len(run(config, RESPONSE, is_validate=True).classmates.requests) == 2
