"""The run files in `configs/run`: which one is meant, and which phase it belongs to.

One decision: a run file says its phase itself (`launch: {phase: rl}`) or takes it from the run file that it builds on.
So a file of a user's own needs no entry anywhere. Nothing here writes a file.

    >>> find("configs/run/teacher_rcl.yaml", CONFIGS)
    'teacher_rcl'
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from verl.classmate.errors import ConfigError
from verl.trainer.launchers.phases import PHASES, Phase

ROOT = Path(__file__).resolve().parents[3]
"""The repository."""

CONFIGS = ROOT / "configs"
"""Folders of YAML files: run files, and what they are put together from."""

_DEEPEST = 8
"""Run files that build on one another."""


def find(typed: str, configs: Path) -> str:
    """The name of a run file below `configs/run`, without `.yaml`.

    Args:
        typed: `configs/run/x.yaml`, `run/x.yaml`, `x.yaml` or `x`, or the file's own path.
        configs: the folder `configs`.

    Raises:
        ConfigError: there is no such file; it lists those that there are.
    """
    folder = (configs / "run").resolve()
    name = os.path.normpath(typed).removesuffix(".yaml")
    absolute = os.path.realpath(typed).removesuffix(".yaml")
    if absolute.startswith(f"{folder}/"):
        name = absolute.removeprefix(f"{folder}/")
    for prefix in ("configs/", "run/"):
        name = name.removeprefix(prefix)
    if not name.startswith(("/", "..")) and (folder / f"{name}.yaml").is_file():
        return name
    names = sorted(str(path.relative_to(folder)).removesuffix(".yaml") for path in folder.rglob("*.yaml"))
    raise ConfigError(f"{typed}: there is no such run file in configs/run; write one of: {', '.join(names)}")


def phase_of(name: str, configs: Path) -> Phase:
    """The phase of a run file.

    Raises:
        ConfigError: it names none, or one that there is not; it is no YAML.
    """
    for seen, content in _chain(name, configs):
        launch = content.get("launch")
        phase = launch.get("phase") if isinstance(launch, dict) else None
        if phase is not None and phase not in PHASES:
            raise ConfigError(
                f"configs/run/{seen}.yaml: launch.phase={phase} is not possible; write one of: {', '.join(PHASES)}"
            )
        if phase is not None:
            return PHASES[phase]
    raise ConfigError(
        f"configs/run/{name}.yaml does not say its phase; write `launch: {{phase: rl}}`, or one of: {', '.join(PHASES)}"
    )


def groups_of(name: str, configs: Path) -> dict[str, bool]:
    """Folders beside `configs/run` that a setting may choose a file of; whether the run file chooses one already."""
    chosen = chosen_groups(name, configs)
    folders = sorted(path.name for path in configs.iterdir() if path.is_dir() and path.name not in ("run", "world"))
    return {folder: folder in chosen for folder in folders}


def chosen_groups(name: str, configs: Path) -> set[str]:
    """Folders of which a run file, or one that it builds on, takes a file."""
    return {
        str(key).removeprefix("override ").lstrip("/").removesuffix("@_global_")
        for _, content in _chain(name, configs)
        for entry in content.get("defaults") or ()
        if isinstance(entry, dict)
        for key in entry
    }


def _chain(name: str, configs: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """A run file and those that it builds on, by name, with their content."""
    seen: str | None = name
    for _ in range(_DEEPEST):
        if seen is None:
            return
        content = _read(configs / "run" / f"{seen}.yaml")
        yield seen, content
        seen = _parent(content)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read ({' '.join(str(error).split())}); correct the file") from error
    return content if isinstance(content, dict) else {}


def _parent(content: dict[str, Any]) -> str | None:
    """The run file that another builds on: an entry without a group, as Hydra has it."""
    for entry in content.get("defaults") or ():
        if isinstance(entry, str) and entry != "_self_" and not entry.startswith("/"):
            return entry.removesuffix(".yaml")
    return None
