"""The command line of our entry points: flags and overrides told apart, aliases resolved, one line for each mistake.

Decision: Hydra parses and composes; what it says over several lines, or with a traceback, becomes a `ConfigError` here.
Its `main` only shows things: it would compose twice, make folders, and print every override before an error of ours.

    >>> sys.argv[1:] = prepare_overrides(sys.argv[1:])
    >>> config = compose("classmate_cot_ppo_trainer")        # None after --help and the like
"""

import dataclasses
import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import hydra
import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import IConfigRepository
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_automatic_config_search_path, get_args_parser
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.default_element import ResultDefault
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import setup_globals
from hydra.plugins.config_source import ConfigResult
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, InterpolationKeyError, OmegaConfBaseException

from verl.classmate.algorithm_config import AlgorithmConfig
from verl.classmate.aliases import resolve_aliases
from verl.classmate.config import BASE_YAML
from verl.classmate.errors import ConfigError
from verl.classmate.typed import missing_key
from verl.stepwise.config import NODE as REASONING_NODE
from verl.trainer.run.choices import USUAL

CONFIG_FOLDER = Path(__file__).parents[1] / "config"
"""Our primary YAML files; upstream's are found by their search path."""

HARDWARE = "hardware"
"""Config group of the settings of a machine; what users type, whatever group a config has."""

_UPSTREAM = "pkg://verl.trainer.config"
"""Where Hydra finds upstream's YAML files; our primary ones say it too, for those who compose them by `hydra.main`."""

_EXPECTED = {bool: "true or false", int: "an integer", float: "a number"}

_FREE_TEXT = ("name", "path", "dir", "files", "strategy")
"""Endings of keys whose values are text by nature, so that their defaults need not be looked up."""

_NODES_WITH_FILES = ("actor_rollout_ref.model", "critic.model", "data", "model", "reward", "reward_model", "trainer")
"""Where users name models and files. Upstream's own `~/` elsewhere stays: a run may be resumed from another home."""

_NAMES = ("trainer.project_name", "trainer.experiment_name", "trainer.default_local_dir")
"""Keys whose values are text even where they look like numbers."""


HELP = """\
usage: python -m verl.trainer.ENTRY_POINT [--config-name=CONFIG] [flag ...] key=value ...

entry points          classmate_cot_main_ppo, qwen_classmate_cot_main_ppo, qwen_main_ppo (the baseline)
config                {config}; --config-name names another one

the keys that a run needs
  actor_rollout_ref.model.path=MODEL                      a folder or a hub name
  reward_model.classmate_model_name_or_path_list=[A,B]    the classmates
  data.train_files=FILE.parquet data.val_files=FILE.parquet

keys that are often wanted
  data.train_batch_size=N                                 keys left out follow those that are set, as a start shows
  trainer.n_gpus_per_node=N trainer.total_training_steps=N trainer.default_local_dir=FOLDER

flags
  --config-dir FOLDER   YAML files of your own, for --config-name
  --cfg job             all keys with their values, verl's too
  --info defaults       the YAML files that they come from
  --hydra-help          Hydra's other flags
  hardware=cpu|gpu      settings of the machine; found out if it is not given

settings of this project

{settings}"""


def default_hardware() -> str:
    """`gpu` where a GPU answers, else `cpu`."""
    import torch

    return "gpu" if torch.cuda.is_available() else "cpu"


def prepare_overrides(arguments: list[str], *, hardware: str = HARDWARE) -> list[str]:
    """Hydra's command line with flags in front, aliases resolved and the hardware group chosen.

    Args:
        arguments: what was typed.
        hardware: the config group that `hardware=cpu` chooses from.

    Raises:
        ConfigError: for a flag that Hydra does not know, for a sweep, and when two spellings of one key disagree.
    """
    typed = _parse(arguments).overrides
    flags, position = [], 0
    for argument in arguments:
        if position < len(typed) and argument == typed[position]:
            position += 1
        else:
            flags.append(argument)
    overrides = [_quoted_name(override) for override in resolve_aliases(typed)]
    chosen = [override for override in overrides if override.lstrip("+").startswith(f"{HARDWARE}=")]
    if not chosen:
        overrides.append(f"{hardware}={default_hardware()}")
    elif hardware != HARDWARE:
        overrides = [override for override in overrides if override not in chosen]
        overrides.append(f"{hardware}={chosen[-1].partition('=')[2]}")
    return flags + overrides


