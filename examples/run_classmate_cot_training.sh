#!/usr/bin/env bash
# The main job: a small policy that thinks in several private styles is trained with two frozen classmates, which follow
# one of them only. No GPU, no network, no download.
#
#   bash examples/run_classmate_cot_training.sh [HYDRA_OVERRIDE ...]
#   BASELINE=1 bash examples/run_classmate_cot_training.sh          the same budget, with the verifier's reward alone
#
# Tokens cost a little (0.1 for 48), so that a terse private style pays unless somebody has to read it. At its end it
# shows how policy and readers did before and after, among them two unseen readers, which no reward knows of, beside the
# numbers of a baseline's run; and three thoughts before and after.
#
# Times on 2 idle cores: about 1 minute to install and TODO_LEAD to build the world `thought_styles` (both the first time
# only), half a minute to start, TODO_LEAD to train. The variable WORLD names another folder for the world (docs/data.md),
# SEED another seed of the run.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../my_scripts/common.sh"
bash "$root/install.sh"
python="$(bash "$root/scripts/find_python.sh")"
prepare_thought_styles

# What is shown of a run that ends well; `exec` below leaves signals and the exit code to the run.
show="$(printf '%q ' "$python" -m verl.evaluation.before_after)"
readers="$world/readers"
classmates="$readers/classmate_a,$readers/classmate_b"
unseen="{model: $readers/unseen_llama}, {model: $readers/unseen_dialect}"
if [ "${BASELINE:-0}" = 1 ]; then
    # Nobody reads in training, so that the classmates are unseen readers too.
    entry=(
        verl.trainer.qwen_main_ppo
        trainer.experiment_name=thought_styles_baseline
        reward_model.evaluation_classmates="[$unseen, {model: $readers/classmate_a}, {model: $readers/classmate_b}]"
    )
else
    show+="$(printf '%q ' --beside "$root/examples/baseline_of_main_job.json")"
    entry=(
        verl.trainer.classmate_cot_main_ppo
        --config-name=classmate_cot_ppo_trainer
        trainer.experiment_name=thought_styles
        reward_model.classmate_model_name_or_path_list="[$classmates]"
        reward_model.evaluation_classmates="[$unseen]"
    )
fi
export CLASSMATE_COT_AT_END="$show"

exec "$python" -m "${entry[@]}" \
    actor_rollout_ref.model.path="$world/seed_1/policy" \
    data.train_files="$world/seed_1/rows/train.parquet" \
    data.val_files="$world/seed_1/rows/val.parquet" \
    data.seed="${SEED:-1}" \
    data.train_batch_size=8 \
    data.max_prompt_length=128 \
    data.max_response_length=64 \
    actor_rollout_ref.rollout.n=8 \
    actor_rollout_ref.actor.optim.lr=2e-4 \
    actor_rollout_ref.actor.ppo_mini_batch_size=8 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16 \
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16 \
    reward_model.length_cost=0.1333 \
    reward_model.classmate_generation_configs.max_new_tokens=24 \
    reward_model.classmate_batch_size=128 \
    trainer.total_training_steps=80 \
    trainer.test_freq=20 \
    trainer.save_freq=20 \
    "$@"
