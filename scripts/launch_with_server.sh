#!/usr/bin/env bash
# Trains a teacher by reinforcement learning on N_TRAIN GPUs, with its students on servers on the N_VLLM GPUs before them.
#
#   bash scripts/launch_with_server.sh N_VLLM N_TRAIN configs/run/NAME.yaml [key=value ...] [offload] [zero1] [--dry-run]
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/launch_common.sh"
launch server "$@"
