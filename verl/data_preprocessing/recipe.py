"""From records to a folder of parquet files: what every data set's module shares.

Decision: a data set is a recipe (read a record, split, make a row) and nothing else; the command line, the report of
broken records, the manifest and the rule that a folder is replaced whole or not at all are here.

    class MyRecipe(Recipe):
        name = "my_set"
        def sources(self, options): return {"train": (HubSplit(repo="me/my_set"),)}
        def task(self, record, options): return Task(part=record.part, index=record.index, question=record.text("q"))
        def split(self, tasks, options): return {"train": tasks}
        def row(self, task, split, options): return make_row(...)

    run_recipe(MyRecipe())     # python -m verl.data_preprocessing.my_set --output_dir data/my_set
"""

import argparse
import hashlib
import inspect
import json
import os
import sys
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from verl.data_preprocessing import common, near_repeats, sources, splits
from verl.data_preprocessing.common import MANIFEST_NAME, read_manifest, write_manifest, write_parquet
from verl.data_preprocessing.near_repeats import without_near_repeats
from verl.data_preprocessing.sources import HubSplit, LocalFile, Record, Source, check_files, read, resolve
from verl.data_preprocessing.splits import Task, unique

BOXED_INSTRUCTION = "Reason step by step, then write the final answer inside \\boxed{}."
MOST_REPORTS = 20
"""Broken records that are printed one by one; the rest is counted."""

SPLIT_ORDER: Mapping[str, Mapping[str, Any]] = {
    "--split_order": {"choices": ("shuffle", "file"), "default": "shuffle", "help": "how rows go into the splits"}
}
"""The option of sets whose splits are cut from one list."""

_NOT_OPTIONS = {"output_dir", "local_file", "val_file", "revision", "force"}


class Recipe(ABC):
    """How one data set becomes rows; holds no state."""

    name: ClassVar[str]
    """Module and folder."""
    summary: ClassVar[str]
    """What the command line says about it."""
    seeded: ClassVar[bool] = True
    """Whether anything is drawn, so that there is an option `--seed`."""
    test_part: ClassVar[bool] = False
    """Whether the source has a test part of its own, so that there is an option `--val_file`."""
    options: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Options that only this set has, with argparse's keywords; the manifest records their values."""
    modules: ClassVar[tuple[ModuleType, ...]] = ()
    """Further modules that make the rows."""

    @abstractmethod
    def sources(self, options: argparse.Namespace) -> Mapping[str, tuple[HubSplit, ...]]:
        """Where the set is on the hub, by part; `--local_file` replaces the first, `--val_file` the part `test`."""

    @abstractmethod
    def task(self, record: Record, options: argparse.Namespace) -> Task:
        """What a record asks. Raises ValueError with the reason when it cannot be used."""

    @abstractmethod
    def split(self, tasks: list[Task], options: argparse.Namespace) -> dict[str, list[Task]]:
        """The splits, from distinct tasks; empty ones are left out. Raises ValueError when there are too few tasks."""

    @abstractmethod
    def row(self, task: Task, split: str, options: argparse.Namespace) -> dict[str, Any]:
        """The row of a task; all rows of a set have the same fields."""

    def rows(self, tasks: list[Task], split: str, options: argparse.Namespace) -> list[dict[str, Any]]:
        """The rows of a split, in the order of its tasks."""
        return [self.row(task, split, options) for task in tasks]


def messages(user: str, *, system: str | None = None) -> list[dict[str, str]]:
    """A row's prompt: what the user says, after the system prompt if there is one."""
    return [{"role": role, "content": text} for role, text in (("system", system), ("user", user)) if text is not None]


def content_hash(rows: Iterable[Mapping[str, Any]]) -> str:
    """Hash of the rows themselves; that of a parquet file also depends on the version of its writer."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(row, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode())
        digest.update(b"\n")
    return digest.hexdigest()


def parse(recipe: Recipe, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line of a data set."""
    module = Path(inspect.getfile(type(recipe))).stem
    parser = argparse.ArgumentParser(prog=f"python -m verl.data_preprocessing.{module}", description=recipe.summary)
    parser.add_argument("--output_dir", type=Path, required=True, help="folder for the parquet files and the manifest")
    parser.add_argument("--local_file", type=Path, nargs="+", default=[], help="JSONL or parquet files, not the hub")
    if recipe.test_part:
        parser.add_argument("--val_file", type=Path, nargs="+", default=[], help="with --local_file: the test split")
    parser.add_argument("--revision", help="revision of the data set on the hub; main, if not given")
    if recipe.seeded:
        parser.add_argument("--seed", type=int, default=0, help="decides everything that is drawn")
    parser.add_argument("--force", action="store_true", help="build again what --output_dir holds already")
    for flag, keywords in recipe.options.items():
        parser.add_argument(flag, **keywords)
    return parser.parse_args(arguments)


