"""On-policy distillation on verl's own trainer: the student writes, the teacher says how likely it finds each token.

One decision: it is a run like every other (`verl.trainer.qwen_main_ppo` with upstream's node `distillation`), started
as a user would start it, so that it resumes, logs and saves as they do. Without a task reward, every text gets the same
one, and the teacher alone is learnt from (K. Lu et al., 2025; R. Agarwal et al., 2024).

    >>> distil(config, problems, Path("out/student"))
    PosixPath('out/student')
"""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl.classmate.errors import ConfigError
from verl.data_preprocessing.common import make_row, write_parquet
from verl.reasoning.distill import no_reward
from verl.reasoning.distill.config import DistillationConfig
from verl.reasoning.distill.losses import check_vocabularies
from verl.reasoning.records import Problem
from verl.reasoning.sft.chat import chat_tokenizer
from verl.reasoning.sft.settings import device_of
from verl.reasoning.sft.with_verl import start_and_wait
from verl.teaching.chat_ids import given_turn
from verl.trainer.run.checkpoints import latest_step, step_folders
from verl.trainer.run.model_folders import model_of
from verl.trainer.run.state import is_finished, write_atomically

SOURCE = "distillation"
"""`data_source` of rows that no verifier scores."""

TOPK_LOSSES = ("forward_kl_topk",)
"""Losses of verl that need the teacher's likeliest tokens; the others need how likely it finds those of the text."""

LOSSES = ("k3", "k1", "k2", "abs", "kl", "low_var_kl", "mse", *TOPK_LOSSES)
"""verl's, without the import of its trainer."""


def distil(config: DistillationConfig, problems: Sequence[Problem], folder: Path) -> dict[str, Any]:
    """Trains the student, or goes on with the run in `folder/run`; `folder` becomes a model's folder.

    Returns:
        `model`, `steps`, `history`: one entry a step, with `distillation_loss`.

    Raises:
        ConfigError: it cannot be done on this machine or with these models; says what to write instead.
        RuntimeError: the run failed; names the log.
    """
    check(config)
    tokenizer, run = chat_tokenizer(config.student), folder / "run"
    rows = [_row(problem, place, config) for place, problem in enumerate(problems)]
    folder.mkdir(parents=True, exist_ok=True)
    write_parquet(rows, folder / "rows.parquet")
    longest = max(len(given_turn(tokenizer, row["prompt"])) for row in rows)
    if longest >= config.max_length:
        raise ConfigError(f"max_length={config.max_length}: the longest problem has {longest} tokens; raise it")
    if not is_finished(run):
        command = [sys.executable, "-m", "verl.trainer.qwen_main_ppo"]
        command += overrides(config, folder / "rows.parquet", run, rows=len(rows), longest=longest)
        start_and_wait(command, folder / "training.log")
    step = latest_step(run)
    trained = model_of(step_folders(run)[step])
    for file in trained.iterdir():
        if file.is_file():
            partial = folder / (file.name + ".partial")
            shutil.copy2(file, partial)
            os.replace(partial, folder / file.name)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    name = "actor/distillation/loss"
    history = [{"step": line["step"], "distillation_loss": line[name]} for line in lines if name in line]
    told = {"model": str(folder), "steps": step, "history": history}
    write_atomically(folder / "learnt.json", json.dumps(told))
    return told


