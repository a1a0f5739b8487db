"""Entry point of classmate training with the Qwen3 preset.

    python -m verl.trainer.qwen_classmate_cot_main_ppo actor_rollout_ref.model.path=MODEL \\
        reward_model.classmate_model_name_or_path_list=[MODEL_A,MODEL_B] \\
        data.train_files=train.parquet data.val_files=val.parquet
"""

from verl.trainer.run import launch

if __name__ == "__main__":
    launch.entry("qwen_classmate_cot_ppo_trainer", trainer_name="classmate_cot")
