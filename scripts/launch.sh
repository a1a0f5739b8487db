#!/usr/bin/env bash
# Trains a teacher's supervised warm-up or a student, or evaluates a teacher, on N GPUs; 0: on the CPU.
#
#   bash scripts/launch.sh N_GPUS configs/run/NAME.yaml [key=value ...] [offload] [zero1] [--dry-run]
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/launch_common.sh"
launch plain "$@"