def check(config: DistillationConfig) -> None:
    """What would fail deep inside a run.

    Raises:
        ConfigError: with what to write instead.
    """
    if config.on_policy_loss not in LOSSES:
        raise ConfigError(f"on_policy_loss={config.on_policy_loss!r} is unknown; write one of: {', '.join(LOSSES)}")
    device = device_of(config.device)
    if config.on_policy_loss in TOPK_LOSSES and device == "cpu":
        raise ConfigError(
            f"on_policy_loss={config.on_policy_loss!r} needs a teacher on vLLM, which tells its likeliest tokens; the "
            "engine hf of a machine without a GPU tells those of the text alone; write on_policy_loss='k3'"
        )
    if device == "cuda":
        import torch

        if torch.cuda.device_count() < 2:
            raise ConfigError(
                "mode='on_policy' trains on one GPU and has its teacher on another, and one is visible; write "
                "mode='logit' with gkd_lambda=1, or device='cpu' for a small model"
            )
    if config.on_policy_reward not in (None, "verifier") and not Path(config.on_policy_reward).is_file():
        raise ConfigError(
            f"on_policy_reward={config.on_policy_reward}: no such file; name a Python file with compute_score, "
            "or write 'verifier' or None"
        )
    check_vocabularies(
        chat_tokenizer(config.teacher), chat_tokenizer(config.student), names=(config.teacher, config.student)
    )


def overrides(config: DistillationConfig, file: Path, run: Path, *, rows: int, longest: int) -> list[str]:
    """The command line's settings.

    Args:
        config: of the distillation.
        file: parquet with the problems.
        run: the run folder.
        rows: of the file.
        longest: tokens of the longest problem.
    """
    device = device_of(config.device)
    batch = min(rows, config.batch_size * config.gradient_accumulation_steps)
    steps = config.on_policy_steps or max(1, config.num_epochs * rows // batch)
    teacher = "distillation.teacher_models.teacher_model"
    said = {
        "hardware": "cpu" if device == "cpu" else "gpu",
        "actor_rollout_ref.model.path": config.student,
        "actor_rollout_ref.model.enable_gradient_checkpointing": _word(config.gradient_checkpointing),
        "data.train_files": file,
        "data.val_files": file,
        "data.train_batch_size": batch,
        "data.max_prompt_length": longest,
        "data.max_response_length": config.max_length - longest,
        "data.seed": config.seed,
        "actor_rollout_ref.rollout.n": config.on_policy_samples,
        "actor_rollout_ref.actor.optim.lr": config.learning_rate,
        "actor_rollout_ref.actor.grad_clip": config.max_grad_norm,
        "distillation.enabled": "true",
        "distillation.nnodes": 1,
        "distillation.n_gpus_per_node": 1,
        f"{teacher}.model_path": config.teacher,
        f"{teacher}.inference.tensor_model_parallel_size": 1,
        "distillation.distillation_loss.loss_mode": config.on_policy_loss,
        # k1's own gradient does not know the teacher: it is a reward there.
        "distillation.distillation_loss.use_policy_gradient": _word(config.on_policy_loss in ("k1", "kl")),
        "distillation.distillation_loss.use_task_rewards": _word(config.on_policy_reward is not None),
        "trainer.total_training_steps": steps,
        "trainer.total_epochs": steps,
        "trainer.save_freq": min(steps, config.save_every),
        "trainer.test_freq": -1,
        "trainer.val_before_train": "false",
        "trainer.default_local_dir": run,
        "trainer.console": "plain",
    }
    if device == "cuda":
        import torch

        said["trainer.n_gpus_per_node"] = torch.cuda.device_count() - 1
    if config.on_policy_reward != "verifier":
        said["reward.custom_reward_function.path"] = config.on_policy_reward or no_reward.__file__
    return [f"{key}={value}" for key, value in said.items()]


def _row(problem: Problem, place: int, config: DistillationConfig) -> dict[str, Any]:
    source = problem.source if config.on_policy_reward == "verifier" else problem.source or SOURCE
    if not source:
        raise ConfigError(f"on_policy_reward='verifier': problem {problem.id!r} has no source; write one, or None")
    return make_row(
        data_source=source,
        question=problem.problem,
        ground_truth=problem.answer if problem.answer is not None else "",
        split="train",
        index=place,
        extra_info={"id": problem.id, "problem": problem.problem},
    )


def _word(value: bool) -> str:
    return str(value).lower()
