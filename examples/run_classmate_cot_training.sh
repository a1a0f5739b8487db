#!/usr/bin/env bash
# The main job: a small policy learns arithmetic that two frozen classmates can follow. No GPU, no network, no download.
#
#   bash examples/run_classmate_cot_training.sh [HYDRA_OVERRIDE ...]
#   BASELINE=1 bash examples/run_classmate_cot_training.sh          the same budget, the verifier's reward alone
#
# On 2 idle cores: about 1 minute to install (first time only), 1 to build the embedded world (first time only), 1 to start,
# 5 to train. WORLD names another folder for the embedded world, SEED another seed of the training run.
set -euo pipefail

CLASSMATE_COT_STARTED_AT="${CLASSMATE_COT_STARTED_AT:-$(date +%s.%N)}"
# Several processes share few cores; one thread each keeps them from waiting for one another.
OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
TQ_NUM_THREADS="${TQ_NUM_THREADS:-1}"
export CLASSMATE_COT_STARTED_AT OMP_NUM_THREADS TQ_NUM_THREADS

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
bash "$root/install.sh"
python="$(bash "$root/scripts/find_python.sh")"
world="${WORLD:-$root/data/embedded_world}"
# The builder keeps a world that is whole and current; asking it costs seconds, so it is asked only when its code is newer.
if [ -z "$(find "$world/manifest.json" -newer "$root/verl/data_preprocessing/embedded_world.py" 2>/dev/null)" ]; then
    "$python" -m verl.data_preprocessing.hinted_arithmetic --output_dir "$world"
    touch "$world/manifest.json"
fi

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
    data.train_batch_size=16 \
    data.max_prompt_length=128 \
    data.max_response_length=64 \
    actor_rollout_ref.rollout.n=8 \
    actor_rollout_ref.actor.optim.lr=1e-4 \
    actor_rollout_ref.actor.ppo_mini_batch_size=16 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=128 \
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=128 \
    reward_model.classmate_generation_configs.max_new_tokens=24 \
    reward_model.classmate_batch_size=128 \
    trainer.total_training_steps=80 \
    trainer.test_freq=20 \
    trainer.save_freq=20 \
    "$@"
