#!/usr/bin/env bash
# Installs everything into the active conda or virtual environment, or into .venv if none is active.
#   bash install.sh [--cpu | --gpu] [--dev]
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
python="$(bash "$root/scripts/find_python.sh" --create)"
exec "$python" "$root/scripts/install.py" "$@"
