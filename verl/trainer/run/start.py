"""From a composed config to a run that can begin; what the command line and a trainer without one have in common.

>>> begun = begin(config, "classmate_cot")
>>> begun.run.reward.classmates
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl.classmate.config import RunConfig
from verl.stepwise.config import NODE, ReasoningConfig
from verl.teaching.config import TeachingConfig
from verl.trainer.run.folder import RunFolder
from verl.trainer.run.session import settle
from verl.trainer.run.unset import fill_in
from verl.workers.classmates.remote import with_hosted


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A run that can begin."""

    run: RunConfig
    """Its typed config."""
    folder: RunFolder
    """Its folder."""
    lines: list[str]
    """What the start decided, for a person."""


def read_run(plain: Mapping[str, Any], trainer_name: str) -> RunConfig:
    """The typed view of a config in which nothing is left open, with hosted classmates named.

    Args:
        plain: the whole, resolved.
        trainer_name: name in upstream's trainer registry.

    Raises:
        ConfigError: a key, a value or a combination that is not possible.
    """
    if "rcl" in plain:
        # Its own mistakes come before those of nodes that repeat its keys.
        TeachingConfig.read(plain["rcl"])
    ReasoningConfig.read(plain.get(NODE, {}))
    run = RunConfig.read(plain, trainer_name=trainer_name)
    return dataclasses.replace(run, reward=with_hosted(run.reward))


def begin(config: DictConfig, trainer_name: str, *, folder: RunFolder | None = None) -> Begun:
    """Fills in the keys that are not set, reads the config, opens the folder and settles the config, in place.

    Args:
        config: composed from one of our primary YAML files.
        trainer_name: name in upstream's trainer registry.
        folder: the run's; opened from the config when not given.

    Raises:
        ConfigError: for a user's mistake.
    """
    filled = fill_in(config)
    filled.refuse()
    plain: Any = OmegaConf.to_container(config, resolve=True)
    run = read_run(plain, trainer_name)
    folder = folder or RunFolder.open(plain)
    run, _ = settle(config, run, folder)
    return Begun(run=run, folder=folder, lines=filled.lines)
