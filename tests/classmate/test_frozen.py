"""Frozen models as values: what the config of a run makes of classmates, self-play and judges."""

import dataclasses
from typing import Any

import pytest

from verl.classmate.config import ClassmateRewardModelConfig, from_mapping
from verl.classmate.frozen import FrozenModel, frozen_classmates, frozen_judges, frozen_models

NODE = "classmate_cot_reward_configs"
JUDGE = {"llm_judge_backend_type": "hf", "llm_judge_model_name": "judge"}


def reward(*classmates: dict[str, Any], **keys: Any) -> ClassmateRewardModelConfig:
    return from_mapping({"classmates": list(classmates), **keys}, require_classmates=False)


def named(models: tuple[FrozenModel, ...], *fields: str) -> list[tuple[Any, ...]]:
    return [tuple(getattr(one, field) for field in ("name", *fields)) for one in models]


def test_each_has_a_name_and_says_who_runs_it() -> None:
    play = {"self_play": "live", "self_play_model": "policy"}
    config = reward({"model": "a", "backend": "vllm"}, {"model": "b"}, **JUDGE, **{NODE: play})
    assert named(frozen_models(config), "label", "model", "engine", "weights") == [
        ("classmate/0", "classmate 0", "a", "vllm", "own"),
        ("classmate/1", "classmate 1", "b", "auto", "own"),
        ("classmate/2", "classmate 2", "policy", "policy", "policy_live"),
        ("judge", "judge", "judge", "hf", "own"),
    ]
    assert [one.is_policy for one in frozen_classmates(config)] == [False, False, True]
    assert [one.keys for one in frozen_models(config)][2:] == ["reward_model.classmates[2].", "reward_model.llm_judge_"]
    frozen = dataclasses.replace(
        config, **{NODE: dataclasses.replace(config.classmate_cot_reward_configs, self_play="frozen")}
    )
    assert named(frozen_classmates(frozen), "engine", "weights")[2] == ("classmate/2", "auto", "policy_start")


def test_what_is_lost_with_a_judge_is_the_run() -> None:
    config = reward({"model": "a"}, **JUDGE)
    assert named(frozen_models(config), "required") == [("classmate/0", False), ("judge", True)]


def test_judges_that_others_run_are_no_models_of_the_run() -> None:
    remote = JUDGE | {"llm_judge_backend_type": "openai"}
    both = remote | {"eval_llm_judge_backend_type": "hf_scoring", "eval_llm_judge_model_name": "scores"}
    assert frozen_judges(reward(**remote)) == ()
    assert named(frozen_judges(reward(**both)), "model", "engine", "task") == [
        ("judge/validation", "scores", "hf", "score")
    ]


@pytest.mark.parametrize(
    ("keys", "classmate", "judge"),
    [
        ({}, 0.5, 0.5),
        ({"classmate_vllm_configs": {"gpu_memory_utilization": 0.3}}, 0.3, 0.3),
        ({"llm_judge_gpu_memory_utilization": 0.2}, 0.5, 0.2),
    ],
)
def test_shares_of_memory(keys: dict[str, Any], classmate: float, judge: float) -> None:
    models = frozen_models(reward({"model": "a"}, **JUDGE, **keys))
    assert [one.memory_share for one in models] == [classmate, judge]
    assert [one.gpu_memory_utilization is None for one in models] == [share == 0.5 for share in (classmate, judge)]


def test_how_much_each_reads_and_how_long_it_may_take() -> None:
    limits = {"llm_judge_max_context": 100, "llm_judge_max_tokens": 40, "llm_judge_timeout": 7.0}
    generation = {"classmate_generation_configs": {"max_new_tokens": 30}}
    config = reward({"model": "a"}, {"model": "b", "backend": "openai"}, **JUDGE, **limits, **generation)
    models = frozen_models(config)
    assert [one.context_length(row_tokens=50) for one in models] == [80, 80, 100]
    assert [one.max_new_tokens for one in models] == [30, 30, 40]
    assert [one.request_timeout for one in models] == [600, 60, 7]
    fixed = reward({"model": "a"}, classmate_generation_configs={"max_model_len": 64, "max_new_tokens": 30})
    assert [one.context_length(row_tokens=50) for one in frozen_models(fixed)] == [64]
