"""Entry point of the baseline: the verifier's reward alone. Classmates, when named, only read validation rows.

    python -m verl.trainer.qwen_main_ppo actor_rollout_ref.model.path=MODEL \\
        data.train_files=train.parquet data.val_files=val.parquet
"""

from verl.trainer.run import launch

if __name__ == "__main__":
    launch.entry("qwen_ppo_trainer", trainer_name="baseline")