def run_recipe(recipe: Recipe, arguments: Sequence[str] | None = None) -> None:
    """Builds the data set that the command line asks for, unless it is there; `arguments` replaces what the shell gave.

    Raises:
        ValueError: input that cannot be used, with what to do instead; nothing was changed then.
    """
    print(build(recipe, parse(recipe, arguments)))


def build(recipe: Recipe, options: argparse.Namespace) -> str:
    """Builds a data set in `options.output_dir` and says what is there now, in one line.

    Raises:
        ValueError: as `run_recipe`.
    """
    folder: Path = options.output_dir.expanduser().resolve()
    inputs = _inputs(recipe, options)
    request = {
        "options": {name: value for name, value in sorted(vars(options).items()) if name not in _NOT_OPTIONS},
        "inputs": {part: [source.identity() for source in chosen] for part, chosen in inputs.items()},
        "code": _code(recipe),
    }
    there = _standing(folder, request, force=options.force)
    if there is not None:
        return f"{options.output_dir} is up to date: {_counts(there)}"

    inputs = {part: resolve(chosen) for part, chosen in inputs.items()}
    tasks, broken = _read_tasks(recipe, inputs, options)
    # Later parts first: what is in the test part too does not stay in the training part.
    kept, repeats = unique(task for part in reversed(list(inputs)) for task in tasks[part])
    if lost := sorted(set(inputs) - {task.part for task in kept}):
        raise ValueError(f"every row of {lost[0]} is in the test part too: give other files")
    pieces, near_repeats = without_near_repeats(recipe.split(kept, options))
    pieces = {name: piece for name, piece in pieces.items() if piece}
    rows = {name: recipe.rows(piece, name, options) for name, piece in pieces.items()}
    used = sum(map(len, rows.values()))
    manifest = {
        "dataset": recipe.name,
        "sources": {part: [source.provenance() for source in chosen] for part, chosen in inputs.items()},
        "request": request,
        "counts": {name: len(rows_) for name, rows_ in rows.items()},
        "left_out": {
            "broken": broken,
            "repeated": len(repeats),
            "nearly_repeated": sum(near_repeats.values()),
            "not_needed": len(kept) - used - sum(near_repeats.values()),
        },
        "near_repeats": near_repeats,
        "content_sha256": {name: content_hash(rows_) for name, rows_ in rows.items()},
    }
    _replace_folder(folder, rows, manifest)
    return f"{options.output_dir}: {_counts(manifest)}"


def _inputs(recipe: Recipe, options: argparse.Namespace) -> dict[str, list[Source]]:
    """Files and splits by part of the data set."""
    hub = recipe.sources(options)
    val_files: list[Path] = getattr(options, "val_file", [])
    if val_files and not options.local_file:
        raise ValueError("--val_file needs --local_file")
    if not options.local_file:
        revision = options.revision or "main"
        return {part: [replace(s, revision=revision) for s in chosen] for part, chosen in hub.items()}
    if options.revision is not None:
        raise ValueError("--revision is of the hub, and --local_file takes none of it: leave one of them out")
    check_files([*options.local_file, *val_files])
    files: dict[str, list[Source]] = {next(iter(hub)): [LocalFile(path=path) for path in options.local_file]}
    return files | ({"test": [LocalFile(path=path) for path in val_files]} if val_files else {})


def _code(recipe: Recipe) -> str:
    """Hash of the code that makes the rows: another wording of a prompt is another data set."""
    digest = hashlib.sha256()
    classes = [inspect.getfile(cls) for cls in type(recipe).__mro__ if issubclass(cls, Recipe)]
    further = [str(module.__file__) for module in recipe.modules]
    for path in sorted(
        {*classes, *further, __file__, common.__file__, near_repeats.__file__, sources.__file__, splits.__file__}
    ):
        digest.update(Path(path).read_bytes())
    return digest.hexdigest()


