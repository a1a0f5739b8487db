"""Numbers that the checks rest on: Ray's logical CPUs, shares of GPU memory, rows of a rank."""

import copy
import importlib.util
import re
from typing import Any

import pytest
from omegaconf import OmegaConf

from tests.trainer.test_configs import composed
from verl.classmate.algorithm_config import AlgorithmConfig, group_notes
from verl.classmate.config import ClassmateRewardModelConfig, RunConfig, from_mapping
from verl.classmate.errors import ConfigError
from verl.trainer import preflight
from verl.trainer.preflight.batches import check_batch_sizes, check_engine_settings, check_sequence_parallel
from verl.trainer.preflight.devices import check_devices, check_ray_cpus
from verl.trainer.preflight.models import check_context
from verl.trainer.preflight.settings import check_counts, check_debug, check_lora, check_names
from verl.trainer.resources import plan as resource_plan
from verl.workers.classmates import placement as classmate_placement


@pytest.fixture(scope="module")
def cpu_config() -> dict[str, Any]:
    return OmegaConf.to_container(composed("classmate_cot_ppo_trainer", "cpu"), resolve=True)


@pytest.fixture(scope="module")
def gpu_config() -> dict[str, Any]:
    return OmegaConf.to_container(composed("classmate_cot_ppo_trainer", "gpu"), resolve=True)


