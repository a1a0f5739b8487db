"""On which keys of the trainer each option of `PureRLConfig` acts.

One decision: one table, read top to bottom; an option that stands in no line would do nothing, and a test says so.

    >>> overrides(PureRLConfig(model_name="models/base"), folder, steps=100)
    ['actor_rollout_ref.model.path=models/base', ...]
"""

from pathlib import Path
from typing import Any

from verl.reasoning.rl.config import PureRLConfig

TRAIN, VAL = "train.parquet", "val.parquet"
REWARD, REWARD_NAME = "reward.py", "compute_score"
RUN = "run"
"""Folder of the trainer's run, in `output_dir`."""

_ESTIMATORS = {"grpo": "grpo", "dr_grpo": "drgrpo", "rloo": "rloo", "gae": "gae"}


def overrides(config: PureRLConfig, folder: Path, *, steps: int) -> list[str]:
    """Hydra overrides for a run of some steps, whose rows and reward lie in `folder`."""
    mini = config.mini_batch_size or config.batch_size
    save = config.save_interval or steps
    keys: dict[str, Any] = {
        "actor_rollout_ref.model.path": config.model_name,
        "actor_rollout_ref.model.enable_gradient_checkpointing": config.gradient_checkpointing,
        "data.train_files": folder / TRAIN,
        "data.val_files": folder / VAL,
        "data.train_batch_size": config.batch_size,
        "data.max_prompt_length": config.prompt_length,
        "data.max_response_length": config.max_length - config.prompt_length,
        "data.seed": config.seed,
        "algorithm.adv_estimator": _ESTIMATORS[config.algorithm],
        "algorithm.filter_groups.enable": config.dynamic_sampling and config.algorithm != "gae",
        "actor_rollout_ref.rollout.n": config.group_size,
        "actor_rollout_ref.rollout.temperature": config.temperature_start,
        "actor_rollout_ref.actor.optim.lr": config.learning_rate,
        "actor_rollout_ref.actor.optim.weight_decay": config.weight_decay,
        "actor_rollout_ref.actor.optim.lr_scheduler_type": config.lr_schedule,
        "actor_rollout_ref.actor.grad_clip": config.max_grad_norm,
        "actor_rollout_ref.actor.ppo_mini_batch_size": mini,
        "actor_rollout_ref.actor.ppo_epochs": config.ppo_epochs,
        "actor_rollout_ref.actor.clip_ratio": config.clip_epsilon,
        "actor_rollout_ref.actor.clip_ratio_low": config.clip_epsilon,
        "actor_rollout_ref.actor.clip_ratio_high": config.clip_epsilon_high,
        "reward.custom_reward_function.path": folder / REWARD,
        "reward.custom_reward_function.name": REWARD_NAME,
        # The reward is handed all that was written, and finds thought and answer by itself.
        "reward_model.cot_format": "plain",
        "reward_model.classmate_cot_reward_configs.classmate_continue_mode": "immediate_answer",
        "trainer.total_training_steps": steps,
        "trainer.save_freq": min(save, steps),
        "trainer.test_freq": min(save, steps) if config.validation_problems else -1,
        "trainer.val_before_train": False,
        "trainer.default_local_dir": folder / RUN,
        "trainer.logger": "[wandb]" if config.use_wandb else "[]",
    }
    keys |= _schedules(config) | _divergence(config)
    if config.lr_schedule == "cosine":
        keys["actor_rollout_ref.actor.optim.min_lr_ratio"] = 0.1
    if config.micro_batch_size is not None:
        keys["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"] = config.micro_batch_size
        keys["actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu"] = config.micro_batch_size
    if config.algorithm == "gae":
        keys |= {
            "algorithm.gamma": config.gamma,
            "algorithm.lam": config.lam,
            "critic.cliprange_value": config.value_clip,
            "critic.optim.lr": config.critic_lr * config.vf_coef,
            "critic.grad_clip": config.max_grad_norm,
        }
    if config.lora_rank:
        keys["actor_rollout_ref.model.lora_rank"] = config.lora_rank
        keys["actor_rollout_ref.model.lora_alpha"] = 2 * config.lora_rank
    if config.device != "auto":
        keys["hardware"] = "gpu" if config.device == "cuda" else "cpu"
    if config.precision != "auto":
        keys["actor_rollout_ref.actor.fsdp_config.dtype"] = {"fp32": "float32", "bf16": "bfloat16"}[config.precision]
    return [f"{key}={_text(value)}" for key, value in keys.items()] + list(config.overrides)


def _schedules(config: PureRLConfig) -> dict[str, Any]:
    """Of temperature and entropy; what does not change stays a number."""
    keys: dict[str, Any] = {}
    values = {
        "temperature": (config.temperature_start, config.temperature_end, config.temperature_decay),
        "entropy_coeff": (config.entropy_coef_start, config.entropy_coef_end, config.entropy_coef_decay),
    }
    for name, (start, end, decay) in values.items():
        node = f"reasoning.{name}"
        keys[f"{node}.start"] = start
        if start != end and not (name == "entropy_coeff" and config.target_entropy is not None):
            keys |= {f"{node}.kind": config.schedule_kind, f"{node}.end": end, f"{node}.decay": decay}
    if config.target_entropy is not None:
        keys["reasoning.target_entropy"] = config.target_entropy
    keys["reasoning.ref_sync_every"] = config.ref_sync_every
    keys["reasoning.overlong_buffer"] = config.overlong_buffer
    return keys


def _divergence(config: PureRLConfig) -> dict[str, Any]:
    """Of the KL."""
    if not config.kl_coef:
        return {"actor_rollout_ref.actor.use_kl_loss": False, "algorithm.use_kl_in_reward": False}
    if config.kl_in == "loss":
        return {
            "actor_rollout_ref.actor.use_kl_loss": True,
            "actor_rollout_ref.actor.kl_loss_coef": config.kl_coef,
            "actor_rollout_ref.actor.kl_loss_type": "low_var_kl",
        }
    return {
        "algorithm.use_kl_in_reward": True,
        "algorithm.kl_ctrl.type": "adaptive",
        "algorithm.kl_ctrl.kl_coef": config.kl_coef,
        "algorithm.kl_ctrl.target_kl": config.target_kl,
        "algorithm.kl_ctrl.horizon": 10000,
    }


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
