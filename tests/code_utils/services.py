"""A sandbox service on loopback, in this process, and what is looked at around it.

>>> with service(SandboxSettings(concurrency=2)) as url:
...     ask(url, "x = 1", ["assert x == 1"])
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import requests
import uvicorn

from verl.code_utils import jail
from verl.code_utils.api import create_app
from verl.code_utils.sandbox import FIRST_UID, SandboxSettings


@contextlib.contextmanager
def service(settings: SandboxSettings) -> Iterator[str]:
    """The address of a service with these settings, once it is ready."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    config = uvicorn.Config(create_app(settings), log_level="warning", access_log=False, lifespan="on")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        # The connection waits until the start is over.
        assert requests.get(f"{url}/health", timeout=60).json() == {"status": "healthy"}
        yield url
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def ask(url: str, program: str, tests: Sequence[Any], *, seconds: float = 5.0) -> list[int]:
    """Results of a request that must be answered."""
    kind = "test_program_stdio" if tests and isinstance(tests[0], dict) else "test_program"
    request = {"program": program, "tests": list(tests), "max_execution_time": seconds}
    while True:
        response = requests.post(f"{url}/{kind}", json=request, timeout=120)
        if response.status_code == 503:
            time.sleep(float(response.headers["retry-after"]))
            continue
        assert response.status_code == 200, response.text
        reply = response.json()
        assert [runtime >= 0 for runtime in reply["runtimes"]] == [bool(result) for result in reply["results"]]
        return reply["results"]


def programs_running(service: int | None = None) -> list[str]:
    """Command lines of processes that belong to a jail of this checkout, or to a program of one service.

    Args:
        service: process of the service; this one unless given.
    """
    service, found = service or os.getpid(), []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            user = folder.stat().st_uid
        except OSError:
            continue
        ours = "code_utils.jail" in command and f" {Path(jail.__file__).resolve().parents[1]} " in command
        if ours or (user - FIRST_UID) // 64 == service:
            found.append(f"{folder.name}: {command}")
    return found


class HealthWatch:
    """Asks `/health` again and again during the block, and remembers the slowest answer."""

    def __init__(self, url: str) -> None:
        self._url, self._stop = url, threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.slowest, self.asked = 0.0, 0

    def _ask(self) -> None:
        with requests.Session() as session:
            while not self._stop.wait(0.02):
                start = time.monotonic()
                assert session.get(f"{self._url}/health", timeout=60).json() == {"status": "healthy"}
                self.slowest = max(self.slowest, time.monotonic() - start)
                self.asked += 1

    def __enter__(self) -> "HealthWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
