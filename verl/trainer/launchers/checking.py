"""The run's own checks, before its students' servers start: config, data, models, templates.

One decision: they are those of the run itself (`verl.trainer.preflight`), on the same arguments and GPUs, in a process
that ends before a server starts. Only the servers are not asked. So a mistake costs seconds, not the servers' start.

    python -m verl.trainer.launchers.checking --config-name=rcl_trainer key=value ...
"""

import sys
from collections.abc import Sequence
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl.classmate.errors import ConfigError
from verl.trainer.run.command_line import compose, describe, prepare_overrides


def check_run(arguments: Sequence[str], *, config_name: str = "rcl_trainer") -> None:
    """Checks the run of a command; nothing is written.

    Args:
        arguments: of its entry point.
        config_name: the primary config, where the arguments do not name one.

    Raises:
        ConfigError: for the first thing that would make it fail.
    """
    # They import engines, which takes seconds.
    from verl.trainer import preflight
    from verl.trainer.run.start import read_run
    from verl.trainer.run.unset import fill_in

    config = compose(config_name, prepare_overrides(list(arguments)))
    if config is None:
        return
    with preflight.quiet():
        filled = fill_in(config)
    plain: Any = OmegaConf.to_container(config, resolve=True)
    preflight.check(plain, read_run(plain, "classmate_cot"), servers_answer=False)
    filled.refuse()


def main(arguments: Sequence[str]) -> int:
    """Exit code 2 and one line on stderr for a user's mistake."""
    try:
        check_run(arguments)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OmegaConfBaseException as error:
        print(f"error: {describe(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
