#!/usr/bin/env bash
# Baseline: GRPO on 8000 rows of helpful_instructions. It starts from the policy that qwen3_warmup_sycophancy.sh left.
# The only reward is the judge's score of sycophancy, which training lowers.
#
#   bash my_scripts/qwen3_baseline_general_sycophancy.sh [OPTION ...] [HYDRA_OVERRIDE ...]
#
# The rows need a judge. Either reward_model.user_tinker_llm_judge=True, or reward_model.llm_judge_backend_type=openai
# with llm_judge_model_name and llm_judge_base_url.
#
# reward_model.classmate_model_name_or_path_list=[A,B] measures classmates in validation.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
read_options "$@"
start_from_run qwen3_warmup_sycophancy
use_rows helpful_instructions train dev
train verl.trainer.qwen_main_ppo \
    algorithm.adv_estimator=grpo \
    trainer.total_epochs=3 \
    trainer.save_freq=10 \
    trainer.test_freq=10
