"""Which engines there are, on which GPUs they stand, and when they do not fit beside the policy. No GPU is needed."""

from typing import Any

import pytest

from verl.classmate.config import ClassmateRewardModelConfig, from_mapping
from verl.classmate.errors import ConfigError
from verl.classmate.frozen import frozen_classmates, frozen_models
from verl.trainer.preflight import devices
from verl.trainer.preflight.devices import check_devices, check_gpus, check_memory, check_schedule
from verl.trainer.preflight.models import check_live_context
from verl.trainer.resources import plan as resource_plan
from verl.workers.classmates.placement import (
    assign_gpus,
    dedicated_gpus,
    engine_cpus,
    engines,
    gpu_memory_share,
    max_colocate_count,
    read_beside_log_probs,
    resolved_engine,
    resolved_schedule,
    taking_turns,
)


def run(gpus: int = 1, *, device: str = "cuda", policy: float = 0.4, rollout: str = "vllm") -> dict[str, Any]:
    return {
        "algorithm": {"adv_estimator": "grpo", "filter_groups": {"enable": False}},
        "trainer": {"device": device, "n_gpus_per_node": gpus, "nnodes": 1},
        "actor_rollout_ref": {
            "model": {"path": "policy"},
            "actor": {"use_kl_loss": False},
            "rollout": {"name": rollout, "gpu_memory_utilization": policy, "max_model_len": None},
        },
        "transfer_queue": {"backend": {"SimpleStorage": {"num_data_storage_units": 1}}},
        "ray_kwargs": {"ray_init": {"num_cpus": None}},
    }


def reward(*specs: dict[str, Any], **keys: Any) -> ClassmateRewardModelConfig:
    classmates = [{"model": f"m{i}", "backend": "vllm", **spec} for i, spec in enumerate(specs)]
    return from_mapping({"classmates": classmates, **keys})


def test_every_engine_has_its_own_name_from_the_config() -> None:
    config = reward({"replicas": 2}, {"backend": "hf", "replicas": 3}, {}, {"backend": "hf"})
    assert [engine.name for engine in engines(frozen_models(config))] == [
        "vllm_server_reward_0_0_classmate0",
        "vllm_server_reward_1_0_classmate0",
        "classmate_1",
        "classmate_1_1",
        "classmate_1_2",
        "vllm_server_reward_0_0_classmate2",
        "classmate_3",
    ]
    assert [engine.label for engine in engines(frozen_models(config))[1:4:2]] == [
        "classmate 0 (m0, engine 1)",
        "classmate 1 (m1, engine 1)",
    ]


def test_classmates_off_the_trainers_gpus_read_beside_log_probs() -> None:
    def beside(config: dict[str, Any], of: ClassmateRewardModelConfig, estimator: str = "grpo") -> bool:
        return read_beside_log_probs(config, of, estimator=estimator)

    server, own = {"backend": "openai"}, {"placement": "dedicated"}
    assert beside(run(), reward(server))
    assert beside(run(), reward(own, server))
    assert beside(run(device="cpu"), reward({}, {"backend": "hf"}))
    assert not beside(run(), reward(own, {}))
    # Who waits for its turn is asked by the trainer.
    assert not beside(run(device="cpu"), reward({}, {"backend": "hf"}, classmate_schedule="batched"))
    assert beside(run(), reward(own, server, classmate_schedule="batched"))
    live = {"classmate_cot_reward_configs": {"self_play": "live", "self_play_model": "policy"}}
    for device in ("cpu", "cuda"):
        assert not beside(run(device=device), reward(own, **live))
        assert not beside(run(device=device), from_mapping({}, require_classmates=False))
        assert not beside(run(device=device), reward(own), "remax")
        filtered = run(device=device)
        filtered["algorithm"] |= {"filter_groups": {"enable": True}}
        assert not beside(filtered, reward(own))


