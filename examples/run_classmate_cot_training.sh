#!/usr/bin/env bash
# The main job: a small policy learns arithmetic that two frozen classmates can follow. No GPU, no network, no download.
#
#   bash examples/run_classmate_cot_training.sh [HYDRA_OVERRIDE ...]
#   BASELINE=1 bash examples/run_classmate_cot_training.sh          the same budget, with the verifier's reward alone
#
# Times on 2 idle cores: about 1 minute to install and 2 to build the embedded world (both the first time only), half a
# minute to start, 2 to 3 minutes to train. The variable WORLD names another folder for the embedded world, SEED another
# seed of the run.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../my_scripts/common.sh"
bash "$root/install.sh"
python="$(bash "$root/scripts/find_python.sh")"
prepare_world

if [ "${BASELINE:-0}" = 1 ]; then
    entry=(verl.trainer.qwen_main_ppo trainer.experiment_name=embedded_baseline)
else
    entry=(verl.trainer.classmate_cot_main_ppo --config-name=classmate_cot_ppo_trainer trainer.experiment_name=embedded)
fi

exec "$python" -m "${entry[@]}" \
    actor_rollout_ref.model.path="$world/models/policy" \
    reward_model.classmate_model_name_or_path_list="[$world/models/classmate_a,$world/models/classmate_b]" \
    data.train_files="$world/train.parquet" \
    data.val_files="$world/val.parquet" \
    data.seed="${SEED:-1}" \
    data.train_batch_size=8 \
    data.max_prompt_length=128 \
    data.max_response_length=64 \
    actor_rollout_ref.rollout.n=8 \
    actor_rollout_ref.actor.optim.lr=1e-4 \
    actor_rollout_ref.actor.ppo_mini_batch_size=8 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16 \
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16 \
    reward_model.classmate_generation_configs.max_new_tokens=24 \
    reward_model.classmate_batch_size=128 \
    trainer.total_training_steps=80 \
    trainer.test_freq=20 \
    trainer.save_freq=20 \
    "$@"
