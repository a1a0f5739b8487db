"""The servers that a launcher starts: each a process group of its own, which ends with the launcher.

>>> hosted = start(options, "models/a", 8003, 0)
>>> wait_until_ready([hosted], 1800, print)
>>> stop([hosted])
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from verl.classmate.errors import ConfigError
from verl.classmate.seeds import fresh_engine_seed
from verl.trainer.hosting.options import Options
from verl.utils.model_servers.mapping import Server, problem

PROGRESS_EVERY_S = 15.0
"""A server that loads says so this often."""

STOP_TIMEOUT_S = 15.0
"""A server that was asked to end is killed after this time."""

_LOG_TAIL_LINES = 15


class HostingError(RuntimeError):
    """A server that did not start or did not stay."""


@dataclass(frozen=True, kw_only=True)
class Hosted:
    """One running server."""

    server: Server
    """Its place."""
    backend: str
    """vllm or hf."""
    process: subprocess.Popen[bytes]
    """Leader of a process group of its own."""
    log: Path
    """What it says."""

    def check(self) -> None:
        """Raises HostingError, with the end of its log, when the process has ended."""
        code = self.process.poll()
        if code is not None:
            lines = self.log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
            tail = "".join(f"\n  | {line}" for line in lines) or " nothing"
            raise HostingError(f"the server of {self.server.name} ended with code {code}; {self.log} ends with{tail}")


def command(options: Options, model: str, port: int, share: float) -> list[str]:
    """What starts the server of a model.

    Args:
        options: the backend is vllm or hf.
        model: folder or hub name, which is also the name to ask for.
        port: where it listens.
        share: of a GPU's memory, for vLLM.
    """
    import torch

    common = ["--host", options.host, "--port", str(port), "--served-model-name", model]
    if options.max_model_len is not None:
        common += ["--max-model-len", str(options.max_model_len)]
    if options.backend == "hf":
        common += [] if options.seed is None else ["--seed", str(options.seed)]
        return [sys.executable, "-m", "verl.workers.rollout.hf_rollout_server.openai_api", model, *common]
    return [
        sys.executable,
        "-m",
        "verl.trainer.hosting.vllm_serve",
        "serve",
        model,
        *common,
        "--tensor-parallel-size",
        str(options.tensor_parallel_size),
        *(("--data-parallel-size", str(options.data_parallel_size)) if options.data_parallel_size > 1 else ()),
        "--gpu-memory-utilization",
        f"{share:g}",
        # Sampling is the request's, not what a model's own file suggests.
        "--generation-config",
        "vllm",
        # vLLM's own is 0: two servers, or one that was started again, would draw the same numbers.
        "--seed",
        str(fresh_engine_seed() if options.seed is None else options.seed),
        "--disable-uvicorn-access-log",
        # Compiling takes minutes on a CPU.
        *(() if torch.cuda.is_available() else ("--enforce-eager",)),
    ]


def environment(options: Options, index: int) -> tuple[dict[str, str], float]:
    """The environment of server `index`, and its share of a GPU's memory: servers spread over the GPUs in turn."""
    if options.gpus is not None:
        own = {"CUDA_VISIBLE_DEVICES": ",".join(options.gpus)}
        return dict(os.environ) | own, options.gpu_memory_utilization or 0.9
    import torch

    count = torch.cuda.device_count()
    if count == 0:
        # vLLM would take half of the machine's memory, and bind all servers to the same cores.
        defaults = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        return defaults | dict(os.environ), options.gpu_memory_utilization or 0.9
    width = options.tensor_parallel_size * options.data_parallel_size
    if width > count:
        sizes = f"--tensor-parallel-size={options.tensor_parallel_size}"
        sizes += f" --data-parallel-size={options.data_parallel_size}" if options.data_parallel_size > 1 else ""
        raise ConfigError(f"{sizes}, but this machine has {count} GPUs")
    slots = count // width
    visible = (os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(count)))).split(",")
    first = index % slots * width
    together = -(-len(options.models) // slots)
    return (
        dict(os.environ) | {"CUDA_VISIBLE_DEVICES": ",".join(visible[first : first + width])},
        options.gpu_memory_utilization or int(90 / together) / 100,
    )


_END_WITH_THE_LAUNCHER = """
import ctypes, os, signal, sys
set_parent_death_signal = 1
ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Becomes the command that follows, which ends when the launcher is gone, even if it was killed. A script of its own,
since what Python runs between fork and exec of this process would have its locks and no thread to release them."""


def ending_with_this_process(command: Sequence[str]) -> list[str]:
    """A command that gets SIGTERM when this process is gone."""
    return [sys.executable, "-ISc", _END_WITH_THE_LAUNCHER, str(os.getpid()), *command]


def start(options: Options, model: str, port: int, index: int) -> Hosted:
    """Starts one server, in a process group of its own."""
    host = options.outward_host
    loopback = options.host in ("127.0.0.1", "localhost", "::1")
    everywhere = options.host in ("0.0.0.0", "::")
    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(options.host, options.host)
    server = Server(
        name=model,
        outward_host=host or (options.host if loopback else socket.getfqdn() if everywhere else options.host),
        local_host=local,
        port=port,
    )
    logs = options.mapping.parent / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{re.sub(r'[^A-Za-z0-9.-]+', '_', model).strip('_')[-80:]}_{port}.log"
    variables, share = environment(options, index)
    with log.open("wb") as sink:
        process = subprocess.Popen(
            ending_with_this_process(command(options, model, port, share)),
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Hosted(server=server, backend=options.backend, process=process, log=log)


def stop(hosted: Sequence[Hosted]) -> None:
    """Ends servers and what they started."""
    for one in hosted:
        _signal_group(one, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    for one in hosted:
        with contextlib.suppress(subprocess.TimeoutExpired):
            one.process.wait(max(0.0, deadline - time.monotonic()))
        # Of vLLM, also what outlived its leader.
        _signal_group(one, signal.SIGKILL)
        one.process.wait()


def _signal_group(one: Hosted, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(one.process.pid, number)


def wait_until_ready(hosted: Sequence[Hosted], timeout_s: float, say: Callable[[str], None]) -> None:
    """Returns when every server answers.

    Raises:
        HostingError: when one ends or takes longer.
    """
    began = said = time.monotonic()
    waiting = list(hosted)
    while waiting:
        for one in list(waiting):
            one.check()
            if problem(one.server) is None:
                waiting.remove(one)
                say(f"{one.server.name}: ready after {time.monotonic() - began:.0f} s at {one.server.url}")
        now = time.monotonic()
        if waiting and now - began > timeout_s:
            raise HostingError(
                f"the server of {waiting[0].server.name} did not answer within {timeout_s:g} s; see "
                f"{waiting[0].log}, or raise --start-timeout"
            )
        if waiting and now - said > PROGRESS_EVERY_S:
            said = now
            for one in waiting:
                say(f"{one.server.name}: loading for {now - began:.0f} s")
        if waiting:
            time.sleep(0.2)
