#!/usr/bin/env bash
# Makes the data sets as parquet files, each set in a folder of its own. docs/data.md says what is in them.
#
#   bash my_scripts/prepare_data.sh [--smoke] [--local_dir DIR] [--output_dir data] [--seed 0] [--force] [SET ...]
#
# Without SET it makes all sets. The source is the hub; with --local_dir it is the files of a folder. --smoke makes up a
# few rows instead.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="$(bash "$root/scripts/find_python.sh")"
exec "$python" -m verl.data_preprocessing.prepare_data --output_dir "$root/data" "$@"
