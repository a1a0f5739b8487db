#!/usr/bin/env bash
# Hosts classmates as OpenAI-compatible servers, for runs on this and other machines, until Ctrl-C. docs/hosting.md says more.
#
#   bash my_scripts/host_classmate_model.sh [--backend auto|vllm|hf] [MODEL ...] [key=value ...]
#
# Without MODEL: the classmates of the run config (--config-name, key=value). --help lists all options.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="$(bash "$root/scripts/find_python.sh")"
exec "$python" -m verl.workers.host_classmates "$@"
