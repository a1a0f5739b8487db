#!/usr/bin/env bash
# Installs what adaptive teachers need; the name is that of the original instructions. It makes the same environment as
# `bash install.sh` and takes the same arguments (--cpu, --gpu, --dev), with tensorboard for `trainer.logger=[tensorboard]`.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
bash "$root/install.sh" "$@"
