"""This project's trainer, as a user starts it."""

import sys
from pathlib import Path

from scripts.bench.compare import hook
from scripts.bench.compare.arms import Arm
from scripts.bench.compare.start import Job, Start
from scripts.bench.compare.workload import ANSWERS, HELPER_TOKENS, MICRO_ROWS, PROMPT_TOKENS, PROMPTS

ROOT = Path(__file__).resolve().parents[3]

KEEP, LR = 0.95, 1e-6
"""Share of the policy's answer that helpers read; learning rate."""

HELPER_SAMPLING = {"temperature": 0.7, "top_p": 0.9}
"""Of all helpers: this project's defaults."""


def start(arm: Arm, job: Job) -> Start:
    """The command of one run."""
    environment = timed(job) | ({hook.STUB: "1"} if arm.stub else {})
    module = "verl.trainer.classmate_cot_main_ppo" if arm.helpers else "verl.trainer.qwen_main_ppo"
    return Start(command=[sys.executable, "-m", module, *overrides(arm, job)], environment=environment)


def timed(job: Job) -> dict[str, str]:
    """The environment in which a verl run notes its steps and forces the lengths (`hook.py`)."""
    environment = {
        "VERL_USE_EXTERNAL_MODULES": hook.__name__,
        "PYTHONPATH": str(ROOT),
        hook.STEPS_FILE: str(job.steps_file),
    }
    if job.lengths == "real":
        environment[hook.LENGTHS_FILE] = str(job.workload.lengths_file)
    return environment


def overrides(arm: Arm, job: Job) -> list[str]:
    """The arguments of the main job, for the workload's models and data."""
    shared = [
        f"actor_rollout_ref.model.path={job.workload.policy}",
        f"data.train_files={job.workload.train_file}",
        f"data.val_files={job.workload.train_file}",
        "data.shuffle=false",
        f"data.train_batch_size={PROMPTS}",
        f"data.max_prompt_length={PROMPT_TOKENS}",
        f"data.max_response_length={job.limit}",
        f"actor_rollout_ref.rollout.name={arm.engine}",
        f"actor_rollout_ref.rollout.n={ANSWERS}",
        f"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu={MICRO_ROWS}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS}",
        f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={MICRO_ROWS}",
        f"actor_rollout_ref.actor.optim.lr={LR}",
        f"reward.custom_reward_function.path={Path(__file__).with_name('reward.py')}",
        f"trainer.default_local_dir={job.folder / 'run'}",
        f"trainer.total_training_steps={job.steps}",
        "trainer.console=plain",
        "trainer.save_freq=-1",
        "trainer.test_freq=-1",
        "trainer.val_before_train=false",
        f"debug={arm.debug}",
    ]
    if not arm.helpers:
        return shared
    classmates = [f"{{model:{path},backend:{arm.engine}}}" for path in job.workload.helpers[: arm.helpers]]
    return [
        *shared,
        "reward_model.classmate_model_name_or_path_list=null",
        f"reward_model.classmates=[{','.join(classmates)}]",
        f"reward_model.classmate_schedule={arm.how}",
        f"reward_model.classmate_generation_configs.max_new_tokens={HELPER_TOKENS}",
        # A thought may have more tokens in a helper's own.
        "reward_model.classmate_generation_configs.max_model_len=1024",
        *(f"reward_model.classmate_generation_configs.{key}={value}" for key, value in HELPER_SAMPLING.items()),
        # Nothing in these answers closes a thought: all of an answer is one, which is closed for the reader.
        "reward_model.cot_format=plain",
        "reward_model.classmate_cot_reward_configs.classmate_close_marker=always",
        f"reward_model.classmate_cot_reward_configs.main_cot_keep_rate={KEEP}",
        "reward_model.classmate_cot_reward_configs.use_classmate_main_cond=always",
    ]
