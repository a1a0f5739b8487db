#!/usr/bin/env bash
# The test command: installs what is missing, then runs pytest on everything but the tests marked `long`.
# Arguments go to pytest: bash tests/run.sh -k overlay; with -n 0 in this process, where a breakpoint stops.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
bash install.sh --dev
python="$(bash scripts/find_python.sh)"
# One thread for each of the several processes of a training run: more would fight for the same cores.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
# Native libraries can crash while Python ends; without this nothing would say where.
export PYTHONFAULTHANDLER=1
# Two processes of pytest: one runs the trainings, one after the other, the other one the rest (tests/conftest.py).
exec "$python" -m pytest -q -n 2 -m "not long" "$@"
