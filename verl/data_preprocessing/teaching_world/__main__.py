"""Command that builds a teaching world.

python -m verl.data_preprocessing.teaching_world --local_dir data/teaching_world --seed 0 --jobs 2
"""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from verl.data_preprocessing.common import run_command
from verl.data_preprocessing.teaching_world.spec import Mix, TeachingWorldSpec

_DEFAULT = TeachingWorldSpec()
_NUMBERS = ("train_rows", "test_rows", "warmup_rows", "warm_steps")


def _mix(text: str) -> tuple[float, ...]:
    """Four shares with commas between them."""
    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError:
        shares = ()
    if len(shares) != 4:
        raise argparse.ArgumentTypeError(f"{text!r} is no mix; write four shares such as 0.25,0.15,0.45,0.15")
    return shares


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of 1 or more")
    return int(text)


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no seed; write a number of 0 or more")
    return int(text)


def spec_of(args: argparse.Namespace) -> TeachingWorldSpec:
    """The world that the arguments ask for.

    Raises:
        ConfigError: the mix is no mix.
    """
    fitting, nothing, anything, tells = args.mix
    mix = Mix(fitting=fitting, nothing=nothing, anything=anything, tells=tells, right_share=args.right_share)
    spec = dataclasses.replace(_DEFAULT, seed=args.seed, mix=mix)
    spec = spec.short() if args.short else spec
    typed = {name: value for name in _NUMBERS if (value := getattr(args, name))}
    return dataclasses.replace(spec, **typed)


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: builds a world, or says that it is there; `arguments` replaces what the shell gave."""
    parser = argparse.ArgumentParser(
        prog="python -m verl.data_preprocessing.teaching_world",
        description="Builds a teaching world: frozen students, a base teacher, rows, prompts. What is there is kept.",
    )
    parser.add_argument("--local_dir", type=Path, required=True, help="folder of the world, one for each seed")
    parser.add_argument("--seed", type=_seed, default=0, help="seed of the problems and of the teachers")
    parser.add_argument("--jobs", type=_positive, default=2, help="models taught at the same time, one core each")
    parser.add_argument("--students", type=Path, help="folder of students that worlds of other seeds share")
    parser.add_argument("--warm_teacher", action="store_true", help="also a teacher that is through the warm-up")
    parser.add_argument(
        "--mix",
        type=_mix,
        default=_DEFAULT.mix.shares,
        help="shares of fitting, no, any and telling advice in the warm-up, such as 0.25,0.15,0.45,0.15",
    )
    parser.add_argument(
        "--right_share", type=float, default=_DEFAULT.mix.right_share, help="share of told results that are right"
    )
    for name in _NUMBERS:
        parser.add_argument(f"--{name}", type=_positive, help=f"default: {getattr(_DEFAULT, name)}")
    parser.add_argument("--short", action="store_true", help="a few rows, models that were hardly taught: for tests")
    args = parser.parse_args(arguments)
    spec = spec_of(args)
    from verl.data_preprocessing.teaching_world.build import make_world
    from verl.data_preprocessing.teaching_world.summary import summary

    world = make_world(args.local_dir, spec, students=args.students, jobs=args.jobs, warm_teacher=args.warm_teacher)
    print(summary(world))


if __name__ == "__main__":
    run_command(main)
