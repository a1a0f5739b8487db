"""Builds the embedded world of hinted arithmetic: a policy that errs, and two classmates that read its thoughts.

Decision: the folder is built and replaced as one. What the models are taught is in `worlds/lessons.py`, as for all
worlds: the policy that a carry is sometimes forgotten and that a user's hint is sometimes taken over.

    manifest = make_world(Path("data/embedded_world"), HINTED_ARITHMETIC)
    manifest["start"]["policy_accuracy"]
"""

import dataclasses
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from verl.data_preprocessing import arithmetic_problems, common, embedded_models, embedded_tokenizers
from verl.data_preprocessing.arithmetic_problems import Problem
from verl.data_preprocessing.embedded_tokenizers import THINK_END
from verl.data_preprocessing.worlds import columns, lessons, measure, models, tasks
from verl.data_preprocessing.worlds.build import source_key
from verl.data_preprocessing.worlds.lessons import prompt_text
from verl.data_preprocessing.worlds.measure import POLICY_MAX_TOKENS, last_number, mean
from verl.data_preprocessing.worlds.spec import WorldSpec

BUILDER = "verl.data_preprocessing.hinted_arithmetic"
CLASSMATE_MAX_TOKENS = 24

_WORLDS_SOURCES = (columns, lessons, measure, models, tasks)
_SOURCES = (common, embedded_models, embedded_tokenizers, arithmetic_problems, *_WORLDS_SOURCES)


def fingerprint(spec: WorldSpec) -> str:
    """Hash of a spec and of the code that builds from it."""
    return source_key((*_SOURCES, sys.modules[__name__]), spec)


def make_world(folder: Path, spec: WorldSpec, *, force: bool = False) -> dict[str, Any]:
    """Builds the world in `folder` unless a whole one of the same spec is there; returns its manifest.

    Raises:
        ValueError: `folder` holds something that is not a world, which is then left alone.
    """
    folder = folder.expanduser().resolve()
    manifest = common.read_manifest(folder)
    if manifest and manifest["fingerprint"] == fingerprint(spec) and not force:
        return {**manifest, "reused": True}
    if folder.exists() and any(folder.iterdir()) and not (folder / common.MANIFEST_NAME).exists():
        raise ValueError(f"{folder} holds other files: choose an empty or new folder as --output_dir")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        fresh = Path(scratch) / "world"
        _build(fresh, spec)
        if folder.exists():
            os.replace(folder, Path(scratch) / "old")
        os.replace(fresh, folder)
    manifest = common.read_manifest(folder)
    assert manifest is not None
    return {**manifest, "reused": False}


def _build(folder: Path, spec: WorldSpec) -> None:
    began = time.monotonic()
    counts: tuple[tuple[arithmetic_problems.Split, int], ...] = (("train", spec.train_rows), ("val", spec.val_rows))
    for split, count in counts:
        problems = [_problem(spec, split, i) for i in range(count)]
        rows = [arithmetic_problems.make_dataset_row(p, split=split, index=i) for i, p in enumerate(problems)]
        common.write_parquet(rows, folder / f"{split}.parquet")
    positions = range(len(spec.models))
    with ProcessPoolExecutor(len(positions), mp_context=get_context("spawn")) as pool:
        list(pool.map(_teach, repeat(folder), positions, repeat(spec)))
        start = pool.submit(measure_start, folder, spec).result()
    common.write_manifest(
        folder,
        {
            "builder": BUILDER,
            "fingerprint": fingerprint(spec),
            "spec": dataclasses.asdict(spec),
            "versions": {name: version(name) for name in ("torch", "transformers", "tokenizers")},
            "start": start,
            "seconds": round(time.monotonic() - began, 1),
        },
    )


def _teach(folder: Path, position: int, spec: WorldSpec) -> None:
    """Trains model number `position` and saves it; runs in a process of its own."""
    place = folder / "models" / spec.models[position].name
    if position == 0:
        models.teach_policy(spec, place, bar_position=position)
    else:
        models.teach_reader(spec, spec.readers[position - 1], place, bar_position=position)


def _problem(spec: WorldSpec, split: arithmetic_problems.Split, index: int) -> Problem:
    return arithmetic_problems.make_problem(seed=spec.seed, split=split, index=index, hint_share=spec.hint_share)


def measure_start(folder: Path, spec: WorldSpec, temperature: float = 1.0) -> dict[str, float]:
    """Shares on the held-out problems, sampled at `temperature`: accuracy of policy and classmates, hints followed."""
    world = {model.name: embedded_models.load_model(folder / "models" / model.name) for model in spec.models}
    problems = [_problem(spec, "val", i) for i in range(spec.val_rows)]
    prompts = [prompt_text(p) for p in problems]
    written = embedded_models.generate(
        *world[spec.policy.name], prompts, max_new_tokens=POLICY_MAX_TOKENS, temperature=temperature, seed=spec.seed
    )
    thoughts, answers = zip(*(text.partition(THINK_END)[::2] for text in written), strict=True)
    hinted = [i for i, p in enumerate(problems) if p.hint is not None]
    numbers = [last_number(text) for text in answers]
    result = {
        "policy_accuracy": mean(n == p.answer for n, p in zip(numbers, problems, strict=True)),
        "policy_follows_hint": mean(numbers[i] == problems[i].hinted_answer for i in hinted),
    }
    for classmate in spec.classmates:
        read = [f"{prompt}{thought}{THINK_END}" for prompt, thought in zip(prompts, thoughts, strict=True)]
        replies = embedded_models.generate(
            *world[classmate.name], read, max_new_tokens=CLASSMATE_MAX_TOKENS, temperature=temperature, seed=spec.seed
        )
        numbers_c = [last_number(text) for text in replies]
        result[f"{classmate.name}_accuracy"] = mean(n == p.answer for n, p in zip(numbers_c, problems, strict=True))
        result[f"{classmate.name}_agrees"] = mean(a == b for a, b in zip(numbers, numbers_c, strict=True))
    return result


def summary(folder: Path, manifest: dict[str, Any]) -> str:
    """What a world holds, in a few lines."""
    start, spec = manifest["start"], manifest["spec"]
    origin = "found" if manifest["reused"] else f"built in {manifest['seconds']:.0f} s"
    lines = [
        f"embedded world {origin}: {folder} (seed {spec['seed']})",
        f"  {spec['train_rows']} problems to train on, {spec['val_rows']} held out; "
        f"{spec['hint_share']:.0%} with a wrong hint",
    ]
    lines += [f"  {name:<24} {value:.2f}" for name, value in start.items()]
    return "\n".join(lines)
