"""Without an engine: which one a request goes to, what its answer says, and in which number format it computes."""

import pytest

from tests.workers.running import NEW_TOKENS, PROMPT, cpu_config, reward_config
from verl.classmate.frozen import frozen_classmates
from verl.classmate.outcome import Outcome
from verl.classmate.reply import Reply
from verl.workers.classmate_workers import ClassmateClient
from verl.workers.classmates.client import reply_of
from verl.workers.classmates.engines import hf_engine_config, vllm_rollout_config
from verl.workers.rollout.replica import TokenOutput


def test_requests_go_to_the_idlest_engine_or_to_one_of_their_own() -> None:
    reward = reward_config(["m"], classmate_replicas=3)
    names = ["classmate_0", "classmate_0_1", "classmate_0_2"]
    client = ClassmateClient(reward, max_model_len=32)
    assert client._engine_names("classmate/0") == names
    client._load.update({"classmate_0": 2, "classmate_0_1": 1, "classmate_0_2": 3})
    request = {"prompt_ids": PROMPT}
    assert client._choose(names, request) == "classmate_0_1"
    client._down_until["classmate_0_1"] = float("inf")
    assert client._choose(names, request) == "classmate_0"

    stable = ClassmateClient(reward, max_model_len=32, deterministic=True)
    sampled = [{"prompt_ids": PROMPT, "sampling_params": {"seed": seed}} for seed in range(30)]
    judged = [{"prompt_ids": [token], "sampling_params": {"seed": 0}} for token in range(30)]
    for requests in (sampled, judged):
        before = [stable._choose(names, request) for request in requests]
        assert set(before) == set(names), "each engine gets its share"
        stable._load.update({"classmate_0": 9})
        assert [stable._choose(names, request) for request in requests] == before


def test_what_an_engine_says_as_a_reply() -> None:
    """Upstream's vLLM server gives no finish reason, and calls an answer that was cut completed."""

    def reply(tokens: int, stop_reason: str, **extra: str) -> Reply:
        return reply_of(
            TokenOutput(token_ids=[7] * tokens, stop_reason=stop_reason, extra_fields=extra), max_tokens=NEW_TOKENS
        )

    assert reply(NEW_TOKENS - 1, "completed").finish_reason == "stop"
    assert reply(NEW_TOKENS, "completed").finish_reason == "length"
    assert reply(NEW_TOKENS, "completed", finish_reason="stop").finish_reason == "stop"
    assert reply(3, "completed").token_ids == (7, 7, 7)
    aborted = reply(3, "aborted", finish_reason="abort")
    assert (aborted.outcome, aborted.token_ids) == (Outcome.engine_error, ())


@pytest.mark.parametrize(("typed", "expected"), [("float16", "float16"), ("auto", "float32")])
def test_the_number_format_holds_on_both_engines(typed: str, expected: str) -> None:
    reward = reward_config(["m"], classmate_dtype=typed)
    (frozen,) = frozen_classmates(reward)
    config = cpu_config()
    config.actor_rollout_ref = {"rollout": {"dtype": "bfloat16", "name": "hf"}}
    assert hf_engine_config(config, reward, frozen).dtype == expected
    assert vllm_rollout_config(config, frozen, sleeps=False).dtype == expected