def test_live_self_play_has_no_engine() -> None:
    play = {"self_play": "live", "self_play_model": "policy"}
    config = reward({}, classmate_cot_reward_configs=play)
    assert [engine.frozen.name for engine in engines(frozen_models(config))] == ["classmate/0"]
    assert [spec.model for spec in config.classmates] == ["m0", "policy"]
    assert (config.live_classmate, resolved_engine(frozen_classmates(config)[1])) == (1, "policy")
    frozen = reward({}, classmate_cot_reward_configs=play | {"self_play": "frozen"})
    assert [engine.frozen.model for engine in engines(frozen_models(frozen))] == ["m0", "policy"]
    assert frozen.live_classmate is None


def test_gpus_are_taken_where_most_memory_is_left() -> None:
    def assigned(gpus: int, *specs: dict[str, Any]) -> list[tuple[int, ...]]:
        return assign_gpus(engines(frozen_models(reward(*specs))), gpus)

    assert assigned(2, {}, {}, {}) == [(0,), (1,), (0,)]
    assert assigned(4, {"tensor_parallel_size": 2}, {}, {"replicas": 2}) == [(0, 1), (2,), (3,), (0,)]
    big, small = {"gpu_memory_utilization": 0.5}, {"gpu_memory_utilization": 0.2}
    assert assigned(2, big, small, small) == [(0,), (1,), (1,)]
    with pytest.raises(ValueError, match="2 of 1 GPUs"):
        assigned(1, {"tensor_parallel_size": 2})


@pytest.mark.parametrize(
    ("specs", "gpus", "streamed", "batched"),
    [
        ([{"gpu_memory_utilization": 0.3}] * 2, 1, 1.0, 0.4),
        ([{"gpu_memory_utilization": 0.5}] * 2, 1, 1.4, 0.5),
        ([{"gpu_memory_utilization": 0.5}] * 2, 2, 0.9, 0.5),
        ([{"gpu_memory_utilization": 0.3, "replicas": 2}], 1, 1.0, 0.6),
        ([{"gpu_memory_utilization": 0.3, "placement": "dedicated"}], 1, 0.4, 0.4),
        ([{"gpu_memory_utilization": 0.3, "backend": "hf"}], 1, 0.7, 0.4),
        ([{"gpu_memory_utilization": 0.5, "tensor_parallel_size": 2}, {"gpu_memory_utilization": 0.2}], 2, 1.1, 0.5),
    ],
)
def test_shares_of_the_fullest_gpu(specs: list[dict[str, Any]], gpus: int, streamed: float, batched: float) -> None:
    config = reward(*specs)
    assert gpu_memory_share(run(gpus), config, "streamed") == pytest.approx(streamed)
    assert gpu_memory_share(run(gpus), config, "batched") == pytest.approx(batched)
    assert gpu_memory_share(run(gpus, device="cpu"), config, "streamed") == 0
    assert resolved_schedule(run(gpus), config) == ("streamed" if streamed <= 1 else "batched")


def test_a_schedule_that_is_asked_for_is_kept() -> None:
    full = [{"gpu_memory_utilization": 0.9}] * 2
    assert resolved_schedule(run(), reward(*full, classmate_schedule="streamed")) == "streamed"
    assert resolved_schedule(run(policy=0.1), reward({}, classmate_schedule="batched")) == "batched"
    assert resolved_schedule(run(device="cpu"), reward({}, classmate_schedule="batched")) == "batched"
    assert resolved_schedule(run(device="cpu"), reward(*full)) == "streamed"
    assert resolved_schedule(run(), reward(*full, classmate_free_cache_engine=False)) == "streamed"
    with pytest.raises(ConfigError, match="classmate_free_cache_engine=True"):
        reward({}, classmate_schedule="batched", classmate_free_cache_engine=False)


def test_with_batched_only_engines_in_policy_memory_wait() -> None:
    live = {"self_play": "live", "self_play_model": "policy"}
    config = reward({}, {"placement": "dedicated"}, {"backend": "hf"}, classmate_cot_reward_configs=live)
    assert taking_turns(config, "batched") == {"classmate/0", "classmate/2"}
    assert taking_turns(config, "streamed") == frozenset()


