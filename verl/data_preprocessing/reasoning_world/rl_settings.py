"""Settings with which RL in a reasoning world takes minutes on two cores.

subprocess.run(["python", "-m", "verl.trainer.qwen_main_ppo", *overrides(folder)])      # without classmates

With classmates: `verl.trainer.classmate_cot_main_ppo`, and the folders of the readers in
`reward_model.classmate_model_name_or_path_list`.
"""

from pathlib import Path

from verl.data_preprocessing.reasoning_world.measure import MAX_TOKENS, READER_TOKENS

STEPS = 40
"""Training steps."""


def overrides(folder: Path, *, steps: int = STEPS) -> list[str]:
    """Hydra overrides for a run in the world that stands in `folder`."""
    return [
        f"actor_rollout_ref.model.path={folder}/models/base",
        f"data.train_files={folder}/train.parquet",
        f"data.val_files={folder}/val.parquet",
        "data.train_batch_size=16",
        "data.max_prompt_length=64",
        f"data.max_response_length={MAX_TOKENS}",
        "actor_rollout_ref.rollout.n=8",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=64",
        "actor_rollout_ref.actor.ppo_mini_batch_size=16",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=64",
        "actor_rollout_ref.actor.optim.lr=5e-4",
        f"reward_model.classmate_generation_configs.max_new_tokens={READER_TOKENS}",
        f"trainer.total_training_steps={steps}",
        f"trainer.test_freq={steps}",
        f"trainer.save_freq={steps}",
    ]
