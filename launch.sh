#!/usr/bin/env bash
# Supervised phases and evaluation: ./launch.sh N_GPUS configs/run/NAME.yaml [key=value ...] [offload]; -h says more.
set -euo pipefail

exec bash "$(dirname "${BASH_SOURCE[0]}")/scripts/launch.sh" "$@"
