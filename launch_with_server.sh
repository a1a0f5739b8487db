#!/usr/bin/env bash
# Reinforcement learning of a teacher: ./launch_with_server.sh N_VLLM N_TRAIN configs/run/NAME.yaml [key=value ...];
# -h says more.
set -euo pipefail

exec bash "$(dirname "${BASH_SOURCE[0]}")/scripts/launch_with_server.sh" "$@"
