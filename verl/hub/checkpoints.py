"""The checkpoints of a run as they are uploaded: which are whole, what is known of their run, shards merged to a model.

>>> run = read_run(Path("outputs/run"))
>>> [checkpoint.name for checkpoint in run.checkpoints]
['global_step_40', 'global_step_80']
"""

import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from verl.trainer.run.checkpoints import TRACKER, step_folders
from verl.trainer.run.model_folders import can_be_merged, has_whole_weights, merge_shards


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One model to upload."""

    name: str
    """Of the branch: `global_step_N`; any name for a folder that goes to `main` only."""
    step: int | None
    """N; None for a folder that is no checkpoint of a run."""
    model: Path
    """Folder in the format of transformers: `actor/huggingface` of a checkpoint."""
    actor: Path | None
    """Folder with the shards of the training; None for a plain model folder."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A folder of checkpoints and what is known about it."""

    checkpoints: tuple[Checkpoint, ...]
    """Oldest first."""
    config: Mapping[str, Any]
    """Of the run's `config.yaml`; empty without one."""
    metrics: tuple[Mapping[str, Any], ...]
    """Lines of the run's `metrics.jsonl`."""
    notes: tuple[str, ...]
    """What a person should know: checkpoints that are left out."""
    newest: int | None = None
    """Step of the newest checkpoint of the run, which goes to `main` too."""


def read_run(root: Path, *, step: int | None = None) -> Run:
    """The checkpoints in `root`, a run folder or any folder with `global_step_N` in it, or only the one of `step`.

    Folders without `actor` do not count: upstream leaves them of checkpoints that it removes.

    Raises:
        ValueError: when there is none, or one is neither a whole model nor can be merged.
    """
    found = {step: folder for step, folder in step_folders(root).items() if (folder / "actor").is_dir()}
    if not found:
        hint = f"name its parent, {root.parent}, or --main_only_path {root}" if _step_of(root) else "name a run folder"
        raise ValueError(f"no global_step_N folder with a model in {root}: {hint}")
    tracker = root / TRACKER
    text = tracker.read_text().strip() if tracker.exists() else ""
    newest = int(text) if text.isdigit() else max(found)
    notes = [f"global_step_{step} is left out: its save did not finish" for step in sorted(found) if step > newest]
    whole = [number for number in sorted(found) if number <= newest]
    if not whole:
        raise ValueError(f"no save of a checkpoint in {root} has finished: nothing to upload")
    if step is not None and step not in whole:
        raise ValueError(f"--step {step}: {root} has the steps {', '.join(map(str, whole))}; write one of them")
    checkpoints = tuple(_checkpoint(found[number], number) for number in whole if step in (None, number))
    kept = tuple(notes) if step is None else ()
    return Run(checkpoints=checkpoints, notes=kept, newest=whole[-1], **_story(root))


def read_folder(path: Path) -> Run:
    """One folder for `main`: a `global_step_N`, its `actor`, or any model folder.

    Raises:
        ValueError: when it holds no model.
    """
    path = path.resolve()
    for folder in (path, path.parent, path.parent.parent):
        if (match := _step_of(folder)) and path in (folder, folder / "actor", folder / "actor" / "huggingface"):
            return Run(checkpoints=(_checkpoint(folder, int(match[1])),), notes=(), **_story(folder.parent))
    if not has_whole_weights(path):
        raise ValueError(f"{path} is neither a global_step_N folder nor a model folder with config.json and weights")
    model = Checkpoint(name=path.name, step=None, model=path, actor=None)
    return Run(checkpoints=(model,), config={}, metrics=(), notes=())


def _step_of(path: Path) -> re.Match[str] | None:
    return re.fullmatch(r"global_step_(\d+)", path.name)


def _checkpoint(folder: Path, step: int) -> Checkpoint:
    actor = folder / "actor"
    checkpoint = Checkpoint(name=f"global_step_{step}", step=step, model=actor / "huggingface", actor=actor)
    if not has_whole_weights(checkpoint.model) and not can_be_merged(actor):
        raise ValueError(
            f"{folder} has neither a whole model in actor/huggingface nor all shards in actor: move it away, or name "
            "the good ones by --main_only_path"
        )
    return checkpoint


def _story(root: Path) -> dict[str, Any]:
    """Config and metrics of the run in `root`, as far as they are there."""
    config, metrics = root / "config.yaml", root / "metrics.jsonl"
    lines: list[Mapping[str, Any]] = []
    for text in metrics.read_text().splitlines() if metrics.exists() else []:
        with contextlib.suppress(json.JSONDecodeError):  # the last line of a run that was killed
            line = json.loads(text)
            lines += [line] if "step" in line else []
    return {"config": (yaml.safe_load(config.read_text()) or {}) if config.exists() else {}, "metrics": tuple(lines)}


def merge(checkpoint: Checkpoint) -> None:
    """Makes the model folder out of the shards, by upstream's merger.

    Raises:
        ValueError: when it fails.
    """
    assert checkpoint.actor is not None
    merge_shards(checkpoint.actor, checkpoint.model)
