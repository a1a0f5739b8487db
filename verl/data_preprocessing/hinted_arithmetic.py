"""Command that makes the embedded world of hinted arithmetic: data, tokenizers, policy and classmates.

    python -m verl.data_preprocessing.hinted_arithmetic --output_dir data/embedded_world

The problems are in `arithmetic_problems.py`, the world in `worlds/presets.py`, its builder in `embedded_world.py`.
"""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from verl.data_preprocessing.common import run_command


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: builds the embedded world, or says that it is there; `arguments` replaces what the shell gave."""
    parser = argparse.ArgumentParser(
        prog="python -m verl.data_preprocessing.hinted_arithmetic",
        description="Makes the embedded world (hinted arithmetic, a policy, two classmates) once, then reuses it.",
    )
    parser.add_argument("--output_dir", type=Path, required=True, help="folder for parquet files, models and manifest")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train_rows", type=int, default=4096)
    parser.add_argument("--val_rows", type=int, default=256)
    parser.add_argument("--force", action="store_true", help="build again even if a whole world is there")
    args = parser.parse_args(arguments)
    from verl.data_preprocessing.embedded_world import make_world, summary
    from verl.data_preprocessing.worlds.presets import HINTED_ARITHMETIC

    spec = dataclasses.replace(HINTED_ARITHMETIC, seed=args.seed, train_rows=args.train_rows, val_rows=args.val_rows)
    manifest = make_world(args.output_dir, spec, force=args.force)
    print(summary(args.output_dir, manifest))


if __name__ == "__main__":
    run_command(main)
