"""The process of a `ForkServer`, which starts it as a script: imports libraries, then forks for each client.

Decision: it ends when its lifeline does, which is held by the process that started it, so that none is left behind.

    python -P _server_process.py LISTENER LIFELINE        # two descriptors of sockets
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PRELOADED = (
    "tensordict",
    "transformers.generation",
    "transformers.models.auto",
    "datasets",
    "peft",
    "fastapi",
    "aiohttp",
    "hydra",
    "openai",
    "networkx",
    "grpc",
)
"""Libraries that most workers import, and that take longest. Neither Ray nor verl, nor anything that imports them."""

_PATIENCE_S = 10
"""Seconds that a client may take to say what it wants."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a client wants to be, and the descriptors of its standard streams."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    oom_score_adj: str
    streams: list[int]


def preload() -> None:
    """Imports what there is; a worker that needs what failed here says itself what is wrong."""
    for name in PRELOADED:
        try:
            importlib.import_module(name)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    gc.collect()
    # The collector would write into each object, and so copy every page into every worker.
    gc.freeze()


def serve(listener: socket.socket, lifeline: socket.socket) -> Request | None:
    """Returns None in the server, when its lifeline has ended, and in each fork what that is to become."""
    # Nobody waits for the workers; Ray sees for itself which of them are there.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([listener, lifeline], [], [])
        if lifeline in ready:
            return None
        connection, _ = listener.accept()
        # A client that was killed, or says nothing: there is nobody to answer.
        with connection, contextlib.suppress(OSError, ValueError):
            connection.settimeout(_PATIENCE_S)
            request = _read(connection)
            if os.fork() == 0:
                listener.close()
                lifeline.close()
                return request
            for descriptor in request.streams:
                os.close(descriptor)
            connection.sendall(b"+")


def _read(connection: socket.socket) -> Request:
    said, streams, _, _ = socket.recv_fds(connection, 1 << 16, 3)
    while chunk := connection.recv(1 << 16):
        said += chunk
    wanted: dict[str, Any] = json.loads(said)
    return Request(streams=list(streams), **wanted)


def become(request: Request) -> None:
    """Makes this fork the process that the client would have been, and runs its script."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Ray ends a worker together with its process group.
    os.setpgid(0, 0)
    for stream, descriptor in enumerate(request.streams):
        os.dup2(descriptor, stream)
        os.close(descriptor)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write(request.oom_score_adj)
    os.chdir(request.cwd)
    os.environ.clear()
    os.environ.update(request.env)
    if "numpy" in sys.modules:
        # Python reseeds its own generator after a fork; numpy's would be the same in all workers.
        sys.modules["numpy"].random.seed()
    sys.argv = request.argv
    runpy.run_path(request.argv[0], run_name="__main__")


def main() -> None:
    listener, lifeline = (socket.socket(fileno=int(descriptor)) for descriptor in sys.argv[1:])
    preload()
    request = serve(listener, lifeline)
    if request is None:
        shutil.rmtree(Path(listener.getsockname()).parent, ignore_errors=True)
    else:
        become(request)


if __name__ == "__main__":
    main()
