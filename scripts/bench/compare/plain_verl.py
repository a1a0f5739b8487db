"""Upstream's trainer on a CPU, by the command of docs/upstream_on_cpu.md."""

import os
import re
import sys
from pathlib import Path

from scripts.bench.compare import ours, reward_model
from scripts.bench.compare.arms import Arm
from scripts.bench.compare.start import Job, Start
from scripts.bench.compare.workload import ANSWERS, HELPER_TOKENS, MICRO_ROWS, PROMPT_TOKENS

PAGE = ours.ROOT / "docs" / "upstream_on_cpu.md"


def documented() -> str:
    """The command of the page."""
    found = re.search(r"<!-- command: [^>]*-->\n```bash\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert found, f"{PAGE.name} has no command"
    return found.group(1).rstrip()


def start(arm: Arm, job: Job) -> Start:
    """The command of one run."""
    overrides = [
        "data.shuffle=false",
        f"data.max_prompt_length={PROMPT_TOKENS}",
        f"data.max_response_length={job.limit}",
        f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={MICRO_ROWS}",
        f"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu={MICRO_ROWS}",
        f"actor_rollout_ref.actor.optim.lr={ours.LR}",
        f"actor_rollout_ref.rollout.n={ANSWERS}",
        # Upstream's default recomputes activations, which costs time and saves memory.
        "actor_rollout_ref.model.enable_gradient_checkpointing=false",
        f"trainer.default_local_dir={job.folder / 'run'}",
        f"trainer.total_training_steps={job.steps}",
        "trainer.logger=[file]",
        "trainer.save_freq=-1",
        "trainer.test_freq=-1",
    ]
    environment = ours.timed(job) | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "MODEL": str(job.workload.policy),
        "TRAIN_FILE": str(job.workload.train_file),
        "VAL_FILE": str(job.workload.train_file),
        "ENGINE": arm.engine,
        "RANKS": "1",
        "HYDRA_FULL_ERROR": "1",
        "VERL_FILE_LOGGER_PATH": str(job.folder / "metrics.jsonl"),
    }
    here = Path(__file__)
    if arm.helpers:
        model = job.workload.helpers[0]
        overrides += [
            f"reward.custom_reward_function.path={here.with_name('reward_model.py')}",
            "reward.reward_model.enable=true",
            "reward.reward_model.enable_resource_pool=true",
            "reward.reward_model.n_gpus_per_node=1",
            "reward.reward_model.nnodes=1",
            f"reward.reward_model.model_path={model}",
            "reward.reward_model.rollout.name=vllm",
            "reward.reward_model.rollout.dtype=float32",
            "reward.reward_model.rollout.tensor_model_parallel_size=1",
            "reward.reward_model.rollout.free_cache_engine=false",
            "+reward.reward_model.rollout.enable_sleep_mode=false",
            f"reward.reward_model.rollout.prompt_length={PROMPT_TOKENS + 3 * job.limit}",
            f"reward.reward_model.rollout.response_length={HELPER_TOKENS}",
            "ray_kwargs.ray_init.num_gpus=2",
        ]
        environment |= {reward_model.MODEL: str(model)}
    else:
        overrides.append(f"reward.custom_reward_function.path={here.with_name('reward.py')}")
    command = " \\\n".join([documented(), *(f"'{override}'" for override in overrides)])
    return Start(command=["bash", "-c", command], environment=environment)