def _parse(arguments: list[str]) -> Any:
    parser = get_args_parser()

    def refuse(message: str) -> NoReturn:
        raise ConfigError(f"{message}; --help shows the flags, settings are written key=value")

    parser.error = refuse  # type: ignore[method-assign]
    flags = parser.parse_intermixed_args(arguments)
    if flags.multirun:
        _refuse_sweep("--multirun")
    for override in flags.overrides:
        if override.lstrip("+~").startswith(("hydra.mode=", "hydra.sweep", "hydra/sweep")):
            _refuse_sweep(override)
    if flags.experimental_rerun is not None:
        raise ConfigError("--experimental-rerun: Hydra keeps no runs here; write the run's settings as key=value")
    return flags


def _refuse_sweep(typed: str) -> NoReturn:
    raise ConfigError(
        f"{typed}: one command trains one run; write a command for each value, "
        "each with a trainer.default_local_dir of its own"
    )


def _quoted_name(override: str) -> str:
    """A name that Hydra would read as a number or a switch, in quotes; any other override as it is."""
    key, _, value = override.partition("=")
    if key.lstrip("+") not in _NAMES:
        return override
    try:
        read = OverridesParser.create().parse_override(override).value()
    except hydra.errors.HydraException:
        return override  # Hydra will say so.
    return f"{key}='{value}'" if isinstance(read, bool | int | float) else override


def compose(
    config_name: str, arguments: list[str], *, hardware: str = HARDWARE, help_text: str = HELP
) -> DictConfig | None:
    """The composed config of `arguments`; None when a flag asked for something else.

    `~/` before a model or a file becomes the home folder here, once: not all who open it later know what it means.

    Args:
        config_name: the primary YAML file used when `--config-name` is not given.
        arguments: what `prepare_overrides` returned. Flags that show something are read from `sys.argv`, which must
            hold the same.
        hardware: the config group of the machine's settings.
        help_text: of `--help`, with the fields `config` and `settings`.

    Raises:
        ConfigError: for whatever Hydra refuses, and for text where a number or a switch belongs.
    """
    flags = _parse(arguments)
    if flags.help:
        # Hydra's own would compose the config and print its thousand lines.
        print(
            help_text.format(
                config=flags.config_name or config_name, settings=BASE_YAML.read_text().partition("\n\n")[2]
            ),
            end="",
        )
        return None
    name = flags.config_name or config_name
    try:
        loader = _loader(flags)
        if flags.cfg or flags.info or flags.hydra_help or flags.shell_completion or flags.resolve:
            _show(flags, loader, name)
            return None
        config = _load(loader, name, flags.overrides)
        _check_types(config, flags.overrides, loader, name, hardware)
        _expand_home(config)
    except ConfigError:
        raise
    except (hydra.errors.HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError) as error:
        if flags.config_name and f"Could not override '{hardware}'" in str(error):
            raise ConfigError(
                f"--config-name={name} does not build on a config of ours; write `defaults: [{config_name}, _self_]` "
                "at the top of the YAML"
            ) from error
        raise ConfigError(describe(error)) from error
    return config


class _Loader(ConfigLoaderImpl):
    """Hydra's, with which a YAML of a user's may build on ours: `defaults: [classmate_cot_ppo_trainer, _self_]`.

    Hydra takes a search path from the primary YAML only, and refuses one in any other. That of ours is added by
    `_loader`, so that it is not needed where a YAML of ours is not the primary one.
    """

    def _load_single_config(self, default: ResultDefault, repo: IConfigRepository) -> ConfigResult:
        loaded = repo.load_config(default.config_path) if default.config_path and not default.primary else None
        node = loaded.config if loaded is not None else None
        if isinstance(node, DictConfig) and OmegaConf.select(node, "hydra.searchpath") == [_UPSTREAM]:
            del node.hydra.searchpath
        return super()._load_single_config(default, repo)


def _show(flags: Any, loader: ConfigLoaderImpl, config_name: str) -> None:
    """What one of Hydra's flags asks for. Its own `main` would compose by a loader of its own.

    Raises:
        ConfigError: for flags that exclude each other.
    """
    if sum(map(bool, (flags.cfg, flags.info, flags.shell_completion, flags.run))) > 1:
        raise ConfigError("--run, --cfg, --info and --shell-completion exclude each other; write only one of them")
    shown = Hydra(task_name=Path(__file__).stem, config_loader=loader)
    GlobalHydra.instance().initialize(shown)
    try:
        if flags.hydra_help:
            shown.hydra_help(config_name=config_name, args_parser=get_args_parser(), args=flags)
        elif flags.cfg:
            shown.show_cfg(config_name, flags.overrides, flags.cfg, flags.package, flags.resolve)
        elif flags.info:
            shown.show_info(flags.info, config_name, flags.overrides)
        elif flags.shell_completion:
            shown.shell_completion(config_name, flags.overrides)
        else:
            raise ConfigError("--resolve: says how --cfg shows values; write --cfg job --resolve")
    finally:
        GlobalHydra.instance().clear()


