"""From a config of the pipeline to settings of the project's trainer, one line each.

One decision: a table from fields to keys, which a test composes; what the machine decides is left to the trainer.

    >>> overrides(PureRLConfig(model_name="models/policy"), files, iterations=100, folder=folder)
    ['actor_rollout_ref.model.path=models/policy', 'trainer.total_training_steps=100', ...]
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl.reasoning.rl.config import PureRLConfig
from verl.stepwise.schedules import Schedule

ACTOR, ROLLOUT, MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.model"
_LOSS_MODES = {"clip": "vanilla", "clip_cov": "clip_cov", "kl_cov": "kl_cov"}
MOST_LEFT_OUT = 20
"""Batches of groups that dynamic sampling may leave out until it has filled one."""


@dataclass(frozen=True, kw_only=True)
class InputFiles:
    """What a training reads."""

    train: Path
    """Parquet rows of the problems."""
    validation: Path | None
    """Parquet rows of the validation problems; None: there are none."""
    reward: Path
    """Python file with `compute_score`."""
    problems: int
    """How many problems there are to train on."""
    reward_range: tuple[float | None, float | None]
    """Lowest and highest score."""


def overrides(config: PureRLConfig, files: InputFiles, *, iterations: int, folder: Path) -> list[str]:
    """Arguments of `python -m verl.trainer.qwen_main_ppo`.

    Args:
        config: of the training.
        files: its inputs.
        iterations: steps.
        folder: the run folder.
    """
    found = {
        **_data(config, files),
        **_algorithm(config),
        **_optimizer(config),
        **_kl(config),
        **_schedules(config, iterations),
        **_machine(config),
        **_logging(config, files),
        "trainer.total_training_steps": iterations,
        "trainer.default_local_dir": folder,
    }
    return [*(f"{key}={_written(value)}" for key, value in found.items()), *config.overrides]


def _data(config: PureRLConfig, files: InputFiles) -> dict[str, Any]:
    batch = min(config.batch_size, files.problems)
    mini = batch if config.mini_batch_size is None else min(config.mini_batch_size, batch)
    found = {
        f"{MODEL}.path": config.model_name,
        "data.train_files": files.train,
        # Upstream wants a file in any case.
        "data.val_files": files.validation or files.train,
        "data.max_prompt_length": config.prompt_tokens,
        "data.max_response_length": config.response_tokens,
        "data.train_batch_size": batch,
        "data.seed": config.seed,
        f"{ACTOR}.ppo_mini_batch_size": mini,
        f"{ROLLOUT}.n": config.group_size,
        "reward.custom_reward_function.path": files.reward,
        "reward_model.custom_reward_range": list(files.reward_range),
        # The whole response is the reward's, which reads thoughts and answers itself.
        "reward_model.cot_format": "plain",
        "reward_model.classmate_cot_reward_configs.classmate_continue_mode": "immediate_answer",
        "reasoning.overlong_buffer": config.overlong_buffer,
        "reasoning.overlong_penalty": config.overlong_penalty,
    }
    if config.gradient_accumulation_steps is not None:
        rows = max(1, mini * config.group_size // config.gradient_accumulation_steps)
        found[f"{ACTOR}.ppo_micro_batch_size_per_gpu"] = rows
    return found


def _algorithm(config: PureRLConfig) -> dict[str, Any]:
    without_std = config.algorithm == "dr_grpo"
    found: dict[str, Any] = {
        "algorithm.adv_estimator": "grpo" if without_std else config.algorithm,
        "algorithm.norm_adv_by_std_in_grpo": not without_std,
        f"{ACTOR}.loss_agg_mode": "seq-mean-token-sum-norm" if without_std else config.loss_aggregation,
        f"{ACTOR}.ppo_epochs": config.ppo_epochs,
        f"{ACTOR}.clip_ratio": config.clip_epsilon,
        f"{ACTOR}.clip_ratio_low": config.clip_epsilon,
        f"{ACTOR}.clip_ratio_high": config.clip_epsilon_high,
        f"{ACTOR}.policy_loss.loss_mode": _LOSS_MODES[config.policy_loss],
        "algorithm.filter_groups.enable": config.dynamic_sampling,
        "reasoning.most_left_out": MOST_LEFT_OUT,
    }
    if config.process_model is not None:
        found |= {
            "algorithm.adv_estimator": config.process_credit,
            "reward_model.process.model": config.process_model,
            "reward_model.process.coef": config.process_coef,
            "reward_model.process.max_share_of_variance": config.process_max_share,
            "reward_model.process.outcome_gate": config.process_outcome_gate,
            "reward_model.process.max_step_growth": config.process_max_step_growth,
            "reward_model.process.stop_after": config.process_stop_after,
            "reward_model.process.max_junk_score": config.process_max_junk,
        }
    if config.dynamic_sampling:
        # A row without a reward is none that is the same as others.
        found["algorithm.filter_groups.metric"] = "base_reward"
    if config.algorithm == "gae":
        found |= {
            "algorithm.gamma": config.gamma,
            "algorithm.lam": config.lam,
            "critic.cliprange_value": config.value_clip,
            "critic.grad_clip": config.max_grad_norm,
        }
    return found


def _optimizer(config: PureRLConfig) -> dict[str, Any]:
    rates = {f"{ACTOR}.optim": config.rate}
    if config.algorithm == "gae":
        rates["critic.optim"] = config.critic_learning_rate or 2 * config.rate
    found: dict[str, Any] = {
        f"{ACTOR}.grad_clip": config.max_grad_norm,
        f"{ACTOR}.optim.clip_grad": config.max_grad_norm,
    }
    for node, rate in rates.items():
        found |= {
            f"{node}.lr": rate,
            f"{node}.lr_scheduler_type": config.lr_schedule,
            f"{node}.min_lr_ratio": 0.1 if config.lr_schedule == "cosine" else 0.0,
            f"{node}.lr_warmup_steps": config.lr_warmup_steps,
            f"{node}.override_optimizer_config": {"eps": config.adam_epsilon},
        }
    return found


def _kl(config: PureRLConfig) -> dict[str, Any]:
    in_loss = config.kl_mode == "loss"
    found: dict[str, Any] = {f"{ACTOR}.use_kl_loss": bool(config.kl_coef) and in_loss}
    if config.kl_coef and in_loss:
        found |= {f"{ACTOR}.kl_loss_coef": config.kl_coef, f"{ACTOR}.kl_loss_type": "low_var_kl"}
    elif config.kl_coef:
        found |= {
            "algorithm.use_kl_in_reward": True,
            "algorithm.kl_penalty": "kl",
            "algorithm.kl_ctrl.type": "adaptive" if config.kl_mode == "adaptive" else "fixed",
            "algorithm.kl_ctrl.kl_coef": config.kl_coef,
            "algorithm.kl_ctrl.target_kl": config.target_kl,
            "algorithm.kl_ctrl.horizon": config.kl_horizon,
        }
    found["reasoning.ref_sync_every"] = config.ref_sync_every
    return found


def _schedules(config: PureRLConfig, iterations: int) -> dict[str, Any]:
    temperature, entropy = config.temperature(iterations), config.entropy(iterations)
    found: dict[str, Any] = {
        **_schedule("reasoning.temperature", temperature),
        **_schedule("reasoning.entropy_coeff", entropy),
        "reasoning.hold_temperature": config.hold_temperature,
    }
    if config.target_entropy is not None:
        found["reasoning.target_entropy"] = config.target_entropy
    return found


def _schedule(node: str, schedule: Schedule) -> dict[str, Any]:
    found: dict[str, Any] = {
        f"{node}.kind": schedule.kind,
        f"{node}.start": schedule.start,
        f"{node}.end": schedule.end,
    }
    if schedule.kind == "exp":
        found[f"{node}.decay"] = schedule.decay
    if schedule.kind in ("linear", "cosine"):
        found[f"{node}.steps"] = schedule.steps
    if schedule.kind == "piecewise":
        found[f"{node}.points"] = [list(point) for point in schedule.points]
    return found


def _machine(config: PureRLConfig) -> dict[str, Any]:
    found: dict[str, Any] = {"trainer.deterministic": config.deterministic, "debug": config.in_process}
    if config.device != "auto":
        found["hardware"] = "cpu" if config.device == "cpu" else "gpu"
    if config.num_gpus is not None:
        found["trainer.n_gpus_per_node"] = config.num_gpus
    if config.engine != "auto":
        found[f"{ROLLOUT}.name"] = config.engine
    if config.gradient_checkpointing is not None:
        found[f"{MODEL}.enable_gradient_checkpointing"] = config.gradient_checkpointing
    if config.lora_rank:
        found |= {
            f"{MODEL}.lora_rank": config.lora_rank,
            f"{MODEL}.lora_alpha": config.lora_alpha,
            f"{MODEL}.lora.merge": True,
        }
    return found | _precision(config)


def _precision(config: PureRLConfig) -> dict[str, Any]:
    if config.number_format == "auto":
        return {}
    short = config.number_format
    long = {"bf16": "bfloat16", "fp32": "float32", "fp16": "float16"}[short]
    nodes = [f"{ACTOR}.fsdp_config", "actor_rollout_ref.ref.fsdp_config"]
    nodes += ["critic.fsdp"] if config.algorithm == "gae" else []
    found: dict[str, Any] = {}
    for node in nodes:
        found[f"{node}.dtype"] = long
        # Not in verl's YAML. Gradients are summed, and weights kept, in 32 bits.
        found[f"++{node}.mixed_precision"] = {"param_dtype": short, "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    return found


def _logging(config: PureRLConfig, files: InputFiles) -> dict[str, Any]:
    validates = files.validation is not None
    return {
        "trainer.save_freq": config.save_interval,
        "trainer.test_freq": config.save_interval if validates else -1,
        "trainer.val_before_train": validates,
        "trainer.logger": [*config.loggers, *(["wandb"] if config.use_wandb else [])],
        "trainer.experiment_name": "pure_rl",
        "trainer.console": "plain",
    }


def _written(value: Any) -> str:
    """A value in the grammar of Hydra's overrides."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_written(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_written(one) for one in value) + "]"
    text = str(value)
    plain = all(letter.isalnum() or letter in "/._-+:@" for letter in text) and text
    return text if plain else "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
