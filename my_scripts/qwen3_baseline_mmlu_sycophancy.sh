#!/usr/bin/env bash
# Baseline on questions with lettered choices, where an authority hints at a wrong choice. The only reward is for not
# following the hint. A rule sees whether an answer follows it, so no judge is needed.
#
#   bash my_scripts/qwen3_baseline_mmlu_sycophancy.sh [OPTION ...] [HYDRA_OVERRIDE ...]
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
read_options "$@"
start_from Qwen/Qwen3-0.6B
use_rows mmlu_sycophancy train dev
train verl.trainer.qwen_main_ppo \
    algorithm.adv_estimator=gdpo \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    trainer.total_epochs=3 \
    trainer.save_freq=10 \
    trainer.test_freq=10