def _standing(folder: Path, request: dict[str, Any], *, force: bool) -> dict[str, Any] | None:
    """The manifest of what is there already, None if it is to be built.

    Raises:
        ValueError: something else is there.
    """
    if not folder.exists():
        return None
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file: choose another --output_dir")
    try:
        listed = set(json.loads((folder / MANIFEST_NAME).read_text())["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        listed = set()
    own = {MANIFEST_NAME, *listed} if listed else set()
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    if strangers := sorted(present - own):
        raise ValueError(f"{folder} holds other files ({strangers[0]}): choose an empty or new folder as --output_dir")
    if force or not present:
        return None
    manifest = read_manifest(folder)
    if manifest is None:
        raise ValueError(f"{folder} is damaged (a file is missing or was changed): --force builds it again")
    # As JSON has it: lists for tuples.
    asked, made = json.loads(json.dumps(request)), manifest.get("request", {})
    if asked == made:
        return manifest
    options = sorted(
        name
        for name in {*asked["options"], *made.get("options", {})}
        if asked["options"].get(name) != made.get("options", {}).get(name)
    )
    others = [what for key, what in (("inputs", "other input"), ("code", "other code")) if asked[key] != made.get(key)]
    how = ", ".join([*(f"another --{name}" for name in options), *others])
    raise ValueError(f"{folder} was made with {how}: choose another --output_dir, or --force to build it again")


def _read_tasks(
    recipe: Recipe, inputs: Mapping[str, Sequence[Source]], options: argparse.Namespace
) -> tuple[dict[str, list[Task]], int]:
    """The usable records of each part, and how many were not; these are reported on stderr."""
    tasks: dict[str, list[Task]] = {}
    problems: list[tuple[str, str]] = []
    for part, chosen in inputs.items():
        tasks[part] = []
        for record in read(chosen, part=part):
            try:
                if record.problem is not None:
                    raise ValueError(record.problem)
                tasks[part].append(recipe.task(record, options))
            except ValueError as error:
                problems.append((record.place, " ".join(str(error).split())))
    reasons = Counter(reason for _, reason in problems)
    useless = next((part for part, usable in tasks.items() if not usable), None)
    if useless is not None:
        names = ", ".join(str(next(iter(source.provenance().values()))) for source in inputs[useless])
        # What is wrong with each row alike is said once.
        why = next(iter(reasons)) if len(reasons) == 1 else "check that it is the right file"
        _report(problems if len(reasons) > 1 else [], reasons)
        raise ValueError(f"no row of {names} can be used for {recipe.name}: {why}")
    _report(problems, reasons)
    return tasks, len(problems)


def _report(problems: Sequence[tuple[str, str]], reasons: Mapping[str, int]) -> None:
    """Says on stderr which records are left out and why: one by one where they are few, else how often."""
    for place, reason in problems[:MOST_REPORTS]:
        print(f"{place} left out: {reason}", file=sys.stderr)
    if len(problems) > MOST_REPORTS:
        print(f"... and {len(problems) - MOST_REPORTS} more left out", file=sys.stderr)
    if len(problems) > MOST_REPORTS and len(reasons) > 1:
        for reason, count in sorted(reasons.items(), key=lambda item: -item[1])[:5]:
            print(f"{count} in all: {reason}", file=sys.stderr)


def _replace_folder(folder: Path, rows: Mapping[str, Sequence[Mapping[str, Any]]], manifest: Mapping[str, Any]) -> None:
    """Writes the set beside the folder and puts it in its place whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        fresh, old = Path(scratch) / "new", Path(scratch) / "old"
        for name, split_rows in rows.items():
            write_parquet(split_rows, fresh / f"{name}.parquet")
        write_manifest(fresh, manifest)
        if folder.exists():
            os.replace(folder, old)
        try:
            os.replace(fresh, folder)
        except OSError:
            if old.exists():
                os.replace(old, folder)
            raise


def _counts(manifest: Mapping[str, Any]) -> str:
    counts = ", ".join(f"{name} {count}" for name, count in manifest["counts"].items())
    left_out = ", ".join(f"{count} {why.replace('_', ' ')}" for why, count in manifest["left_out"].items() if count)
    return f"{counts} rows" + (f"; left out: {left_out}" if left_out else "")
