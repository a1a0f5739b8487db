#!/usr/bin/env bash
# The study: do classmates make thoughts that readers follow who were never asked in training? No GPU, no network.
#
#   bash examples/cot_transfer_study.sh [OPTION ...]
#   bash examples/cot_transfer_study.sh --short                 two arms, two seeds, a small world, to see it work
#   STUDY=uneven_steps bash examples/cot_transfer_study.sh      another study; --list shows all of them
#
# Options are those of `python -m verl.evaluation.study` (--help). The same command goes on with an interrupted study.
# Times on 2 cores: about 1 minute to install (the first time only), then 70 minutes with 12 arms, 8 seeds and the readers;
# cot_transfer_cipher and uneven_steps take 50 minutes each.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../my_scripts/common.sh"
bash "$root/install.sh"
python="$(bash "$root/scripts/find_python.sh")"
cd "$root"
exec "$python" -m verl.evaluation.study "${STUDY:-cot_transfer}" "$@"
