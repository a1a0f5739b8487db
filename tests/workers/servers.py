"""Real HTTP servers on loopback for tests: any ASGI application, on a free port, in a thread.

>>> with serving(create_app(served), name="tiny") as server:
...     ask(f"{server.url}/v1/models")
"""

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn

from verl.utils.model_servers.mapping import Server


@contextlib.contextmanager
def serving(app: Any, *, name: str, port: int = 0) -> Iterator[Server]:
    """Serves `app` during the block; `port` 0 takes a free one."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    # Connections that come before the server runs wait.
    listener.listen(512)
    config = uvicorn.Config(app, log_level="critical", access_log=False, timeout_graceful_shutdown=1, lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield Server(name=name, outward_host="127.0.0.1", port=listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
