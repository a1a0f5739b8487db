"""A pipeline that is ended before each thing that it does to its folder, and started again until it is through.

One decision: what a killed run leaves is decided by what it has written; so it is killed (SIGKILL, from within) before
the first change of each file, found by an audit hook, and never after a time. All runs are forked from one process
that has the libraries, since their import takes longer than the stages.

    python -m tests.reasoning.killing OUTPUT_DIR config=pipeline.yaml output_dir=OUTPUT_DIR

prints a JSON line: `points` (where it was killed, in order) and `code` (of the last run). `--once` kills nothing.
"""

import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MOST = 400
"""Runs after which something goes round in circles."""
CALLS = 12
"""Calls of the reward in a training: the middle of its second step in `small_pipeline`."""
DURING, ITSELF = "SMALL_PIPELINE_ENDED_BY", "SMALL_PIPELINE_ENDS_ITSELF"
"""Variables for a training's reward: what it kills at its call number `CALLS`, the pipeline's process or its own."""
_CHANGES = ("os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir")


class Killer:
    """An audit hook that kills its process at the first point that was not reached before."""

    def __init__(self, folder: Path, seen: Sequence[str], sink: int) -> None:
        self._folder, self._seen, self._sink = f"{folder}/", set(seen), sink
        self._killed = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Before anything that Python tells of."""
        if event == "subprocess.Popen" and "verl.trainer.qwen_main_ppo" in arguments[1]:
            self._training(" ".join(map(str, arguments[1])))
        elif (path := _changed(event, arguments)) is not None and path.startswith(self._folder):
            self._reach(f"{event} {_kind_of(path.removeprefix(self._folder))}")

    def _reach(self, point: str) -> None:
        if point not in self._seen and not self._killed:
            self._killed = True
            os.write(self._sink, point.encode())
            os.kill(os.getpid(), signal.SIGKILL)

    def _training(self, command: str) -> None:
        # The model that it starts from is in another stage's folder.
        own = f"trainer.default_local_dir={self._folder}"
        stage = next(name for name in ("pure_rl", "cot") if f"{own}{name}/" in command)
        self._reach(f"training of {stage} begins")
        for way, variable in (("pipeline killed in", DURING), ("killed:", ITSELF)):
            os.environ.pop(variable, None)
            point = f"{way} training of {stage}"
            if point not in self._seen and not self._killed:
                # The reward does it, in the trainer's process; until then this run goes on.
                self._killed = True
                os.write(self._sink, point.encode())
                os.environ[variable] = f"{CALLS} {os.getpid()}"


def _changed(event: str, arguments: tuple[Any, ...]) -> str | None:
    """The path that is about to be changed."""
    if event == "open":
        path, _, flags = arguments
        written = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        return str(path) if written and isinstance(path, str | Path) else None
    return str(arguments[0]) if event in _CHANGES else None


def _kind_of(path: str) -> str:
    """Checkpoints of two steps are one point, and what evaluations do within their folders."""
    return re.sub(r"^evaluation/[^/]+/", "evaluation/*/", re.sub(r"\d+", "#", path))


def _attempt(folder: Path, arguments: Sequence[str], seen: Sequence[str], kills: bool) -> tuple[int, str]:
    """Exit code of one run, negative for a signal, and the point at which it was killed."""
    source, sink = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.close(source)
        code = 1
        try:
            from verl.reasoning.run import main

            if kills:
                sys.addaudithook(Killer(folder, seen, sink))
            code = main(list(arguments))
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    os.close(sink)
    with os.fdopen(source) as told:
        point = told.read()
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), point


def run(folder: Path, arguments: Sequence[str], *, kills: bool) -> dict[str, Any]:
    """Runs to the end, through all kills."""
    import torch
    from transformers import Trainer  # noqa: F401

    import verl.reasoning.pipeline  # noqa: F401

    torch.set_num_threads(1)
    points: list[str] = []
    code = -1
    while len(points) < MOST:
        print(f"== run {len(points) + 1}", file=sys.stderr, flush=True)
        code, point = _attempt(folder, arguments, points, kills)
        if not point:
            break
        print(f"== killed ({code}): {point}", file=sys.stderr, flush=True)
        points.append(point)
    return {"points": points, "code": code}


if __name__ == "__main__":
    given = sys.argv[1:]
    once = "--once" in given
    given = [one for one in given if one != "--once"]
    output = sys.stdout
    sys.stdout = sys.stderr
    result = run(Path(given[0]).resolve(), given[1:], kills=not once)
    print(json.dumps(result), file=output)
