"""Who is evaluated, on what: from a training run and its last checkpoint, or from models and files that a user names.

One decision: both are one config, that of a training. A run has it in its folder; otherwise it is composed of
`rcl_trainer.yaml`, with what was named under the keys that a training has for it. So everything behind is the same.

    >>> source = of_run(Path("outputs/rcl"), Named(), ["rcl.protocol.max_probe_tokens=0"])
    >>> source.teacher, source.untrained
    ('outputs/rcl/global_step_60/actor/huggingface', 'Qwen/Qwen2.5-0.5B-Instruct')
"""

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from verl.classmate.aliases import resolve_aliases
from verl.classmate.config import RunConfig
from verl.classmate.errors import ConfigError
from verl.teaching.config import NODE, TeachingConfig
from verl.trainer.preflight.data import data_files
from verl.trainer.run.checkpoints import latest_step, step_folders
from verl.trainer.run.command_line import compose, prepare_overrides
from verl.trainer.run.model_folders import model_of
from verl.trainer.run.recorded_config import read_config
from verl.trainer.run.start import read_run
from verl.trainer.run.unset import fill_in
from verl.utils.device import get_device_name

_CONFIG = "rcl_trainer"
_MAPPING = "reward_model.classmate_cot_reward_configs.host_classmate_name_to_url_json_fn"


@dataclass(frozen=True, kw_only=True)
class Named:
    """What a user named; None: as the run has it."""

    teacher: str | None = None
    """Path or hub name."""
    untrained: str | None = None
    """What the teacher was trained from."""
    students: tuple[str, ...] | None = None
    """Those that it was trained with."""
    unseen: tuple[str, ...] | None = None
    """Those that it was not trained with."""
    data: tuple[str, ...] | None = None
    """Files with questions to evaluate on."""
    train_data: tuple[str, ...] | None = None
    """Files with questions of the training, for the search of fixed advice."""
    templates: str | None = None
    """YAML file."""
    engine: str | None = None
    """hf, vllm or openai, for all models."""
    servers: str | None = None
    """The file that names servers, for openai."""
    step: int | None = None
    """Of a run's checkpoint; None: the last one."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """What is evaluated, and under which config."""

    config: DictConfig
    """The whole; upstream's keys are read from it."""
    run: RunConfig
    """Its typed view."""
    teaching: TeachingConfig
    """Its typed node `rcl`."""
    folder: Path | None
    """The run; None without one."""
    step: int | None
    """Of the checkpoint; None for a model that was named."""
    teacher: str
    """Path or hub name."""
    untrained: str | None
    """Likewise; None where nobody knows it."""
    data: tuple[str, ...]
    """Files to evaluate on."""
    train_data: tuple[str, ...]
    """Files of the training; there may be none."""


