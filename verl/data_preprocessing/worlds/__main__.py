"""Command that builds a world.

python -m verl.data_preprocessing.worlds thought_styles --output_dir data/thought_styles --seed 1
"""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from verl.data_preprocessing.common import run_command
from verl.data_preprocessing.worlds.presets import WORLDS
from verl.data_preprocessing.worlds.spec import ROLES, Role

_BOUNDS = {"seed": (0, 2**31 - 1), "train_rows": (1, 10**6), "val_rows": (1, 10**6)}
"""Of the numbers; with others a build would end only after minutes, or never."""


def _roles(text: str) -> tuple[Role, ...]:
    """Roles that are written with commas between them."""
    unknown = [name for name in text.split(",") if name not in ROLES]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(ROLES)}")
    return tuple(role for role in ROLES if role in text.split(","))


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: builds a world, or says that it is there; `arguments` replaces what the shell gave."""
    parser = argparse.ArgumentParser(
        prog="python -m verl.data_preprocessing.worlds",
        description="Builds a world: rows and a policy for each seed, readers for all seeds. What is there is kept.",
    )
    parser.add_argument("world", choices=WORLDS, help="which world (docs/data.md)")
    parser.add_argument("--output_dir", type=Path, required=True, help="folder of this world, for all its seeds")
    parser.add_argument("--seed", type=int, default=0, help="seed of the problems and of the policy")
    parser.add_argument("--train_rows", type=int, help="problems to train on")
    parser.add_argument("--val_rows", type=int, help="held-out problems")
    parser.add_argument(
        "--roles", type=_roles, default=ROLES, help=f"readers to build, of {','.join(ROLES)}; default: all"
    )
    parser.add_argument("--force", action="store_true", help="build all parts again, the shared readers too")
    args = parser.parse_args(arguments)
    for name, (least, most) in _BOUNDS.items():
        value = getattr(args, name)
        if value is not None and not least <= value <= most:
            parser.error(f"--{name} {value}: write {least} to {most}")
    changes = {name: getattr(args, name) for name in ("seed", "train_rows", "val_rows")}
    spec = dataclasses.replace(WORLDS[args.world], **{k: v for k, v in changes.items() if v is not None})
    from verl.data_preprocessing.worlds.build import make_world, summary

    print(summary(make_world(args.output_dir, spec, roles=args.roles, force=args.force)))


if __name__ == "__main__":
    run_command(main)
