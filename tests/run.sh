#!/usr/bin/env bash
# The test command. It installs what is missing, then runs all tests but those marked `long`.
# Arguments go to pytest: bash tests/run.sh -k overlay. With -n 0 tests run in this process, where a breakpoint stops.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
bash install.sh --dev
python="$(bash scripts/find_python.sh)"
# A training run has several processes. One thread each: more would fight for the same cores.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
# Native libraries can crash while Python ends. Without this nothing would say where.
export PYTHONFAULTHANDLER=1
# Two processes of pytest: one runs the trainings, one after the other; the second runs the rest (tests/conftest.py).
# The slowest are named at the end: the whole must stay under 30 minutes.
exec "$python" -m pytest -q -n 2 --durations=25 -m "not long" "$@"
