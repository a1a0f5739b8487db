#!/usr/bin/env bash
# Installs what the project needs, but not the project. `pip install --no-deps -e .` then completes the installation.
# It makes the same environment as `bash install.sh` and takes the same arguments; verl's users know this name.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
echo "install: vLLM and FSDP only; SGLang and Megatron are not installed, this project does not use them"
bash "$root/install.sh" --deps-only "$@"
echo "install: now run \`pip install --no-deps -e .\`"
