"""Builds a reasoning world in a folder, part by part; what stands whole is never built again.

One decision: each model is a folder with the hash of all that it follows from, as in `verl.data_preprocessing.worlds`.
Readers follow from no seed: worlds of several seeds can share them.

    world = make_world(Path("data/reasoning_world"), ReasoningWorldSpec(seed=1), readers=Path("data/readers"))
    world.manifest["models"]["base"]["pass@1"]
    world.model("student"), world.file("labelled.jsonl")        # paths
"""

import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

from filelock import FileLock

from verl.classmate.errors import ConfigError
from verl.data_preprocessing import common, embedded_models, embedded_tokenizers
from verl.data_preprocessing.embedded_models import ModelSpec
from verl.data_preprocessing.reasoning_world import checking, lessons, measure, models, planting, problems, rows
from verl.data_preprocessing.reasoning_world.spec import Flaws, ReasoningWorldSpec
from verl.data_preprocessing.worlds.build import Part, build_part, source_key

BUILDER = "verl.data_preprocessing.reasoning_world"
MARK = "world.json"
MODELS = "models"
_LOCK = ".lock"

_PROBLEM_SOURCES = (common, problems, checking, planting)
_MODEL_SOURCES: tuple[ModuleType, ...] = (
    *_PROBLEM_SOURCES,
    embedded_models,
    embedded_tokenizers,
    lessons,
    measure,
    models,
)


@dataclass(frozen=True, kw_only=True)
class ReasoningWorld:
    """A world that stands in a folder."""

    folder: Path
    """Where it is."""
    manifest: dict[str, Any]
    """Content of its `manifest.json`."""
    reused: bool
    """Whether nothing had to be built."""

    def model(self, name: str) -> Path:
        """Folder of `base`, `student` or a reader."""
        return self.folder / MODELS / name

    def file(self, name: str) -> Path:
        """One of `rows.ROW_FILES` and `rows.LABELLED_FILES`."""
        return self.folder / name


def make_world(folder: Path, spec: ReasoningWorldSpec, *, readers: Path | None = None, jobs: int = 2) -> ReasoningWorld:
    """Builds what `folder` lacks of a world, each model in a process of its own, and measures the models.

    Args:
        readers: a folder that several worlds share, in which readers are looked for and built; the world has copies.
        jobs: models that are taught at the same time, each on one core.

    Raises:
        ConfigError: `folder` holds something else, or a world of another spec; it is then left alone.
    """
    folder = folder.expanduser().resolve()
    shared = (readers or folder / MODELS).expanduser().resolve()
    _claim(folder, spec)
    shared.mkdir(parents=True, exist_ok=True)
    own, common_parts = _own_parts(folder, spec), _reader_parts(shared, spec)
    with FileLock(folder / _LOCK):
        # Worlds that share readers wait for each other only while those are taught.
        with FileLock(shared / _LOCK) if _missing(common_parts) else nullcontext():
            missing = _missing(own) + _missing(common_parts)
            if missing:
                with ProcessPoolExecutor(min(jobs, len(missing)), mp_context=get_context("spawn")) as pool:
                    list(pool.map(build_part, missing, count()))
        copied = [_copy(part, folder / MODELS / name) for name, part in common_parts.items()]
        keys = _keys(spec)
        wrote = [
            _write(folder, rows.ROW_FILES, keys, "rows", partial(rows.write_rows, spec)),
            _write(
                folder,
                rows.LABELLED_FILES,
                keys,
                "labelled",
                partial(rows.write_labelled, spec, folder / MODELS / spec.base.name),
            ),
        ]
        changed = _write_manifest(folder, _manifest(folder, spec, keys))
    return ReasoningWorld(
        folder=folder,
        manifest=json.loads((folder / common.MANIFEST_NAME).read_text()),
        reused=not (missing or any(copied) or any(wrote) or changed),
    )


def _claim(folder: Path, spec: ReasoningWorldSpec) -> None:
    """Makes the folder and marks it as this world's."""
    mark = {"builder": BUILDER, "spec": repr(spec)}
    path = folder / MARK
    if path.exists():
        if json.loads(path.read_text()) != mark:
            raise ConfigError(f"{folder} holds another world: choose another folder, or remove it")
    elif folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} holds other files: choose an empty or new folder")
    else:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(mark) + "\n")


def _missing(parts: dict[str, Part]) -> list[Part]:
    return [part for part in parts.values() if part.manifest() is None]


def _own_parts(folder: Path, spec: ReasoningWorldSpec) -> dict[str, Part]:
    """Base and student, which follow from the seed."""
    parts = {}
    for model, flaws in ((spec.base, spec.base_flaws), (spec.student, spec.student_flaws)):
        values = spec.seed, spec.short_share, spec.measured, spec.samples, model, flaws
        make = partial(_make_policy, spec, model, flaws)
        parts[model.name] = Part(folder / MODELS / model.name, source_key(_MODEL_SOURCES, values), make)
    return parts


