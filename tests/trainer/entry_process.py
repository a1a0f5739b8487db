"""Runs a real entry point in a process of its own, many times without paying for `import verl` each time.

One decision: a fork server imports verl and what every start imports once; each run is a fresh fork of it, with its own
working folder, arguments and output. Ray may not start in it: a run that gets so far says so and ends.

    >>> result = run_entry(["data.train_files=missing.parquet"], cwd=tmp_path)
    >>> result.code, result.stderr
"""

import contextlib
import math
import os
import sys
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from tests.processes import CONTEXT

RAY_WAS_STARTED = 99
"""Exit code of a run that passed every check."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a user would have seen."""

    code: int
    """Exit code."""
    stdout: str
    """Standard output."""
    stderr: str
    """Standard error."""
    seconds: float
    """Processor time without `import verl`, which the fork server does before the first run; the clock would count what
    runs beside it. NaN of a run that started Ray."""
    left_behind: list[str]
    """What lies in the working folder afterwards."""


def _enter(
    report: Connection,
    arguments: list[str],
    cwd: str,
    output: str,
    config: str,
    trainer: str,
    environment: dict[str, str],
) -> None:
    began = time.process_time()
    os.chdir(cwd)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(os.path.join(output, name), os.O_CREAT | os.O_WRONLY | os.O_TRUNC), number)
    os.environ.update(environment)
    import ray
    from huggingface_hub import constants

    from verl.trainer.run import launch

    # The hub reads its variables when it is imported, which was in the fork server.
    constants.HF_HUB_OFFLINE = bool(os.environ.get("HF_HUB_OFFLINE"))
    ray.init = lambda *_, **__: os._exit(RAY_WAS_STARTED)
    sys.argv = ["launch", *arguments]
    try:
        launch.entry(config, trainer_name=trainer)
    finally:
        report.send(time.process_time() - began)


def run_entry(
    arguments: list[str],
    *,
    folder: Path,
    config: str = "classmate_cot_ppo_trainer",
    trainer: str = "classmate_cot",
    **environment: str,
) -> Result:
    """Runs the entry point with `arguments` in a new working folder below `folder`."""
    cwd, output = folder / "cwd", folder / "output"
    cwd.mkdir(parents=True)
    output.mkdir()
    reader, writer = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(
        target=_enter, args=(writer, arguments, str(cwd), str(output), config, trainer, environment)
    )
    process.start()
    writer.close()
    process.join(300)
    assert process.exitcode is not None, "the entry point hangs"
    seconds = math.nan
    with contextlib.suppress(EOFError):
        seconds = reader.recv()
    return Result(
        code=process.exitcode,
        stdout=(output / "stdout").read_text(),
        stderr=(output / "stderr").read_text(),
        seconds=seconds,
        left_behind=sorted(path.name for path in cwd.iterdir()),
    )