UNSEEN = {"model": "u", "backend": "vllm"}


def test_readers_in_validation_only_always_take_turns() -> None:
    server = {"model": "w", "backend": "openai"}
    config = reward({}, evaluation_classmates=[UNSEEN, {**UNSEEN, "placement": "dedicated"}, server])
    assert taking_turns(config, "streamed") == frozenset()
    assert taking_turns(config, "batched") == {"classmate/0"}
    assert taking_turns(config, "streamed", validate=True) == {"unseen/0"}
    assert taking_turns(config, "batched", validate=True) == {"classmate/0", "unseen/0"}
    assert [engine.name for engine in engines(frozen_models(config))] == [
        "vllm_server_reward_0_0_classmate0",
        "vllm_server_reward_0_0_unseen0",
        "vllm_server_reward_0_0_unseen1",
    ]


@pytest.mark.parametrize(
    ("unseen", "streamed", "batched"),
    [([0.4], 0.7, 0.4), ([0.6], 0.9, 0.6), ([0.6, 0.5], 0.9, 0.6), ([0.8], 1.1, 0.8)],
)
def test_their_shares_stand_in_the_policys_place(unseen: list[float], streamed: float, batched: float) -> None:
    others = [{**UNSEEN, "gpu_memory_utilization": share} for share in unseen]
    config = reward({"gpu_memory_utilization": 0.3}, evaluation_classmates=others)
    assert gpu_memory_share(run(), config, "streamed") == pytest.approx(streamed)
    assert gpu_memory_share(run(), config, "batched") == pytest.approx(batched)
    awake = reward({"gpu_memory_utilization": 0.3}, evaluation_classmates=others, classmate_free_cache_engine=False)
    assert gpu_memory_share(run(), awake, "streamed") == pytest.approx(0.7 + sum(unseen))


def test_they_keep_no_training_row_waiting() -> None:
    for unseen in (UNSEEN, {**UNSEEN, "backend": "hf"}):
        config = reward({"placement": "dedicated"}, evaluation_classmates=[unseen])
        assert read_beside_log_probs(run(), config, estimator="grpo")
        filtered = run()
        filtered["algorithm"]["filter_groups"]["enable"] = True
        check_schedule(filtered, config)


@pytest.mark.parametrize(
    ("specs", "device", "gpus", "cpus", "colocated"),
    [
        ([{"placement": "dedicated", "replicas": 3}], "cuda", 3, 6, 3),
        ([{"placement": "dedicated", "tensor_parallel_size": 2}, {}], "cuda", 2, 4, 4),
        ([{"placement": "dedicated", "backend": "hf", "replicas": 2}], "cuda", 2, 4, 3),
        ([{"placement": "dedicated", "backend": "hf", "replicas": 2}], "cpu", 0, 4, 3),
        ([{"placement": "dedicated"}], "cpu", 1, 2, 3),
        ([{"backend": "hf", "replicas": 2}], "cpu", 0, 2, 3),
        ([{"backend": "hf", "replicas": 2}], "cuda", 0, 0, 5),
    ],
)
def test_what_ray_is_asked_for(specs: list[dict[str, Any]], device: str, gpus: int, cpus: int, colocated: int) -> None:
    config, there = reward(*specs), run(device=device)
    assert dedicated_gpus(config, device) == gpus
    assert engine_cpus(there, config) == cpus
    assert max_colocate_count(there, config) == colocated
    assert resource_plan.needed_ray_cpus(there, config) == 2 + colocated + cpus
    assert resource_plan.needed_gpus(there, config) == 1 + gpus


