"""Real runs for tests: a small embedded world, the main job's settings for it, and runs in processes of their own.

One decision: every run carries a mark in its environment, which all processes that it starts inherit, Ray's too. So a
test can find, kill and clean up what belongs to its run and nothing else.

    >>> world = build_world(folder)
    >>> with start([*MAIN, *settings(world, run_folder)], log=tmp_path / "terminal.txt") as run:
    ...     assert run.wait() == 0
    >>> metrics(run_folder)[-1]["critic/base_reward/mean"]
"""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil

from verl.data_preprocessing.embedded_world import make_world
from verl.data_preprocessing.worlds.presets import HINTED_ARITHMETIC
from verl.data_preprocessing.worlds.spec import WorldSpec

ROOT = Path(__file__).parents[2]
MAIN = ("-m", "verl.trainer.classmate_cot_main_ppo")
BASELINE = ("-m", "verl.trainer.qwen_main_ppo")
PROMPTS, ROLLOUTS = 8, 4
"""Prompts of a step, and responses to each."""
RUN_TIMEOUT_S = 800
"""A run of some steps takes a sixth of it or less; only what hangs takes longer."""

_MARK = "CLASSMATE_COT_TEST_RUN"
_REWARD = '''"""How near the last number is to the truth: graded, so that the rows of a group differ in any world."""

import re


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    numbers = re.findall(r"\\d+", solution_str)
    return 1 / (1 + abs(int(numbers[-1]) - int(ground_truth)) / 10) if numbers else 0.0
'''


@dataclass(frozen=True, kw_only=True)
class World:
    """Data and models of the tests."""

    folder: Path
    """Where they lie."""

    @property
    def policy(self) -> Path:
        """The model that is trained."""
        return self.folder / "models" / "policy"

    @property
    def classmates(self) -> tuple[Path, Path]:
        """Two frozen models with tokenizers of their own."""
        return self.folder / "models" / "classmate_a", self.folder / "models" / "classmate_b"


def small_spec() -> WorldSpec:
    """A world whose policy has learnt to close its thoughts, and little else: built in some 20 seconds."""
    full = HINTED_ARITHMETIC
    readers = (
        dataclasses.replace(reader, model=dataclasses.replace(reader.model, steps=80)) for reader in full.readers
    )
    return dataclasses.replace(
        full,
        train_rows=64,
        val_rows=16,
        slip_share=0.0,
        policy=dataclasses.replace(full.policy, steps=150),
        readers=tuple(readers),
    )


def build_world(folder: Path) -> World:
    """Builds the small world in `folder`, or takes the one of an earlier test run that is there."""
    make_world(folder, small_spec())
    return World(folder=folder)


def graded_reward(folder: Path) -> str:
    """Override that replaces the verifier's 0 and 1 by a graded score."""
    path = folder / "graded_reward.py"
    path.write_text(_REWARD)
    return f"reward.custom_reward_function.path={path}"


def settings(world: World, run_folder: Path, *overrides: str) -> list[str]:
    """The main job's arguments, a few seconds long: 8 prompts of 4 responses a step."""
    classmates = ",".join(str(path) for path in world.classmates)
    return [
        f"actor_rollout_ref.model.path={world.policy}",
        f"reward_model.classmate_model_name_or_path_list=[{classmates}]",
        f"data.train_files={world.folder / 'train.parquet'}",
        f"data.val_files={world.folder / 'val.parquet'}",
        f"data.train_batch_size={PROMPTS}",
        "data.max_prompt_length=128",
        "data.max_response_length=64",
        f"actor_rollout_ref.rollout.n={ROLLOUTS}",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=32",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS}",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=32",
        "actor_rollout_ref.actor.optim.lr=1e-4",
        "reward_model.classmate_generation_configs.max_new_tokens=24",
        f"trainer.default_local_dir={run_folder}",
        *overrides,
    ]


class Run:
    """A run in a process of its own; `start` makes it."""

    def __init__(self, process: subprocess.Popen, mark: str, log: Path) -> None:
        self.process = process
        self._mark = mark
        self._log = log

    @property
    def terminal(self) -> str:
        """What a person saw so far."""
        return self._log.read_text()

    def wait(self, timeout: float = RUN_TIMEOUT_S) -> int:
        """Waits for the end; the exit code."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the run did not end within {timeout:g} s:\n{self.terminal}") from None

    def wait_for(self, condition: Callable[[], Any], timeout: float = RUN_TIMEOUT_S) -> Any:
        """Looks at `condition` every few milliseconds until it is true, and returns what it said."""
        deadline = time.monotonic() + timeout
        while not (found := condition()):
            assert self.process.poll() is None, f"the run ended early:\n{self.terminal}"
            assert time.monotonic() < deadline, f"nothing happened within {timeout:g} s:\n{self.terminal}"
            time.sleep(0.01)
        return found

    def processes(self, title: str = "") -> list[psutil.Process]:
        """Living processes of this run whose title holds `title`, oldest first."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(_MARK) == self._mark and title in " ".join(process.cmdline()):
                    found.append(process)
        return sorted(found, key=lambda process: process.create_time())

    def kill(self) -> None:
        """`kill -9` of everything that belongs to the run."""
        while processes := self.processes():
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
            psutil.wait_procs(processes, timeout=5)
        self.process.wait()


@contextlib.contextmanager
def start(
    arguments: list[str], *, log: Path, program: str = sys.executable, environment: Mapping[str, str] | None = None
) -> Iterator[Run]:
    """Starts `python arguments`; what is left of it at the end of the block is killed.

    Args:
        arguments: a script, or `-m` and a module, and what it is given.
        log: gets what the run prints; the run starts in its folder.
        program: another one than Python.
        environment: in place of this process's own.
    """
    mark = uuid4().hex
    with log.open("w") as sink:
        process = subprocess.Popen(
            [program, *arguments],
            cwd=log.parent,
            env={**(environment or os.environ), "OMP_NUM_THREADS": "1", "TQ_NUM_THREADS": "1", _MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    run = Run(process, mark, log)
    try:
        yield run
    finally:
        run.kill()


def finished(arguments: list[str], *, log: Path) -> str:
    """Runs to the end, which must be a good one; returns what a person saw."""
    with start(arguments, log=log) as run:
        code = run.wait()
        assert code == 0, f"exit code {code}:\n{run.terminal}"
        return run.terminal


def metrics(run_folder: Path) -> list[dict[str, Any]]:
    """The lines of `metrics.jsonl` so far."""
    path = run_folder / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def steps(run_folder: Path) -> dict[int, dict[str, Any]]:
    """The metrics of each training step."""
    return {line["step"]: line for line in metrics(run_folder) if "training/global_step" in line}


def rows(run_folder: Path, step: int, *, validation: bool = False) -> list[dict[str, Any]]:
    """The dumped rows of one step."""
    path = run_folder / ("val_preds" if validation else "rollouts") / f"step_{step}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]