def _reader_parts(folder: Path, spec: ReasoningWorldSpec) -> dict[str, Part]:
    """Readers, which follow from no seed."""
    return {
        reader.name: Part(
            folder / reader.name,
            source_key(_MODEL_SOURCES, (reader, spec.measured)),
            partial(_make_reader, spec.measured, reader),
        )
        for reader in spec.readers
    }


def _make_policy(
    spec: ReasoningWorldSpec, model: ModelSpec, flaws: Flaws, folder: Path, bar_position: int
) -> dict[str, Any]:
    models.teach_policy(spec, model, flaws, folder, bar_position=bar_position)
    return {"start": measure.measure_policy(spec, folder)}


def _make_reader(measured: int, reader: ModelSpec, folder: Path, bar_position: int) -> dict[str, Any]:
    models.teach_reader(reader, folder, bar_position=bar_position)
    return {"start": measure.measure_reader(folder, measured=measured)}


def _copy(part: Part, target: Path) -> bool:
    """Copies a shared reader into the world, unless it is there; returns whether it did."""
    own = dataclasses.replace(part, folder=target)
    if own.manifest() is not None:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as scratch:
        shutil.copytree(part.folder, Path(scratch) / "new")
        if target.exists():
            os.replace(target, Path(scratch) / "old")
        os.replace(Path(scratch) / "new", target)
    return True


def _keys(spec: ReasoningWorldSpec) -> dict[str, str]:
    """Hash of what each part of a world follows from."""
    parts = {**_own_parts(Path(), spec), **_reader_parts(Path(), spec)}
    of_rows = spec.seed, spec.train_rows, spec.val_rows
    row_sources = (*_PROBLEM_SOURCES, rows)
    return {
        **{name: part.key for name, part in parts.items()},
        "rows": source_key(row_sources, of_rows),
        "labelled": source_key(row_sources, (of_rows, spec.labelled, parts[spec.base.name].key)),
    }


def _write(
    folder: Path, names: tuple[str, ...], keys: dict[str, str], part: str, write: Callable[[Path], None]
) -> bool:
    """Writes files unless the manifest says that they stand; returns whether it did."""
    try:
        found = json.loads((folder / common.MANIFEST_NAME).read_text())
        whole = all(common.sha256_of(folder / name) == found["sha256"][name] for name in names)
        if whole and found["keys"][part] == keys[part]:
            return False
    except (OSError, ValueError, KeyError, TypeError):
        pass
    with tempfile.TemporaryDirectory(prefix=f".{part}.", dir=folder) as scratch:
        write(Path(scratch))
        for name in names:
            os.replace(Path(scratch) / name, folder / name)
    return True


def _manifest(folder: Path, spec: ReasoningWorldSpec, keys: dict[str, str]) -> dict[str, Any]:
    """What the world is, how its models start, and how long they took."""
    made = {model.name: common.read_manifest(folder / MODELS / model.name) or {} for model in spec.models}
    return {
        "builder": BUILDER,
        "seed": spec.seed,
        "spec": dataclasses.asdict(spec),
        "versions": {name: version(name) for name in ("torch", "transformers", "tokenizers")},
        "models": {name: part["start"] for name, part in made.items()},
        "seconds": {name: part["seconds"] for name, part in made.items()},
        "keys": keys,
        "sha256": {name: common.sha256_of(folder / name) for name in (*rows.ROW_FILES, *rows.LABELLED_FILES)},
    }


def _write_manifest(folder: Path, manifest: dict[str, Any]) -> bool:
    """Writes the manifest, which says that the world stands, unless it is the same; returns whether it did."""
    path = folder / common.MANIFEST_NAME
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    if path.exists() and path.read_text() == text:
        return False
    partial_path = path.with_suffix(".partial")
    partial_path.write_text(text)
    partial_path.replace(path)
    return True


def summary(world: ReasoningWorld) -> str:
    """How the models of a world start, as tables."""
    manifest = world.manifest
    names = [manifest["spec"]["base"]["name"], manifest["spec"]["student"]["name"]]
    lines = [f"reasoning world {'found' if world.reused else 'built'}: {world.folder} (seed {manifest['seed']})"]
    for title, shown in (("policies", names), ("readers", [n for n in manifest["models"] if n not in names])):
        numbers = {name: manifest["models"][name] for name in shown}
        labels = list(dict.fromkeys(label for values in numbers.values() for label in values))
        lines += ["", f"  {title:<26}" + "".join(f"{name:>14}" for name in shown)]
        for label in labels:
            cells = "".join(f"{numbers[name].get(label, 0.0):>14.3f}" for name in shown)
            lines.append(f"  {label:<26}{cells}")
        lines.append(f"  {'seconds to make':<26}" + "".join(f"{manifest['seconds'][name]:>14.0f}" for name in shown))
    return "\n".join(lines)