def changed(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A copy with dotted keys, written with __ for the dot, set."""
    config = copy.deepcopy(config)
    for key, value in changes.items():
        *nodes, leaf = key.split("__")
        node = config
        for name in nodes:
            node = node[name]
        node[leaf] = value
    return config


def classmates(count: int, backend: str, schedule: str = "auto", **settings: Any) -> ClassmateRewardModelConfig:
    entries = [{"model": f"m{i}", "backend": backend, **settings} for i in range(count)]
    return from_mapping({"classmates": entries, "classmate_schedule": schedule}, require_classmates=False)


@pytest.mark.parametrize(
    ("count", "backend", "ranks", "needed"),
    [
        (0, "hf", 1, 5),
        # Tried: with 7 a run of two hf classmates on one rank ends normally, with 6 it waits for ever.
        (2, "hf", 1, 7),
        (2, "hf", 2, 10),
        (2, "openai", 1, 5),
        (2, "vllm", 1, 7),
        # One classmate on each rank's bundle.
        (2, "vllm", 2, 10),
    ],
)
def test_logical_cpus(cpu_config, count, backend, ranks, needed):
    config = changed(cpu_config, trainer__n_gpus_per_node=ranks)
    reward = classmates(count, backend)
    assert resource_plan.needed_ray_cpus(config, reward) == needed
    check_ray_cpus(config, reward, needed)
    check_ray_cpus(config, reward, None)
    with pytest.raises(ConfigError, match=f"num_cpus={needed} or more"):
        check_ray_cpus(config, reward, needed - 1)


def test_the_cpu_default_suffices_for_any_number_of_classmates(cpu_config):
    given = cpu_config["ray_kwargs"]["ray_init"]["num_cpus"]
    for count, ranks in ((4, 1), (8, 8)):
        check_ray_cpus(changed(cpu_config, trainer__n_gpus_per_node=ranks), classmates(count, "hf"), given)


@pytest.mark.guards("fixed 0.8 memory for each of M engines")
def test_engines_awake_side_by_side_share_a_gpu(gpu_config):
    config = changed(gpu_config, actor_rollout_ref__rollout__gpu_memory_utilization=0.4)

    def share(config: dict[str, Any], reward: ClassmateRewardModelConfig) -> float:
        return classmate_placement.gpu_memory_share(config, reward, "streamed")

    assert share(config, classmates(2, "vllm", gpu_memory_utilization=0.25)) == pytest.approx(0.9)
    assert share(config, classmates(2, "hf", gpu_memory_utilization=0.25)) == pytest.approx(0.9)
    assert share(config, classmates(2, "vllm", placement="dedicated")) == pytest.approx(0.4)
    # Two GPUs: classmates of one GPU each stand on different ones, one of two GPUs on both.
    two = changed(config, trainer__n_gpus_per_node=2)
    assert share(two, classmates(2, "vllm", gpu_memory_utilization=0.25)) == pytest.approx(0.65)
    assert share(two, classmates(1, "vllm", gpu_memory_utilization=0.25, tensor_parallel_size=2)) == pytest.approx(0.65)
    assert share(changed(config, trainer__device="cpu"), classmates(2, "vllm")) == 0


@pytest.mark.guards("fixed 0.8 memory for each of M engines")
def test_more_than_a_whole_gpu_is_refused_with_the_keys(gpu_config, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    config = changed(gpu_config, actor_rollout_ref__rollout__gpu_memory_utilization=0.5)
    with pytest.raises(ConfigError, match="150%") as refused:
        check_devices(config, classmates(2, "vllm", "streamed", gpu_memory_utilization=0.5))
    assert "reward_model.classmate_schedule=batched" in str(refused.value)
    assert "actor_rollout_ref.rollout.gpu_memory_utilization=0.3" in str(refused.value)
    assert "reward_model.classmate_vllm_configs.gpu_memory_utilization=0.3" in str(refused.value)
    check_devices(config, classmates(2, "vllm", gpu_memory_utilization=0.25))


@pytest.mark.parametrize("there", [0, 1])
def test_more_gpus_than_there_are(gpu_config, monkeypatch, there):
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    config = changed(gpu_config, trainer__n_gpus_per_node=2)
    fix = "hardware=cpu" if there == 0 else "trainer.n_gpus_per_node=1"
    with pytest.raises(ConfigError, match=f"has {there} GPUs; write {fix}"):
        check_devices(config, classmates(0, "hf"))


def test_a_cluster_is_not_judged_by_this_machine(gpu_config, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    check_devices(changed(gpu_config, trainer__n_gpus_per_node=64), classmates(0, "hf"))


def sizes(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    small = {
        "data__train_batch_size": 16,
        "actor_rollout_ref__rollout__n": 8,
        "actor_rollout_ref__actor__ppo_mini_batch_size": 16,
    }
    return changed(config, **(small | changes))


def test_batches_that_upstream_would_assert_on(cpu_config):
    check_batch_sizes(sizes(cpu_config))
    with pytest.raises(ConfigError, match=r"actor\.ppo_micro_batch_size_per_gpu=96 .* 128 rows .*per_gpu=32"):
        check_batch_sizes(sizes(cpu_config, actor_rollout_ref__actor__ppo_micro_batch_size_per_gpu=96))
    with pytest.raises(ConfigError, match=r"rollout\.log_prob_micro_batch_size_per_gpu=48"):
        check_batch_sizes(sizes(cpu_config, actor_rollout_ref__rollout__log_prob_micro_batch_size_per_gpu=48))
    with pytest.raises(ConfigError, match="cannot be divided evenly among 3 ranks"):
        check_batch_sizes(sizes(cpu_config, trainer__n_gpus_per_node=3))


def test_batches_by_tokens_and_absent_references_are_exempt(cpu_config):
    check_batch_sizes(
        sizes(
            cpu_config,
            actor_rollout_ref__actor__ppo_micro_batch_size_per_gpu=96,
            actor_rollout_ref__actor__use_dynamic_bsz=True,
            actor_rollout_ref__ref__log_prob_micro_batch_size_per_gpu=96,
        )
    )


SPLIT = "actor_rollout_ref__actor__ulysses_sequence_parallel_size"


@pytest.mark.parametrize("node", [SPLIT, "actor_rollout_ref__actor__fsdp_config__ulysses_sequence_parallel_size"])
def test_ranks_that_share_a_sequence_share_its_rows(gpu_config, node):
    """8 GPUs, two of them to a sequence: four ranks of 2 prompts x 2 rows; by eight there would be 2 rows for each."""
    rows = {"data__train_batch_size": 8, "actor_rollout_ref__actor__ppo_mini_batch_size": 8}
    rows |= {"actor_rollout_ref__rollout__n": 2, "trainer__n_gpus_per_node": 8}
    micro = "actor_rollout_ref__actor__ppo_micro_batch_size_per_gpu"
    log_prob = "actor_rollout_ref__rollout__log_prob_micro_batch_size_per_gpu"
    four = changed(gpu_config, **rows, **{micro: 4, log_prob: 4})
    check_batch_sizes(changed(four, **{node: 2}))
    with pytest.raises(ConfigError, match="does not divide the 2 rows of a rank"):
        check_batch_sizes(four)
    with pytest.raises(ConfigError, match="per_gpu=8 does not divide the 4 rows of a rank"):
        check_batch_sizes(changed(four, **{node: 2, micro: 8}))
    # 12 rows: over six ranks of two GPUs, not over the eight of sixteen.
    twelve = changed(four, data__train_batch_size=6, actor_rollout_ref__actor__ppo_mini_batch_size=6)
    check_batch_sizes(changed(twelve, trainer__n_gpus_per_node=12, **{node: 2, micro: 2, log_prob: 2}))
    with pytest.raises(ConfigError, match="rows cannot be divided evenly among 16 ranks"):
        check_batch_sizes(changed(twelve, trainer__n_gpus_per_node=16, **{node: 2}))


@pytest.mark.parametrize("rollouts", [1, 3])
def test_rows_not_split_over_the_ranks_are_told_with_our_keys(cpu_config, rollouts):
    seven = {"data__train_batch_size": 7, "actor_rollout_ref__actor__ppo_mini_batch_size": 6}
    seven |= {"actor_rollout_ref__rollout__n": rollouts, "trainer__n_gpus_per_node": 2}
    log_prob = {"actor_rollout_ref__rollout__log_prob_micro_batch_size_per_gpu": 1}
    config = changed(cpu_config, actor_rollout_ref__actor__ppo_micro_batch_size_per_gpu=1, **seven, **log_prob)
    rows = 7 * rollouts
    expected = rf"data\.train_batch_size=7 .* = {rows} rows cannot be divided .*; write data\.train_batch_size=6"
    with pytest.raises(ConfigError, match=expected):
        check_batch_sizes(config)
    check_batch_sizes(changed(config, data__train_batch_size=6))
    config = changed(config, data__train_batch_size=8, actor_rollout_ref__actor__ppo_mini_batch_size=5)
    with pytest.raises(
        ConfigError, match=r"write actor_rollout_ref\.actor\.ppo_mini_batch_size=4, or another multiple"
    ):
        check_batch_sizes(config)


def test_a_critic_has_whole_micro_batches_too(cpu_config):
    config = sizes(cpu_config, critic__ppo_micro_batch_size_per_gpu=7)
    check_batch_sizes(config)
    with pytest.raises(ConfigError, match=r"critic\.ppo_micro_batch_size_per_gpu=7 does not divide the 128 .*gpu=1$"):
        check_batch_sizes(changed(config, algorithm__adv_estimator="gae"))


SHARE = "actor_rollout_ref.rollout.gpu_memory_utilization"


@pytest.mark.parametrize(
    ("key", "given", "message"),
    [
        *((SHARE, given, f"{SHARE}=.*; write {SHARE}=0.5, or another") for given in (0, -0.1, 1.5, 80, "half", True)),
        ("actor_rollout_ref.rollout.max_model_len", 100, r"is less than .* = 2048 tokens; write .*max_model_len=2048"),
        ("actor_rollout_ref.actor.ppo_max_token_len_per_gpu", 10, r"=10 is less than .*ppo_max_.*=2048 or more"),
        ("actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu", 2047, r"log_prob_max_token_len_per_gpu=2048 or"),
    ],
)
def test_what_rows_and_engine_have_no_room_for(cpu_config, key, given, message):
    by_tokens = changed(cpu_config, actor_rollout_ref__actor__use_dynamic_bsz=True)
    by_tokens = changed(by_tokens, actor_rollout_ref__rollout__log_prob_use_dynamic_bsz=True)
    check_engine_settings(by_tokens)
    with pytest.raises(ConfigError, match=message):
        check_engine_settings(changed(by_tokens, **{key.replace(".", "__"): given}))
    if "token_len" in key:
        check_engine_settings(changed(cpu_config, **{key.replace(".", "__"): given}))
    if given == 2047:
        shared = changed(by_tokens, actor_rollout_ref__actor__ulysses_sequence_parallel_size=2)
        check_engine_settings(changed(shared, **{key.replace(".", "__"): 1024}))


@pytest.mark.parametrize(
    "key",
    [
        "actor_rollout_ref.actor.ppo_epochs",
        "actor_rollout_ref.actor.ulysses_sequence_parallel_size",
        "actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size",
        "actor_rollout_ref.ref.ulysses_sequence_parallel_size",
        "critic.ulysses_sequence_parallel_size",
        "critic.ppo_epochs",
    ],
)
@pytest.mark.parametrize("given", [0, -1, 1.5])
def test_counts_start_at_one(cpu_config, key, given):
    check_counts(cpu_config)
    with pytest.raises(ConfigError, match=f"{key}: expected an integer of 1 or more"):
        check_counts(changed(cpu_config, **{key.replace(".", "__"): given}))


@pytest.mark.parametrize(("prompt", "response", "behind"), [(64, 100_000, 0), (1024, 100_000, 0), (200, 200, 100)])
def test_unreadable_lengths_are_told_with_readable_ones(tmp_path, prompt, response, behind):
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 600}')
    read = {"key": "model", "path": str(tmp_path), "classmate": bool(behind)}
    if prompt + response + behind <= 600:
        check_context(**read, needed=prompt + response + behind, prompt=prompt, response=response)
        response = 100_000
    with pytest.raises(ConfigError, match="reads at most 600 tokens") as told:
        check_context(**read, needed=prompt + response + behind, prompt=prompt, response=response)
    written = dict(re.findall(r"data\.max_(prompt|response)_length=(\d+)", str(told.value)))
    prompt, response = int(written.get("prompt", prompt)), int(written["response"])
    assert prompt + response + behind == 600
    check_context(**read, needed=600, prompt=prompt, response=response)


def test_groups_of_one_row_are_warned_of():
    assert group_notes(AlgorithmConfig(), rollouts=8) == []
    for name in ("gdpo_classmate", "grpo", "rloo"):
        (line,) = group_notes(AlgorithmConfig(adv_estimator=name), rollouts=1)
        assert line.startswith(f"warning: actor_rollout_ref.rollout.n=1 leaves {name} nothing to compare")
    for name in ("gae", "remax", "reinforce_plus_plus"):
        assert group_notes(AlgorithmConfig(adv_estimator=name), rollouts=1) == []
    assert group_notes(AlgorithmConfig(singleton_group="raw"), rollouts=1) == []


def test_sequences_are_split_only_where_attention_joins_them(cpu_config, gpu_config, monkeypatch):
    packed = {"actor_rollout_ref__model__use_remove_padding": True, "trainer__n_gpus_per_node": 2}
    split = changed(gpu_config, **packed, **{SPLIT: 2})
    installed = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: "yes" if name == "flash_attn" else installed(name))
    check_sequence_parallel(split)
    check_sequence_parallel(changed(cpu_config, **packed))
    attention = {"actor_rollout_ref__model__override_config": {"attn_implementation": "sdpa"}}
    with pytest.raises(ConfigError, match=r"actor\.ulysses_sequence_parallel_size=2 needs flash.* is sdpa, .*size=1"):
        check_sequence_parallel(changed(split, **attention))
    with pytest.raises(ConfigError, match="needs flash-attention, but attention here is sdpa"):
        check_sequence_parallel(changed(cpu_config, **packed, **{SPLIT: 2}))
    with pytest.raises(ConfigError, match=r"write actor_rollout_ref\.model\.use_remove_padding=true"):
        check_sequence_parallel(changed(split, actor_rollout_ref__model__use_remove_padding=False))
    with pytest.raises(ConfigError, match=r"=2 does not divide the trainer's 3 GPUs; write .*=1"):
        check_sequence_parallel(changed(split, trainer__n_gpus_per_node=3))
    with pytest.raises(ConfigError, match=r"critic\.ulysses_sequence_parallel_size=2 needs flash-attention"):
        check_sequence_parallel(changed(cpu_config, critic__ulysses_sequence_parallel_size=2))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "flash_attn" else installed(name))
    with pytest.raises(ConfigError, match="needs flash-attention, but attention here is sdpa"):
        check_sequence_parallel(split)


def test_the_embedded_engine_needs_merged_adapters(cpu_config, gpu_config):
    check_lora(cpu_config)
    check_lora(changed(gpu_config, actor_rollout_ref__model__lora_rank=8))
    adapters = changed(cpu_config, actor_rollout_ref__model__lora_rank=8)
    with pytest.raises(ConfigError, match=r"lora_rank=8 .* write actor_rollout_ref\.model\.lora\.merge=true"):
        check_lora(adapters)
    check_lora(changed(adapters, actor_rollout_ref__model__lora={"rank": 0, "merge": True}))


@pytest.mark.parametrize(
    ("key", "value", "instead"),
    [
        ("actor_rollout_ref__rollout__name", "vllm", "hf"),
        ("trainer__n_gpus_per_node", 2, "1"),
        ("trainer__nnodes", 2, "1"),
        ("actor_rollout_ref__actor__ppo_mini_batch_size", 12, "16"),
        ("data__gen_batch_size", 4, "null"),
        ("actor_rollout_ref__model__lora_rank", 8, "0"),
    ],
)
def test_what_one_process_cannot_do_is_refused_in_debug_mode(cpu_config, key, value, instead):
    config = sizes(cpu_config, debug=True)
    check_debug(config, classmates(2, "hf"))
    refused = changed(config, **{key: value})
    with pytest.raises(ConfigError, match=f"{key.replace('__', '.')}={instead}"):
        check_debug(refused, classmates(2, "hf"))


@pytest.mark.parametrize("debug", [False, True])
def test_debug_mode_has_checks_of_its_own(cpu_config, monkeypatch, debug):
    asked = []
    for name in ("check_debug", "check_devices"):
        monkeypatch.setattr(preflight, name, lambda *_, name=name: asked.append(name))
    config = changed(cpu_config, debug=debug, data__train_files="/nowhere/train.parquet")
    with pytest.raises(ConfigError, match=r"/nowhere/train\.parquet"):
        preflight.check(config, RunConfig.read(config, trainer_name="baseline"))
    assert asked == ["check_debug" if debug else "check_devices"]


def test_classmates_on_vllm_are_refused_in_debug_mode(cpu_config):
    with pytest.raises(ConfigError, match=r"reward_model\.classmate_backend=hf"):
        check_debug(sizes(cpu_config, debug=True), classmates(1, "vllm"))


@pytest.mark.parametrize("value", ["abc", 0, -1, 1.5, True])
@pytest.mark.parametrize(
    "key",
    [
        "trainer.total_training_steps",
        "trainer.total_epochs",
        "data.val_batch_size",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
    ],
)
def test_counts_are_integers_from_1_on(cpu_config, key, value):
    check_counts(cpu_config)
    with pytest.raises(ConfigError, match=f"{key}: expected an integer of 1 or more") as refused:
        check_counts(changed(cpu_config, **{key.replace(".", "__"): value}))
    assert (", or null" in str(refused.value)) == (key != "trainer.total_epochs")


@pytest.mark.parametrize("key", ["project_name", "experiment_name", "default_local_dir"])
def test_names_are_text(cpu_config, key):
    check_names(cpu_config)
    for value in (2026, "", True):
        with pytest.raises(ConfigError, match=rf"trainer\.{key}: expected text, got {value!r}; write trainer\.{key}="):
            check_names(changed(cpu_config, **{f"trainer__{key}": value}))


@pytest.mark.parametrize("key", ["trainer.console", "trainer.logger", "debug", "data.train_batch_size"])
def test_a_key_that_was_removed_is_named(cpu_config, key):
    config = copy.deepcopy(cpu_config)
    *nodes, leaf = key.split(".")
    node = config
    for name in nodes:
        node = node[name]
    del node[leaf]
    with pytest.raises(ConfigError, match=rf"{key} is missing; write \+{key}=VALUE"):
        preflight.check(config, RunConfig.read(config, trainer_name="classmate_cot"))
