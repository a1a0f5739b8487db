"""Builds a teaching world in a folder, part by part; what stands whole is never built again.

Decision: each model is a folder with the hash of all that it follows from, as in `verl.data_preprocessing.worlds`, and
the texts of its prompts are part of that hash. Students follow from no seed: worlds of several seeds can share them.

    world = make_world(Path("data/teaching_world"), TeachingWorldSpec(seed=1), students=Path("data/students"))
    world.manifest["students"]["weak"]["solves"]["all"]
"""

import dataclasses
import json
import os
import shutil
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from filelock import FileLock

from verl.classmate.errors import ConfigError
from verl.data_preprocessing import arithmetic_problems, common, embedded_models, embedded_tokenizers
from verl.data_preprocessing.teaching_world import (
    advice,
    measure,
    models,
    problems,
    prompts,
    rows,
    student_lessons,
    teacher_lessons,
)
from verl.data_preprocessing.teaching_world import students as students_module
from verl.data_preprocessing.teaching_world.spec import TeachingWorldSpec
from verl.data_preprocessing.teaching_world.students import Student
from verl.data_preprocessing.worlds.build import Part, build_part, source_key

BUILDER = "verl.data_preprocessing.teaching_world"
MARK = "world.json"
STUDENTS, TEACHER, TEACHER_WARM = "students", "teacher", "teacher_warm"
_LOCK = ".lock"

_LESSON_SOURCES = (arithmetic_problems, problems, students_module, advice, prompts)
_MODEL_SOURCES = (*_LESSON_SOURCES, embedded_models, embedded_tokenizers, models, measure)
_STUDENT_SOURCES = (*_MODEL_SOURCES, student_lessons)
_TEACHER_SOURCES = (*_MODEL_SOURCES, teacher_lessons)
_ROW_SOURCES = (*_LESSON_SOURCES, teacher_lessons, common, rows)


@dataclass(frozen=True, kw_only=True)
class TeachingWorld:
    """A world that stands in a folder."""

    folder: Path
    """Where it is."""
    manifest: dict[str, Any]
    """Content of its `manifest.json`."""
    reused: bool
    """Whether nothing had to be built."""

    @property
    def teacher(self) -> Path:
        """The base teacher."""
        return self.folder / TEACHER

    @property
    def teacher_warm(self) -> Path:
        """The teacher that is through its warm-up; there if it was asked for."""
        return self.folder / TEACHER_WARM

    def student(self, name: str) -> Path:
        """A student."""
        return self.folder / STUDENTS / name


def make_world(
    folder: Path,
    spec: TeachingWorldSpec,
    *,
    students: Path | None = None,
    jobs: int = 2,
    warm_teacher: bool = False,
) -> TeachingWorld:
    """Builds what `folder` lacks of a world, each model in a process of its own, and measures the models.

    Args:
        students: a folder that several worlds share, in which students are looked for and built; the world has copies.
        jobs: models that are taught at the same time, each on one core.
        warm_teacher: whether to make `teacher_warm` too.

    Raises:
        ConfigError: `folder` holds something else, or a world of another spec; it is then left alone.
    """
    folder = folder.expanduser().resolve()
    shared = (students or folder / STUDENTS).expanduser().resolve()
    _claim(folder, spec)
    shared.mkdir(parents=True, exist_ok=True)
    # The longest first, so that no core waits at the end.
    ordered = sorted(spec.students, key=lambda one: -one.model.steps * one.model.layers)
    parts = {one.name: _student_part(shared, one, spec.measured) for one in ordered}
    teachers = {TEACHER: _teacher_part(folder, spec, TEACHER, spec.teacher.steps)}
    if warm_teacher:
        teachers[TEACHER_WARM] = _teacher_part(folder, spec, TEACHER_WARM, spec.warm_steps)
    with FileLock(folder / _LOCK):
        # Worlds that share students wait for each other only while those are taught.
        with FileLock(shared / _LOCK) if _missing(parts) else nullcontext():
            missing = _missing(parts) + _missing(teachers)
            if missing:
                with ProcessPoolExecutor(min(jobs, len(missing)), mp_context=get_context("spawn")) as pool:
                    list(pool.map(build_part, missing, count()))
        copied = [_copy(part, folder / STUDENTS / name) for name, part in parts.items()]
        wrote = _write_rows(folder, spec)
        manifest = _manifest(folder, spec, parts)
        changed = _write_manifest(folder, manifest)
    return TeachingWorld(folder=folder, manifest=manifest, reused=not (missing or any(copied) or wrote or changed))


def options_of(spec: TeachingWorldSpec) -> dict[str, Any]:
    """What a user can choose of a world; a folder holds one choice."""
    names = ("seed", "train_rows", "test_rows", "warmup_rows", "offtask_rows")
    steps = {"teacher_steps": spec.teacher.steps, "warm_steps": spec.warm_steps, "measured": spec.measured}
    return {**{name: getattr(spec, name) for name in names}, **dataclasses.asdict(spec.mix), **steps}


