"""The config that a command will have, composed as its entry point does it.

One decision: what a launcher has to know of a run (its students, its rollouts, its folder) is read from the composed
config, never from the run file alone, so that defaults, run files and settings count as they do in the run.

    >>> config = composed(Command(phase=PHASES["rl"], configs=CONFIGS, run="teacher_rcl"), ["hardware=cpu"])
    >>> config.actor_rollout_ref.rollout.n
    32
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl.classmate.config import from_mapping
from verl.teaching.config import NODE, TeachingConfig
from verl.trainer.launchers.phases import Phase
from verl.trainer.run.command_line import compose, prepare_overrides


@dataclass(frozen=True, kw_only=True)
class Command:
    """What every command of a request begins with."""

    phase: Phase
    """What is run."""
    configs: Path
    """The folder `configs`."""
    run: str
    """The run file's name."""

    def begin(self, *, world: bool) -> list[str]:
        """Flags and groups.

        Args:
            world: whether the embedded world's sizes are added.
        """
        groups = [f"+run={self.run}", *([f"+world={self.phase.family}"] if world else [])]
        return [f"--config-name={self.phase.config}", f"--config-dir={self.configs}", *groups]

    def argv(self, overrides: Sequence[str], *, world: bool) -> list[str]:
        """The whole command."""
        return [sys.executable, "-m", self.phase.module, *self.begin(world=world), *overrides]


def composed(command: Command, overrides: Sequence[str], *, world: bool = False, run: bool = True) -> DictConfig:
    """The config of a command.

    Args:
        command: what it begins with.
        overrides: what follows.
        world: whether the embedded world's sizes are added.
        run: whether the run file counts; False: what the primary config says.

    Raises:
        ConfigError: for what Hydra refuses, in one line.
    """
    hardware = command.phase.hardware
    begin = command.begin(world=world) if run else []
    arguments = prepare_overrides([*begin, *overrides], hardware=hardware)
    config = compose(command.phase.config, arguments, hardware=hardware)
    assert config is not None
    return config


def value_of(config: DictConfig, key: str) -> Any:
    """The plain, resolved value of a key; None where there is none.

    Raises:
        ConfigError: it refers to a key that there is not.
    """
    node = OmegaConf.select(config, key, throw_on_missing=False)
    return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node


def check_teaching(config: DictConfig) -> None:
    """Refuses settings of teaching and of students that are unknown or do not belong together, before all else.

    Raises:
        ConfigError: in one line.
    """
    # Templates may lie in a world that is not built yet.
    TeachingConfig.read({**value_of(config, NODE), "templates_file": None})
    from_mapping(value_of(config, "reward_model"), require_classmates=False)
