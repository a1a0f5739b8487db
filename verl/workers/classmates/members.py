"""One engine as its group knows it: its Ray actor, its processes, and how they are ended.

One decision: an engine's processes are noted while it lives, and those that are left are killed. Ray forgets the
processes that a killed actor had started.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from verl.classmate.errors import ClassmateEngineError
from verl.workers.classmates.placement import Engine

RESTART_TIMEOUT_S = 1800.0
"""A restarted engine serves within this time, or counts as failed again; large models are loaded in minutes."""

_KILL_TIMEOUT_S = 10.0
"""The operating system ends a killed process within this time; what takes longer is left to it."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why an engine is of no use any more."""

    what: Literal["died", "hangs"]
    """As the verb of a sentence about it."""
    reason: str
    """What was seen."""


@dataclass
class Member:
    """One engine as the group knows it."""

    engine: Engine
    """The engine."""
    pooled: bool
    """Whether it stands in the trainer's pool."""
    sleeps: bool
    """Whether it frees its memory while the policy trains."""
    gpus: tuple[int, ...] = ()
    """Bundles of the trainer's pool."""
    handle: Any = None
    """Its Ray actor."""
    replica: Any = None
    """Upstream's replica, with vllm."""
    pool: Any = None
    """Upstream's pool in which it stands, with vllm."""
    processes: Sequence[tuple[str, int, float]] = ()
    """Node, process id and creation time of the engine's process and of those that it has started."""
    failure: Failure | None = None
    """Found while it was to sleep or wake; `heal` reacts to it."""
    restarts: int = 0
    """Restarts so far."""
    out: bool = False
    """Given up for the rest of the run."""

    @property
    def name(self) -> str:
        """Name of the frozen model that it runs."""
        return self.engine.frozen.name

    def release(self) -> None:
        """Gives up what is left of it, also a second time: Ray keeps a dead actor's name until the actor is killed,
        and vLLM's own processes outlive a killed server, with their memory."""
        actors = [self.handle] if self.replica is None else [*self.replica.servers, *self.replica.workers]
        for actor in actors:
            ray.kill(actor)
        # Ray asks a process to end before it kills it, which takes one that hangs some seconds.
        _end_processes(self.processes)
        self.processes = ()

    def give_back(self) -> None:
        """Frees the GPUs of a dedicated engine that will not start again."""
        if self.engine.dedicated and self.pool is not None:
            for group in self.pool.pgs or ():
                ray.util.remove_placement_group(group)

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Turns an error in the block into that of an engine that did not start.

        Raises:
            ClassmateEngineError: naming the engine.
        """
        try:
            yield
        except TimeoutError as error:
            reason = f"not within {RESTART_TIMEOUT_S:g} s"
            raise ClassmateEngineError(f"{self.engine.label} did not start: {reason}") from error
        except (ray.exceptions.RayError, ValueError) as error:
            raise ClassmateEngineError(f"{self.engine.label} did not start: {last_line(error)}") from error


def last_line(error: BaseException) -> str:
    """The first sentence of the last line: Ray's go on with all that may have been the cause."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip().split(". ")[0] if lines else type(error).__name__


def own_processes(_: Any) -> list[tuple[str, int, float]]:
    """Runs in an engine's process: node, id and creation time of it and of every process below it."""
    import psutil

    node, own = ray.get_runtime_context().get_node_id(), psutil.Process()
    return [(node, process.pid, process.create_time()) for process in (own, *own.children(recursive=True))]


def _end_processes(processes: Sequence[tuple[str, int, float]]) -> None:
    """Kills what is left of them, each on its node."""

    def end(ids: list[tuple[int, float]]) -> None:
        import psutil

        for pid, created in ids:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                if process.create_time() == created:
                    process.kill()
                    process.wait(_KILL_TIMEOUT_S)

    for node in {node for node, _, _ in processes}:
        ids = [(pid, created) for place, pid, created in processes if place == node]
        if node == ray.get_runtime_context().get_node_id():
            end(ids)
        else:
            affinity = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
            ray.get(ray.remote(end).options(num_cpus=0, scheduling_strategy=affinity).remote(ids))
