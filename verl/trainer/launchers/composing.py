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

from verl.classmate.errors import ConfigError
from verl.classmate.typed import parse
from verl.teaching.reward_config import TEACHING_REWARD_NODE, TeachingRewardConfig
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


def composed(command: Command, overrides: Sequence[str], *, world: bool = False) -> DictConfig:
    """The config of a command.

    Raises:
        ConfigError: for what Hydra refuses, in one line.
    """
    config = compose(command.phase.config, prepare_overrides([*command.begin(world=world), *overrides]))
    assert config is not None
    return config


def value_of(config: DictConfig, key: str) -> Any:
    """The plain, resolved value of a key; None where there is none.

    Raises:
        ConfigError: it refers to a key that there is not.
    """
    node = OmegaConf.select(config, key, throw_on_missing=False)
    return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node


def check_reward(config: DictConfig) -> None:
    """Refuses settings of the reward that do not belong together, before servers start.

    Raises:
        ConfigError: in one line.
    """
    node = value_of(config, TEACHING_REWARD_NODE)
    if node is None:
        raise ConfigError(f"{TEACHING_REWARD_NODE}: the config has no such node; build the run file on one of ours")
    parse(TeachingRewardConfig, node, TEACHING_REWARD_NODE)
