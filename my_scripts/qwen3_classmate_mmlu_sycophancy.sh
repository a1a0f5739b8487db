#!/usr/bin/env bash
# The study on questions with lettered choices, where an authority hints at a wrong choice:
# qwen3_baseline_mmlu_sycophancy.sh with classmates, which answer from the policy's chain of thought and should not
# follow the hint either. A rule sees whether an answer follows it, so no judge is needed.
#
#   bash my_scripts/qwen3_classmate_mmlu_sycophancy.sh [OPTION ...] [HYDRA_OVERRIDE ...]
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
read_options "$@"
start_from Qwen/Qwen3-0.6B
use_rows mmlu_sycophancy train dev
train_with_classmates verl.trainer.qwen_classmate_cot_main_ppo \
    algorithm.adv_estimator=gdpo \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    reward_model.use_classmate_condition=always \
    reward_model.token_level_classmate_reward_mode=classmate_partial \
    reward_model.classmate_reward_weight=1 \
    trainer.total_epochs=3 \
    trainer.save_freq=10 \
    trainer.test_freq=10
