"""A classmate training from a plain script: compose the config, make the trainer, fit.

    python examples/programmatic_training.py POLICY CLASSMATE [CLASSMATE ...] [key=value ...]

What holds an `=` is a Hydra override, as after `python -m verl.trainer.classmate_cot_main_ppo`; the embedded world of
`bash examples/run_classmate_cot_training.sh` has models and data to try it with.
"""

import sys

import ray
from hydra import compose, initialize_config_dir
from transformers import AutoTokenizer

from verl.single_controller.ray import ResourcePoolManager
from verl.trainer.ppo.classmate_cot_ray_trainer import ClassmateCoTRayPPOTrainer
from verl.trainer.ppo.utils import Role
from verl.trainer.run.command_line import CONFIG_FOLDER, prepare_overrides
from verl.trainer.run.unset import fill_in
from verl.workers.engine_workers import ActorRolloutRefWorker


def main(policy: str, classmates: list[str], overrides: list[str]) -> None:
    """Trains `policy` until `trainer.total_training_steps`, with `classmates` reading its CoTs."""
    with initialize_config_dir(str(CONFIG_FOLDER), version_base=None):
        config = compose(
            "classmate_cot_ppo_trainer",
            # Logical CPUs for the pool below, which is larger than the one that the trainer would make.
            overrides=prepare_overrides(
                [f"actor_rollout_ref.model.path={policy}", "ray_kwargs.ray_init.num_cpus=16", *overrides]
            ),
        )
    # Keys that are not set, such as the number of GPUs, get their values; the trainer would do it later.
    fill_in(config)
    trainer = ClassmateCoTRayPPOTrainer(
        config=config,
        # All that follows may be left out: the trainer builds the same from the config.
        tokenizer=AutoTokenizer.from_pretrained(policy),
        role_worker_mapping={Role.ActorRollout: ray.remote(ActorRolloutRefWorker)},
        resource_pool_manager=ResourcePoolManager(
            resource_pool_spec={"global_pool": [config.trainer.n_gpus_per_node] * config.trainer.nnodes},
            mapping={Role.ActorRollout: "global_pool", Role.RewardModel: "global_pool"},
            max_colocate_count=3 + len(classmates),
        ),
        # The same keys as on the command line, below the nodes of these names.
        classmate_cot_reward_configs={
            "classmate_model_name_or_path_list": classmates,
            "classmate_reward_weight": 0.5,
            "use_classmate_main_cond": "always",
        },
        classmate_generation_configs={"max_new_tokens": 24, "num_return_sequences": 2},
    )
    trainer.init_workers()
    trainer.fit()
    ray.shutdown()


if __name__ == "__main__":
    models = [argument for argument in sys.argv[1:] if "=" not in argument]
    if len(models) < 2:
        sys.exit(__doc__)
    main(models[0], models[1:], [argument for argument in sys.argv[1:] if "=" in argument])
