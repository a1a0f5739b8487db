"""Every field of a config acts, and becomes the keys of the trainer that its documentation says."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from verl.reasoning.rl.config import PureRLConfig
from verl.reasoning.rl.overrides import InputFiles, overrides
from verl.stepwise.config import ReasoningConfig
from verl.trainer.run.command_line import CONFIG_FOLDER, prepare_overrides

FILES = InputFiles(
    train=Path("/in/train.parquet"), validation=None, reward=Path("/in/reward_fn.py"), problems=64, reward_range=(0, 1)
)
HERE = {"output_dir", "preset", "resume", "log_interval", "reward_timeout_s", "prompt_template"}
"""Fields that act in the process that starts the training."""
OTHER: dict[str, Any] = {
    "model_name": "other",
    "algorithm": "rloo",
    "lr_schedule": "cosine",
    "policy_loss": "clip_cov",
    "process_credit": "min_form",
    "loss_aggregation": "seq-mean-token-mean",
    "kl_mode": "reward",
    "schedule_kind": "linear",
    "temperature_points": ((0, 1.0), (5, 0.5)),
    "entropy_points": ((0, 0.1), (5, 0.0)),
    "device": "cpu",
    "engine": "hf",
    "precision": "fp16",
    "loggers": ("tensorboard",),
    "overrides": ("trainer.nnodes=2",),
    "max_prompt_length": 100,
}
PIECEWISE = {"schedule_kind": "piecewise", "temperature_points": ((0, 1.0),), "entropy_points": ((0, 0.0),)}
PROCESS = ("process_credit", "process_coef", "process_max_share", "process_outcome_gate", "process_max_step_growth",
           "process_stop_after", "process_max_junk")  # fmt: skip

WITH: dict[str, dict[str, Any]] = {
    "value_clip": {"algorithm": "gae"},
    "gamma": {"algorithm": "gae"},
    "lam": {"algorithm": "gae"},
    "critic_learning_rate": {"algorithm": "gae"},
    "target_kl": {"kl_mode": "adaptive"},
    "kl_horizon": {"kl_mode": "adaptive"},
    "lora_alpha": {"lora_rank": 8},
    "temperature_points": PIECEWISE,
    "entropy_points": PIECEWISE,
    "temperature_start": {"temperature_end": 0.1},
    "entropy_coef_end": {"entropy_coef_start": 2.0},
    "target_entropy": {"entropy_coef_start": 0.01},
    "in_process": {"dynamic_sampling": False},
    **{name: {"process_model": "models/prm"} for name in PROCESS},
}
"""Fields that act with others."""


def written(**given: Any) -> list[str]:
    config = PureRLConfig(**{"model_name": "models/policy", **given})
    return overrides(config, FILES, iterations=50, folder=Path("/out/run"))


def composed(**given: Any) -> Any:
    with initialize_config_dir(str(CONFIG_FOLDER), version_base=None):
        return compose("qwen_ppo_trainer", overrides=prepare_overrides(["hardware=cpu", *written(**given)]))


def another(field: dataclasses.Field) -> Any:
    if field.name in OTHER:
        return OTHER[field.name]
    if isinstance(field.default, bool) or field.default is None:
        return not field.default if isinstance(field.default, bool) else 7
    return field.default / 2 if isinstance(field.default, float) and field.default else field.default + 1


@pytest.mark.parametrize("field", dataclasses.fields(PureRLConfig), ids=lambda field: field.name)
def test_every_field_acts(field: dataclasses.Field) -> None:
    if field.name in HERE:
        return
    around = WITH.get(field.name, {})
    value = 0.5 if field.name == "target_entropy" else another(field)
    assert written(**around) != written(**{**around, field.name: value})


def test_a_group_trained_with_the_defaults() -> None:
    config = composed()
    actor, rollout, algorithm = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout, config.algorithm
    assert config.actor_rollout_ref.model.path == "models/policy"
    assert (config.data.train_batch_size, rollout.n, actor.ppo_mini_batch_size, actor.ppo_epochs) == (32, 8, 32, 1)
    assert (config.data.max_prompt_length, config.data.max_response_length) == (1024, 1024)
    assert (actor.clip_ratio_low, actor.clip_ratio_high, actor.policy_loss.loss_mode) == (0.2, 0.28, "vanilla")
    assert (actor.use_kl_loss, actor.kl_loss_coef, actor.kl_loss_type) == (True, 0.001, "low_var_kl")
    assert (actor.optim.lr, actor.optim.override_optimizer_config.eps) == (1e-6, 1e-8)
    assert (algorithm.adv_estimator, algorithm.norm_adv_by_std_in_grpo, actor.loss_agg_mode) == (
        "grpo",
        True,
        "token-mean",
    )
    assert (algorithm.filter_groups.enable, algorithm.filter_groups.metric) == (True, "base_reward")
    assert (config.trainer.total_training_steps, config.trainer.save_freq, config.trainer.test_freq) == (50, 100, -1)
    assert config.reward.custom_reward_function.path == "/in/reward_fn.py"
    reasoning = ReasoningConfig.read(config.reasoning)
    assert [reasoning.temperature.schedule(usual=9, total_steps=50).at(step) for step in (0, 49)] == [1.0, 1.0]
    assert [reasoning.entropy_coeff.schedule(usual=9, total_steps=50).at(step) for step in (0, 49)] == [0.0, 0.0]


@pytest.mark.guards("value clip unused", "T falling to 0.3")
def test_the_originals_values() -> None:
    config = composed(preset="seed", save_interval=5)
    actor, algorithm = config.actor_rollout_ref.actor, config.algorithm
    assert (algorithm.adv_estimator, algorithm.gamma, algorithm.lam) == ("gae", 0.99, 0.95)
    assert (config.critic.cliprange_value, config.critic.optim.lr, config.critic.optim.lr_scheduler_type) == (
        0.2,
        2e-5,
        "cosine",
    )
    assert (actor.optim.lr, actor.optim.min_lr_ratio, actor.optim.override_optimizer_config.eps) == (1e-5, 0.1, 1e-5)
    assert (config.data.train_batch_size, actor.ppo_mini_batch_size, actor.ppo_epochs) == (4, 1, 4)
    assert (actor.kl_loss_coef, actor.clip_ratio_high, config.actor_rollout_ref.rollout.n) == (0.02, 0.2, 1)
    reasoning = ReasoningConfig.read(config.reasoning)
    temperature = reasoning.temperature.schedule(usual=1.0, total_steps=1000)
    assert (temperature.at(0), temperature.at(276) > 0.3, temperature.at(277)) == (1.2, True, 0.3)
    entropy = reasoning.entropy_coeff.schedule(usual=0.0, total_steps=1000)
    assert (entropy.at(0), entropy.at(458) > 0.001, entropy.at(459)) == (0.1, True, 0.001)


def test_a_value_that_is_given_counts_beside_the_preset() -> None:
    config = PureRLConfig(model_name="m", preset="seed", temperature_start=1.0, algorithm="grpo", group_size=8)
    assert (config.temperature_start, config.temperature_end, config.algorithm) == (1.0, 0.3, "grpo")
    assert dataclasses.replace(config, seed=2).temperature_start == 1.0


def test_dr_grpo_keeps_its_kl_and_adapters_are_merged() -> None:
    config = composed(algorithm="dr_grpo", lora_rank=8, kl_mode="adaptive", kl_coef=0.05, precision="bf16")
    assert config.algorithm.norm_adv_by_std_in_grpo is False
    assert config.actor_rollout_ref.actor.loss_agg_mode == "seq-mean-token-sum-norm"
    assert config.actor_rollout_ref.actor.use_kl_loss is False
    assert config.algorithm.use_kl_in_reward is True
    assert OmegaConf.to_container(config.algorithm.kl_ctrl) | {"type": "adaptive", "kl_coef": 0.05} == (
        OmegaConf.to_container(config.algorithm.kl_ctrl)
    )
    model = config.actor_rollout_ref.model
    assert (model.lora_rank, model.lora_alpha, model.lora.merge) == (8, 32, True)
    assert config.actor_rollout_ref.actor.optim.lr == 1e-5
    assert config.actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype == "bf16"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"group_size": 1}, "write group_size=8, or algorithm='gae'"),
        ({"prompt_template": "solve it"}, "write {problem} where it belongs"),
        ({"temperature_start": 0.0}, "temperature_start=0.0 is not above 0"),
        ({"fp16": True, "precision": "bf16"}, "disagree"),
        ({"in_process": True}, "write dynamic_sampling=False"),
        ({"preset": "sed"}, "write 'seed'"),
        ({"kl_coef": 0.0, "ref_sync_every": 4}, "kl_coef=0 has none"),
        ({"max_prompt_length": 2048}, "leaves no token"),
    ],
)
def test_mistakes(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        PureRLConfig(model_name="m", **given)
