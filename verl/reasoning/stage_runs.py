"""A stage's work in its folder: once, whole, and never again while its inputs are the same.

One decision: what a stage leaves is named file by file in its manifest; everything else in its folder (checkpoints,
journals, logs) is what a killed stage goes on from, and follows nobody.

    >>> runs = StageRuns(Path("reasoning_output"), on_event=print)
    >>> folder = runs.run("rejection", work, config=config, parents={"model": rl_folder}, seed=0)
"""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl.reasoning import manifest
from verl.reasoning.manifest import StageInputs

MODEL = "model"
"""Folder of a stage's model, in the stage's."""

Work = Callable[[Path], "Made"]
"""Does a stage's work in its folder, or goes on with it."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """What a stage has made."""

    files: tuple[str, ...]
    """Its outputs, relative to its folder; a folder stands for all files in it."""
    counts: Mapping[str, float] = field(default_factory=dict)
    """Of problems, solutions, failures, for a person."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a stage took, over all runs that it needed."""

    seconds: float | None
    """By the wall (`manifest.seconds_of`); None: not known."""
    counts: Mapping[str, float]
    """Of its manifest."""


class StageRuns:
    """The folders of one pipeline."""

    def __init__(self, root: Path, *, resume: bool = True, on_event: Callable[[str], None]) -> None:
        """Makes nothing.

        Args:
            root: the pipeline's folder.
            resume: skip stages that are current.
            on_event: gets a line when a stage is skipped, goes on, or begins, and why.
        """
        self.root, self._resume, self._on_event = root, resume, on_event
        self.seconds: dict[str, float] = {}
        """How long each stage took in this process; 0 for one that was skipped."""
        self.costs: dict[str, Cost] = {}
        """What each stage took in all, also where it was done before."""

    def run(
        self,
        name: str,
        work: Work,
        *,
        config: Any,
        parents: Mapping[str, Path | str] | None = None,
        model: str = "",
        model_revision: str = "",
        seed: int = 0,
    ) -> Path:
        """The folder with a stage's outputs, which are made unless they are there.

        Raises:
            FileNotFoundError: a parent has not been made.
        """
        folder = self.root / name
        inputs = StageInputs(
            stage=name, config=config, parents=parents or {}, model=model, model_revision=model_revision, seed=seed
        )
        if not self._resume and folder.exists():
            shutil.rmtree(folder)
        reason = manifest.stale_reason(folder, inputs)
        todo = manifest.begin(folder, inputs)
        if todo == "skip":
            self._on_event(f"{name}: done before, nothing has changed")
            self.seconds[name] = 0.0
            self.costs[name] = _cost(folder)
            return folder
        self._on_event(f"{name}: {'goes on' if todo == 'resume' else 'begins'} ({reason})")
        started = time.monotonic()
        made = work(folder)
        manifest.finish(folder, inputs, counts=made.counts, files=_files(folder, made.files))
        self.seconds[name] = time.monotonic() - started
        self.costs[name] = _cost(folder)
        return folder


def _cost(folder: Path) -> Cost:
    return Cost(seconds=manifest.seconds_of(folder), counts=manifest.counts_of(folder))


def place_model(source: Path | str, folder: Path) -> Path:
    """A model's files in a stage's folder `model`: as links, so that they take no space twice, or else as copies."""
    target, source = folder / MODEL, Path(source)
    if target.exists() and target.samefile(source):
        return target
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, copy_function=_link, ignore=_not_a_models)
    return target


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _not_a_models(folder: str, names: list[str]) -> set[str]:
    """What lies beside a model and is none of it."""
    return {name for name in names if name in ("run", "checkpoints", "started.json") or name.endswith(".partial")}


def _files(folder: Path, names: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    for name in names:
        path = folder / name
        if path.is_dir():
            found += sorted(one.relative_to(folder).as_posix() for one in path.rglob("*") if one.is_file())
        else:
            found.append(name)
    return found