def keys_of(spec: TeachingWorldSpec) -> dict[str, str]:
    """Hash of what each part of a world with a warm teacher follows from, whether it stands or not."""
    parts = {one.name: _student_part(Path(), one, spec.measured) for one in spec.students}
    parts[TEACHER_WARM] = _teacher_part(Path(), spec, TEACHER_WARM, spec.warm_steps)
    return {"rows": _rows_key(spec), **{name: part.key for name, part in parts.items()}}


def _claim(folder: Path, spec: TeachingWorldSpec) -> None:
    """Makes the folder and marks it as this world's."""
    mark = {"builder": BUILDER, **options_of(spec)}
    path = folder / MARK
    if path.exists():
        found = json.loads(path.read_text())
        other = [f"{key}={found.get(key)}" for key, value in mark.items() if found.get(key) != value]
        if other:
            raise ConfigError(
                f"{folder} holds a world with {', '.join(other)}: choose another folder as --local_dir, or remove it"
            )
    elif folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} holds other files: choose an empty or new folder as --local_dir")
    else:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(mark) + "\n")


def _missing(parts: dict[str, Part]) -> list[Part]:
    return [part for part in parts.values() if part.manifest() is None]


def _student_part(folder: Path, student: Student, measured: int) -> Part:
    values = student, measured, prompts.fixed_messages("student")
    return Part(folder / student.name, source_key(_STUDENT_SOURCES, values), partial(_make_student, student, measured))


def _teacher_part(folder: Path, spec: TeachingWorldSpec, name: str, steps: int) -> Part:
    model = dataclasses.replace(spec.teacher, steps=steps)
    values = spec.seed, spec.mix, model, spec.measured, prompts.fixed_messages("teacher")
    return Part(folder / name, source_key(_TEACHER_SOURCES, values), partial(_make_teacher, spec, steps))


def _make_student(student: Student, measured: int, folder: Path, bar_position: int) -> dict[str, Any]:
    models.teach_student(student, folder, bar_position=bar_position)
    return {"start": measure.measure_student(student, folder, problems=measured, bar_position=bar_position)}


def _make_teacher(spec: TeachingWorldSpec, steps: int, folder: Path, bar_position: int) -> dict[str, Any]:
    models.teach_teacher(spec, folder, steps=steps, bar_position=bar_position)
    return {"start": measure.measure_teacher(spec, folder)}


def _copy(part: Part, target: Path) -> bool:
    """Copies a shared student into the world, unless it is there; returns whether it did."""
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


def _rows_key(spec: TeachingWorldSpec) -> str:
    return source_key(_ROW_SOURCES, (options_of(spec), dict(prompts.TEMPLATES)))


def _write_rows(folder: Path, spec: TeachingWorldSpec) -> bool:
    """Writes the rows unless the manifest says that they stand; returns whether it did."""
    try:
        found = json.loads((folder / common.MANIFEST_NAME).read_text())
        whole = all(common.sha256_of(folder / name) == found["sha256"][name] for name in rows.FILES)
        if whole and found["keys"]["rows"] == _rows_key(spec):
            return False
    except (OSError, ValueError, KeyError, TypeError):
        pass
    with tempfile.TemporaryDirectory(prefix=".rows.", dir=folder) as scratch:
        rows.write_files(spec, Path(scratch))
        for name in rows.FILES:
            os.replace(Path(scratch) / name, folder / name)
    return True


def _manifest(folder: Path, spec: TeachingWorldSpec, parts: dict[str, Part]) -> dict[str, Any]:
    """What the world is, how its models start, and how long they took."""
    made = {name: common.read_manifest(part.folder) or {} for name, part in parts.items()}
    for name, steps in ((TEACHER, spec.teacher.steps), (TEACHER_WARM, spec.warm_steps)):
        found = _teacher_part(folder, spec, name, steps).manifest()
        if found is not None:
            made[name] = found
    return {
        "builder": BUILDER,
        "seed": spec.seed,
        "spec": dataclasses.asdict(spec),
        "limits": {"max_probe_tokens": prompts.PROBE_LIMIT, "max_teaching_tokens": prompts.TEACHING_LIMIT},
        "versions": {name: version(name) for name in ("torch", "transformers", "tokenizers")},
        "students": {one.name: made[one.name]["start"] for one in spec.students},
        **{name: made[name]["start"] for name in (TEACHER, TEACHER_WARM) if name in made},
        "keys": {"rows": _rows_key(spec), **{name: part["key"] for name, part in made.items()}},
        "seconds": {name: part["seconds"] for name, part in made.items()},
        "sha256": {name: common.sha256_of(folder / name) for name in rows.FILES},
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