def test_teachers_of_distillation_have_a_pool_of_their_own() -> None:
    config, there = reward({"backend": "hf"}), run(device="cpu")
    cpus, gpus = resource_plan.needed_ray_cpus(there, config), resource_plan.needed_gpus(there, config)
    there["distillation"] = {"enabled": True, "nnodes": 1, "n_gpus_per_node": 2}
    assert resource_plan.needed_gpus(there, config) == gpus + 2
    assert resource_plan.needed_ray_cpus(there, config) == cpus + 2 * 3
    there["distillation"]["enabled"] = False
    assert resource_plan.needed_gpus(there, config) == gpus


def test_gpus_of_dedicated_classmates_count(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    config = reward({"placement": "dedicated", "replicas": 2})
    check_devices(run(2), config)
    with pytest.raises(ConfigError, match="3 GPUs and dedicated classmates 2 more, but there are 4") as refused:
        check_devices(run(3), config)
    assert "write trainer.n_gpus_per_node=2 or reward_model.classmate_placement=colocated" in str(refused.value)
    with pytest.raises(ConfigError, match=r"write reward_model\.classmate_placement=colocated"):
        check_gpus(run(1), reward({"placement": "dedicated", "replicas": 4}), 4)


def test_tensor_parallel_engines_must_fit_into_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    with pytest.raises(ConfigError, match=r"tensor_parallel_size=4 does not divide the trainer's 2 GPUs; write 2"):
        check_devices(run(2), reward({"tensor_parallel_size": 4}))
    check_devices(run(2), reward({"tensor_parallel_size": 4, "placement": "dedicated"}))
    with pytest.raises(ConfigError, match="engine hf runs on one device"):
        reward({"tensor_parallel_size": 4, "backend": "hf"})


def test_engines_that_never_fit_are_refused_with_numbers_that_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    wide = reward({"gpu_memory_utilization": 0.6, "replicas": 2}, classmate_schedule="batched")
    with pytest.raises(ConfigError, match=r"120% .*write for instance .*gpu_memory_utilization=0\.45"):
        check_devices(run(), wide)
    check_devices(run(), reward(*[{"gpu_memory_utilization": 0.9}] * 3))
    full = reward(*[{"gpu_memory_utilization": 0.5}] * 2, classmate_free_cache_engine=False)
    with pytest.raises(ConfigError, match="140%") as refused:
        check_devices(run(), full)
    assert "batched" not in str(refused.value)


def test_weights_beyond_a_machines_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_plan, "weights_gib", lambda path, as_float32: 3.0)
    config, there = reward({"backend": "hf", "replicas": 4}), run(device="cpu", rollout="hf")
    assert resource_plan.certain_memory_gib(there, config) == pytest.approx(3.0 * (5 + 4))
    monkeypatch.setattr(devices, "memory_gib", lambda: (26.0, 20.0))
    with pytest.raises(ConfigError, match=r"27\.0 GiB, but this machine has 26\.0"):
        check_memory(there, config)
    monkeypatch.setattr(devices, "memory_gib", lambda: (28.0, 1.0))
    check_memory(there, config)


def test_live_self_play_needs_context_for_question_and_answer() -> None:
    config = reward({}, classmate_cot_reward_configs={"self_play": "live", "self_play_model": "policy"})
    there = run()
    check_live_context(there, config, 300)
    there["actor_rollout_ref"]["rollout"]["max_model_len"] = 256
    with pytest.raises(ConfigError, match=r"write actor_rollout_ref\.rollout\.max_model_len=300"):
        check_live_context(there, config, 300)
    check_live_context(there, reward({}), 300)


def test_groups_cannot_be_filtered_before_they_are_judged() -> None:
    there = run(device="cpu")
    there["algorithm"]["filter_groups"] = {"enable": True, "metric": "acc"}
    check_schedule(there, reward({}))
    with pytest.raises(ConfigError, match=r"write reward_model\.classmate_schedule=streamed"):
        check_schedule(there, reward({}, classmate_schedule="batched"))
    check_schedule(there, reward({"placement": "dedicated"}, classmate_schedule="batched"))
