"""The command line of our entry points: flags and overrides told apart, aliases resolved, one line for each mistake.

Decision: Hydra parses and composes; what it says over several lines, or with a traceback, becomes a `ConfigError` here.

    >>> sys.argv[1:] = prepare_overrides(sys.argv[1:])
    >>> config = compose("classmate_cot_ppo_trainer")        # None after --help and the like
"""

from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra._internal.utils import get_args_parser
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from verl.classmate.aliases import resolve_aliases
from verl.classmate.config import BASE_YAML
from verl.classmate.errors import ConfigError

CONFIG_FOLDER = Path(__file__).parent / "config"
"""Our primary YAML files; upstream's are found by their search path."""

_EXPECTED = {bool: "true or false", int: "an integer", float: "a number"}

_FREE_TEXT = ("name", "path", "dir", "files", "strategy", "mode")
"""Endings of keys whose values are text by nature, so that their defaults need not be looked up."""


HELP = """\
usage: python -m verl.trainer.ENTRY_POINT [--config-name=CONFIG] [flag ...] key=value ...

entry points          classmate_cot_main_ppo, qwen_classmate_cot_main_ppo, qwen_main_ppo (the baseline)
config                {config}; --config-name names another one

the keys that a run needs
  actor_rollout_ref.model.path=MODEL                      a folder or a hub name
  reward_model.classmate_model_name_or_path_list=[A,B]    the classmates
  data.train_files=FILE.parquet data.val_files=FILE.parquet
  data.train_batch_size=N actor_rollout_ref.actor.ppo_mini_batch_size=N
  trainer.total_training_steps=N trainer.default_local_dir=FOLDER

flags
  --cfg job             all keys with their values, verl's too
  --info defaults       the YAML files that they come from
  --hydra-help          Hydra's other flags
  hardware=cpu|gpu      what runs where; found out when it is not given

settings of this project

{settings}"""


def default_hardware() -> str:
    """`gpu` where a GPU answers, else `cpu`."""
    import torch

    return "gpu" if torch.cuda.is_available() else "cpu"


def prepare_overrides(arguments: list[str]) -> list[str]:
    """Hydra's command line with flags in front, aliases resolved and the hardware group chosen.

    Raises:
        ConfigError: for a flag that Hydra does not know, for --multirun, and when two spellings of one key disagree.
    """
    typed = _parse(arguments).overrides
    flags, position = [], 0
    for argument in arguments:
        if position < len(typed) and argument == typed[position]:
            position += 1
        else:
            flags.append(argument)
    overrides = resolve_aliases(typed)
    if not any(override.lstrip("+").startswith("hardware=") for override in overrides):
        overrides.append(f"hardware={default_hardware()}")
    return flags + overrides


def _parse(arguments: list[str]) -> Any:
    parser = get_args_parser()

    def refuse(message: str) -> NoReturn:
        raise ConfigError(f"{message}; --help shows the flags, settings are written key=value")

    parser.error = refuse  # type: ignore[method-assign]
    flags = parser.parse_intermixed_args(arguments)
    if flags.multirun:
        raise ConfigError(
            "--multirun: one command trains one run; write a command for each value, "
            "each with a trainer.default_local_dir of its own"
        )
    return flags


def compose(config_name: str, arguments: list[str]) -> DictConfig | None:
    """The composed config of `arguments`, which must be those in `sys.argv`; None when a flag asked for something else.

    Args:
        config_name: the primary YAML file used when `--config-name` is not given.
        arguments: what `prepare_overrides` returned.

    Raises:
        ConfigError: for whatever Hydra refuses, and for text where a number or a switch belongs.
    """
    flags = _parse(arguments)
    if flags.help:
        # Hydra's own would compose the config and print its thousand lines.
        print(
            HELP.format(config=flags.config_name or config_name, settings=BASE_YAML.read_text().partition("\n\n")[2]),
            end="",
        )
        return None
    composed: list[DictConfig] = []
    try:
        # The run itself happens outside Hydra, which would print every override before an error of ours.
        hydra.main(config_path=str(CONFIG_FOLDER), config_name=config_name, version_base="1.3")(composed.append)()
        if composed:
            _check_types(composed[0], flags.overrides, flags.config_name or config_name)
    except ConfigError:
        raise
    except (hydra.errors.HydraException, OmegaConfBaseException, ValueError) as error:
        raise ConfigError(describe(error)) from error
    return composed[0] if composed else None


def describe(error: Exception) -> str:
    """What Hydra or OmegaConf has to say, on one line, with the key that was meant where there is one."""
    cause = error.__cause__
    if isinstance(cause, ConfigKeyError | ConfigAttributeError) and isinstance(cause.parent_node, DictConfig):
        return _unknown_key(str(cause.full_key), str(cause.key), cause.parent_node)
    if isinstance(error, hydra.errors.OverrideParseException):
        reason = str(error).splitlines()[0]
        return f"{error.override!r} cannot be read ({reason}); write key=value, with quotes around special characters"
    if isinstance(error, hydra.errors.MissingConfigException) and "primary config" in str(error):
        names = ", ".join(sorted(path.stem for path in CONFIG_FOLDER.glob("[!_]*.yaml")))
        return f"--config-name={error.missing_cfg_file} does not exist; write one of: {names}"
    text = str(error)
    for not_to_be_told in ("Config search path", "3. To sweep over it"):
        text = text.partition(not_to_be_told)[0]
    text = " ".join(text.split())
    return text if len(text) <= 300 else text[:297] + "..."


def _unknown_key(full_key: str, key: str, parent: DictConfig) -> str:
    known = [str(name) for name in parent]
    place = full_key.removesuffix(key)
    close = get_close_matches(key, known, n=1)
    if close:
        return f"{full_key}: unknown key; did you mean {place}{close[0]}?"
    return f"{full_key}: unknown key; --cfg job shows all, +{full_key}=... adds one that verl reads without listing it"


def _check_types(config: DictConfig, overrides: list[str], config_name: str) -> None:
    """Refuses text for a number or a switch. OmegaConf does not: upstream's YAML is untyped, only its defaults tell."""
    texts = {}
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        value = OmegaConf.select(config, key, throw_on_missing=False) if "=" in override else None
        if isinstance(value, str) and "/" not in value and not key.endswith(_FREE_TEXT):
            texts[key] = value
    if not texts:
        return
    hardware = next(override for override in overrides if override.lstrip("+").startswith("hardware="))
    with hydra.initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        defaults = hydra.compose(config_name, overrides=[hardware])
    for key, value in texts.items():
        expected = _EXPECTED.get(type(OmegaConf.select(defaults, key, throw_on_missing=False)))
        if expected:
            raise ConfigError(f"{key}: expected {expected}, got {value!r}")
