"""Command that builds a reasoning world.

python -m verl.data_preprocessing.reasoning_world data/reasoning_world --seed 0 --jobs 2
"""

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from verl.data_preprocessing.common import run_command
from verl.data_preprocessing.reasoning_world.spec import ReasoningWorldSpec

_DEFAULT = ReasoningWorldSpec()
_NUMBERS = ("train_rows", "val_rows", "labelled")


def _number(least: int) -> Callable[[str], int]:
    """A reader of whole numbers from `least` on."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no number of {least} or more")
        return int(text)

    return read


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: builds a world, or says that it is there; `arguments` replaces what the shell gave."""
    parser = argparse.ArgumentParser(
        prog="python -m verl.data_preprocessing.reasoning_world",
        description="Builds a reasoning world: policy, student, readers, rows, labelled steps. What is there is kept.",
    )
    parser.add_argument("folder", type=Path, help="folder of the world, one for each seed")
    parser.add_argument("--seed", type=_number(0), default=_DEFAULT.seed, help="of the problems, base and student")
    parser.add_argument("--jobs", type=_number(1), default=2, help="models taught at the same time, one core each")
    parser.add_argument("--readers", type=Path, help="folder of readers that worlds of other seeds share")
    for name in _NUMBERS:
        parser.add_argument(f"--{name}", type=_number(1), help=f"default: {getattr(_DEFAULT, name)}")
    parser.add_argument("--short", action="store_true", help="a few rows, models that were hardly taught: for tests")
    args = parser.parse_args(arguments)
    spec = dataclasses.replace(_DEFAULT, seed=args.seed)
    spec = spec.short() if args.short else spec
    typed = {name: value for name in _NUMBERS if (value := getattr(args, name))}
    spec = dataclasses.replace(spec, **typed)
    from verl.data_preprocessing.reasoning_world.build import make_world, summary

    print(summary(make_world(args.folder, spec, readers=args.readers, jobs=args.jobs)))


if __name__ == "__main__":
    run_command(main)
