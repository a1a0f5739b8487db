#!/usr/bin/env bash
# The test command: installs what is missing, then runs pytest on everything but the tests marked `long`.
# Arguments go to pytest: bash tests/run.sh -k overlay
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
bash install.sh --dev
python="$(bash scripts/find_python.sh)"
# One thread for each of the several processes of a training run: more would fight for the same cores.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec "$python" -m pytest -q -m "not long" "$@"
