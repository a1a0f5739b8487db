#!/usr/bin/env bash
# Runs every test: those of tests/run.sh and those marked `long`. Arguments go to pytest.
set -euo pipefail

# pytest takes the last -m it is given.
exec bash "$(dirname "${BASH_SOURCE[0]}")/../tests/run.sh" -m "long or not long" "$@"
