"""Entry point of adaptive teachers.

    python -m verl.trainer.rcl_main_ppo --config-name=rcl_trainer \\
        actor_rollout_ref.model.path=MODEL \\
        'rcl.students=[{model: MODEL_A}, {model: MODEL_B}]' \\
        data.train_files=train.parquet data.val_files=val.parquet
"""

from verl.trainer.run import launch

if __name__ == "__main__":
    launch.entry("rcl_trainer", trainer_name="classmate_cot")
