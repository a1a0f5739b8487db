#!/usr/bin/env bash
# The study: qwen3_baseline_general_sycophancy.sh with frozen classmates, which answer from the policy's chain of
# thought (CoT). The judge's score of their answers is a second reward on the tokens of the CoT. Each reward is
# normalised on its own (GDPO).
#
#   bash my_scripts/qwen3_classmate_general_sycophancy.sh [OPTION ...] [HYDRA_OVERRIDE ...]
#
# The rows need a judge. Either reward_model.user_tinker_llm_judge=True, or reward_model.llm_judge_backend_type=openai
# with llm_judge_model_name and llm_judge_base_url.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
read_options "$@"
start_from_run qwen3_warmup_sycophancy
use_rows helpful_instructions train dev
train_with_classmates verl.trainer.qwen_classmate_cot_main_ppo \
    algorithm.adv_estimator=gdpo \
    reward_model.use_classmate_condition=always \
    reward_model.token_level_classmate_reward_mode=classmate_partial \
    reward_model.classmate_reward_weight=1 \
    trainer.total_epochs=3 \
    trainer.save_freq=10 \
    trainer.test_freq=10
