#!/usr/bin/env bash
# Warm-up: GRPO on 1000 rows whose system prompt asks for affirming replies. The reward is the judge's score of
# sycophancy, which training raises. It leaves a policy that flatters, from which the studies of helpful_instructions
# start.
#
#   bash my_scripts/qwen3_warmup_sycophancy.sh [OPTION ...] [HYDRA_OVERRIDE ...]
#
# The rows need a judge. Either reward_model.user_tinker_llm_judge=True, or reward_model.llm_judge_backend_type=openai
# with llm_judge_model_name and llm_judge_base_url.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
read_options "$@"
start_from Qwen/Qwen3-0.6B
use_rows helpful_instructions warmup_train warmup_dev
train verl.trainer.qwen_main_ppo \
    algorithm.adv_estimator=grpo \
    reward_model.reward_direction=maximize \
    trainer.total_epochs=2 \
    trainer.save_freq=5 \
    trainer.test_freq=5