def of_run(folder: Path, named: Named, overrides: Sequence[str]) -> Source:
    """A run's last checkpoint, with whatever was named in the place of the run's own.

    Raises:
        ConfigError: it is no teacher's run, has no such checkpoint, or something named is not possible.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder; name a run's, or write --teacher PATH --students PATH --data FILE")
    content = read_config(folder)
    if NODE not in content:
        what = "has no config.yaml" if not content else f"trained no teacher: its config.yaml has no node {NODE}"
        raise ConfigError(f"{folder} {what}; name the folder of a teacher's run, or write --teacher PATH")
    config = OmegaConf.create(content)
    assert isinstance(config, DictConfig)
    changed = _override(config, [*_keys_of(named), *overrides])
    for key, place in (("students", "classmates"), ("unseen_students", "evaluation_classmates")):
        # The run's own stands in its config as it was resolved.
        if any(one.startswith(f"{NODE}.{key}") for one in changed):
            config.reward_model[place] = config[NODE][key]
    _check_apart(OmegaConf.to_container(config[NODE], resolve=True))
    step = None
    teacher = named.teacher
    if teacher is None:
        step, checkpoint = _checkpoint(folder, named.step)
        teacher = str(model_of(checkpoint))
    elif named.step is not None:
        raise ConfigError("--step names a checkpoint of the run, and --teacher another model; write one of the two")
    return _source(config, named, folder=folder, step=step, teacher=teacher)


def of_names(named: Named, overrides: Sequence[str]) -> Source:
    """Models and files that a user named.

    Raises:
        ConfigError: one is missing or not possible.
    """
    if named.step is not None:
        raise ConfigError("--step names a checkpoint of a run; name the run too, or leave it out")
    for option, value, what in (
        ("--teacher", named.teacher, "PATH, or name a training run"),
        ("--students", named.students, "PATH[,PATH]"),
        ("--data", named.data, "FILE.parquet"),
    ):
        if not value:
            raise ConfigError(f"{option} is missing; write {option} {what}")
    composed = compose(_CONFIG, prepare_overrides([*_keys_of(named), *overrides]))
    if composed is None:
        raise ConfigError("flags of Hydra have no place here; --help shows what has")
    _check_apart(OmegaConf.to_container(composed[NODE], resolve=True))
    fill_in(composed).refuse()
    assert named.teacher is not None
    return _source(composed, named, folder=None, step=None, teacher=named.teacher)


def _keys_of(named: Named) -> list[str]:
    """What was named, as overrides."""
    keys = []
    for name, models in (("students", named.students), ("unseen_students", named.unseen)):
        if models is not None:
            keys.append(f"{NODE}.{name}=[{','.join(f'{{model: {_quoted(one)}}}' for one in models)}]")
    for key, files in (("val_files", named.data), ("train_files", named.train_data or named.data)):
        if files is not None and (key == "val_files" or named.train_data or (named.teacher and named.students)):
            keys.append(f"data.{key}=[{','.join(map(_quoted, files))}]")
    if named.teacher is not None and named.students is not None:
        keys.append(f"actor_rollout_ref.model.path={_quoted(named.teacher)}")
    if named.templates is not None:
        keys.append(f"{NODE}.templates_file={_quoted(named.templates)}")
    if named.engine is not None:
        keys.append(f"reward_model.classmate_backend={named.engine}")
    if named.servers is not None:
        keys.append(f"{_MAPPING}={_quoted(named.servers)}")
    return keys


def _quoted(text: str) -> str:
    """Text that Hydra takes as it is."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _override(config: DictConfig, overrides: Sequence[str]) -> list[str]:
    """Changes a run's config in place; the keys that were given.

    Raises:
        ConfigError: an override that cannot be read, or a key that the run does not have.
    """
    keys = []
    for text in resolve_aliases(list(overrides)):
        try:
            override = OverridesParser.create().parse_override(text)
            key, value = override.get_key_element().lstrip("+"), override.value()
            if override.is_delete() or override.is_sweep_override():
                raise ConfigError(f"{text!r} is not possible here; write key=value")
            if not text.startswith("+") and OmegaConf.select(config, key.rpartition(".")[0] or key) is None:
                raise ConfigError(f"{key}: unknown key; the run's config.yaml has those that are possible")
            with open_dict(config):
                OmegaConf.update(config, key, value, force_add=True)
        except (HydraException, OmegaConfBaseException) as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(f"{text!r} cannot be read ({reason}); write key=value") from error
        keys.append(key)
    return keys


def _checkpoint(folder: Path, step: int | None) -> tuple[int, Path]:
    """Step and folder of a run's checkpoint.

    Raises:
        ConfigError: it has none, or not this one.
    """
    there = step_folders(folder)
    wanted = latest_step(folder) if step is None else step
    if not there or not wanted:
        raise ConfigError(
            f"{folder} has no checkpoint; train with trainer.save_freq=N, or name a model by --teacher PATH"
        )
    if wanted not in there:
        raise ConfigError(f"--step {wanted}: {folder} has the steps {', '.join(map(str, there))}; write one of them")
    return wanted, there[wanted]


def _source(config: DictConfig, named: Named, *, folder: Path | None, step: int | None, teacher: str) -> Source:
    with open_dict(config):
        # A run may be evaluated on another machine.
        config.trainer.device = "cuda" if get_device_name() == "cuda" else "cpu"
        if named.engine is not None:
            for place in ("classmates", "evaluation_classmates"):
                for spec in config.reward_model[place] or ():
                    spec.backend = named.engine
        plain: Any = OmegaConf.to_container(config, resolve=True)
    run = read_run(plain, "classmate_cot")
    if folder is not None:
        run = dataclasses.replace(run, folder=folder)
    start = None if folder is None else str(OmegaConf.select(config, "actor_rollout_ref.model.path"))
    trained = tuple(data_files(plain["data"], "train_files"))
    known = folder is not None or named.train_data
    return Source(
        config=config,
        run=run,
        teaching=TeachingConfig.read(plain[NODE]),
        folder=folder,
        step=step,
        teacher=teacher,
        untrained=named.untrained or start,
        data=tuple(data_files(plain["data"], "val_files")),
        train_data=trained if known else (),
    )


def _check_apart(node: Any) -> None:
    """No student is both trained with and unseen, or named twice.

    Raises:
        ConfigError: one is.
    """
    seen: dict[str, str] = {}
    for key, option in (("students", "--students"), ("unseen_students", "--unseen")):
        for spec in node.get(key) or ():
            model = spec["model"] if isinstance(spec, dict) else str(spec)
            path = Path(model).expanduser()
            name = str(path.resolve()) if path.is_dir() else re.sub(r"/+$", "", model)
            if name in seen:
                where = "twice" if seen[name] == option else f"in {seen[name]} too"
                raise ConfigError(f"{option}: {model} is {where}; name each student once")
            seen[name] = option