def _loader(flags: Any) -> ConfigLoaderImpl:
    """What finds YAML files: in our folder or --config-path, and in --config-dir."""
    hydra.version.setbase("1.3")
    setup_globals()
    # A relative --config-path starts at the folder of the entry points.
    path = create_automatic_config_search_path(str(CONFIG_FOLDER), None, flags.config_path or str(CONFIG_FOLDER))
    structured = SearchPathQuery(provider="schema")
    if flags.config_dir is not None:
        folder = Path(flags.config_dir).absolute()
        if not folder.is_dir():
            raise ConfigError(f"--config-dir={flags.config_dir} does not exist; name the folder of your YAML files")
        path.prepend("command-line", f"file://{folder}", structured)
    path.prepend("verl", _UPSTREAM, structured)
    return _Loader(config_search_path=path)


def _load(loader: ConfigLoaderImpl, config_name: str, overrides: list[str]) -> DictConfig:
    config = loader.load_configuration(config_name, overrides, run_mode=RunMode.RUN)
    if config.hydra.mode == RunMode.MULTIRUN:
        _refuse_sweep(f"hydra.mode=MULTIRUN in {config_name}")
    with open_dict(config):
        del config["hydra"]
    return config


def _expand_home(config: DictConfig) -> None:
    for key in _NODES_WITH_FILES:
        node = OmegaConf.select(config, key)
        if OmegaConf.is_config(node):
            _expand_texts(node, OmegaConf.to_container(node))


def _expand_texts(node: Any, plain: Any) -> None:
    for key, value in plain.items() if isinstance(plain, dict) else enumerate(plain):
        if isinstance(value, dict | list):
            _expand_texts(node[key], value)
        elif isinstance(value, str) and value.startswith("~/"):
            node[key] = os.path.expanduser(value)


def describe(error: Exception) -> str:
    """What Hydra or OmegaConf has to say, on one line, with the key that was meant where there is one."""
    cause = error.__cause__
    if isinstance(cause, ConfigKeyError | ConfigAttributeError) and isinstance(cause.parent_node, DictConfig):
        return _unknown_key(str(cause.full_key), str(cause.key), cause.parent_node)
    if isinstance(error, ConfigKeyError | ConfigAttributeError) and error.full_key:
        return missing_key(str(error.full_key))
    if isinstance(error, InterpolationKeyError) and (key := re.search("'(.+)' not found", str(error))):
        return missing_key(key[1])
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return _unreadable_yaml(error.problem_mark, str(error.problem))
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


def _unreadable_yaml(mark: yaml.Mark, problem: str) -> str:
    advice = {"found character '\\t'": "write spaces", "found duplicate key": "write it once"}
    write = next((text for start, text in advice.items() if problem.startswith(start)), "correct the line")
    return f"{mark.name}, line {mark.line + 1}: {problem}; {write}"


def _unknown_key(full_key: str, key: str, parent: DictConfig) -> str:
    known = [str(name) for name in parent]
    place = full_key.removesuffix(key)
    close = get_close_matches(key, known, n=1)
    if close:
        return f"{full_key}: unknown key; did you mean {place}{close[0]}?"
    return f"{full_key}: unknown key; --cfg job shows all keys, +{full_key}=... adds one that only verl's code knows"


def _check_types(
    config: DictConfig, overrides: list[str], loader: ConfigLoaderImpl, config_name: str, group: str
) -> None:
    """Refuses text for a number or a switch. OmegaConf does not: upstream's YAML is untyped, only its defaults tell."""
    texts = {}
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        value = OmegaConf.select(config, key, throw_on_missing=False) if "=" in override else None
        if isinstance(value, str) and not key.endswith(_FREE_TEXT) and not _is_typed(key):
            texts[key] = value
    if not texts:
        return
    hardware = next(override for override in overrides if override.lstrip("+").startswith(f"{group}="))
    defaults = _load(loader, config_name, [hardware])
    for key, value in texts.items():
        default = OmegaConf.select(defaults, key, throw_on_missing=False)
        expected = _EXPECTED.get(type(USUAL.get(key) if default is None else default))
        if expected:
            raise ConfigError(f"{key}: expected {expected}, got {value!r}")


def _is_typed(key: str) -> bool:
    """Whether our typed config checks the key's value."""
    names = {field.name for field in dataclasses.fields(AlgorithmConfig)}
    return key.startswith(("reward_model.", f"{REASONING_NODE}.")) or key.removeprefix("algorithm.") in names
