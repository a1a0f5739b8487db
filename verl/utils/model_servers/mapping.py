"""The file that says which server answers for which model, and whether a server does.

One decision: the file is all that servers and runs share. A launcher adds its entries under a lock and takes exactly
those out again; a run reads the file whenever it has changed. It holds `{model: {outward_host, local_host, port}}`.

    >>> with changing(path) as servers:
    ...     servers["Qwen/Qwen3-0.6B"] = Server(name="Qwen/Qwen3-0.6B", outward_host="node7", port=8003)
    >>> server = find(read(path), "Qwen/Qwen3-0.6B")
    >>> problem(server)                                  # None: it answers
    'does not answer (Connection refused)'
"""

import contextlib
import json
import os
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

KEY_VARIABLE = "OPENAI_API_KEY"
"""Environment variable of the key that requests bring, when it is set."""

PROBE_TIMEOUT_S = 5.0
"""A server that is up answers a question about itself within this time."""

_MAX_REPLY_BYTES = 16 << 20


@dataclass(frozen=True, kw_only=True)
class Server:
    """An OpenAI-compatible server of one model."""

    name: str
    """The model's name, in the file and in requests."""
    outward_host: str
    """Name or address for other machines; a loopback name where they cannot reach it."""
    local_host: str = "127.0.0.1"
    """Name or address for its own machine."""
    port: int
    """Where it listens."""

    @property
    def url(self) -> str:
        """Its address as seen from this machine: `http://host:port`."""
        host = self.local_host if is_this_machine(self.outward_host) else self.outward_host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"


@lru_cache(maxsize=64)
def is_this_machine(host: str) -> bool:
    """Whether a name or address leads to this machine."""
    if host in ("localhost", "127.0.0.1", "::1", socket.gethostname()):
        return True
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0]
        # Only an address of this machine can be bound to.
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def read(path: Path) -> dict[str, Server]:
    """The servers by name; none where there is no file.

    Raises:
        ValueError: in one line, for a file that does not hold such entries.
    """
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold one object, {{model: {{outward_host, local_host, port}}}}")
    return {name: _server(path, name, entry) for name, entry in content.items()}


def _server(path: Path, name: str, entry: Any) -> Server:
    fields = entry if isinstance(entry, dict) else {}
    hosts, port = [fields.get(key) or "" for key in ("outward_host", "local_host")], fields.get("port")
    if not all(isinstance(host, str) and host for host in hosts) or type(port) is not int or not 0 < port < 65536:
        raise ValueError(f"{path}: the entry of {name} must hold outward_host, local_host and a port, not {entry!r}")
    return Server(name=name, outward_host=hosts[0], local_host=hosts[1], port=port)


def find(servers: Mapping[str, Server], model: str) -> Server | None:
    """The server of a model, by its name or, for a local folder, by its absolute path."""
    return servers.get(model) or servers.get(canonical_name(model))


def canonical_name(model: str) -> str:
    """The name under which a model is hosted: the absolute path of a local folder, else the hub name."""
    folder = Path(model).expanduser()
    return str(folder.resolve()) if folder.is_dir() else model


@contextlib.contextmanager
def changing(path: Path) -> Iterator[dict[str, Server]]:
    """The servers, to be changed in place: nobody else changes them meanwhile, no reader sees a half-written file.

    Raises:
        ValueError: as `read`.
    """
    from filelock import FileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        servers = read(path)
        yield servers
        content = {
            name: {"outward_host": server.outward_host, "local_host": server.local_host, "port": server.port}
            for name, server in servers.items()
        }
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(json.dumps(content, indent=2) + "\n")
        draft.replace(path)


class MappingFile:
    """The file as a run reads it: again whenever it has changed, and as it was while it is broken."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._seen: Any = None
        self._servers: dict[str, Server] = {}

    def find(self, model: str) -> Server | None:
        """The server of a model, as of now."""
        try:
            status = self.path.stat()
            now = (status.st_mtime_ns, status.st_size, status.st_ino)
        except OSError:
            now = None
        if now != self._seen:
            # A file that somebody is writing by hand may be half a file.
            with contextlib.suppress(ValueError, OSError):
                self._servers = read(self.path)
            self._seen = now
        return find(self._servers, model)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to a host that nobody named."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


# No proxies: servers are named by address.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)


def authorization() -> dict[str, str]:
    """The header with the key, where one is set."""
    key = os.environ.get(KEY_VARIABLE)
    return {"Authorization": f"Bearer {key}"} if key else {}


def without_key(text: str) -> str:
    """`text` with the key blotted out: servers may repeat what they were sent."""
    key = os.environ.get(KEY_VARIABLE)
    return text.replace(key, "***") if key else text


def ask(url: str, body: Any = None, *, timeout: float = PROBE_TIMEOUT_S) -> Any:
    """The JSON of a `GET`, or of a `POST` of `body`; None for a reply without content.

    Raises:
        ConnectionError: in one line; `str(error)` says why there is no such reply.
    """
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **authorization()})
    try:
        with _OPENER.open(request, timeout=timeout) as reply:
            content = reply.read(_MAX_REPLY_BYTES)
        return json.loads(content) if content else None
    except urllib.error.HTTPError as error:
        with error:
            said = error.read(2000).decode(errors="replace")
        raise ConnectionError(
            f"answers with status {error.code} ({without_key(' '.join(said.split()))[:200]})"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "reason", error)
        reason = getattr(reason, "strerror", None) or reason
        raise ConnectionError(f"does not answer ({without_key(str(reason))[:200]})") from None


def problem(server: Server, *, timeout: float = PROBE_TIMEOUT_S) -> str | None:
    """Why a server cannot be asked now, as the end of a sentence; None when it can."""
    try:
        if model_card(server, timeout=timeout) is None:
            return "answers, but serves other models"
    except ConnectionError as error:
        return str(error)
    try:
        ask(f"{server.url}/health", timeout=timeout)
    except ConnectionError as error:
        # Servers of other makers need not know this question.
        return None if "status 404" in str(error) else str(error)
    return None


def model_card(server: Server, *, timeout: float = PROBE_TIMEOUT_S) -> dict[str, Any] | None:
    """What `/v1/models` says about the model; None when it is not among those served.

    Raises:
        ConnectionError: as `ask`.
    """
    reply = ask(f"{server.url}/v1/models", timeout=timeout)
    cards = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(cards, list):
        raise ConnectionError("answers with something else than a list of models")
    return next((card for card in cards if isinstance(card, dict) and card.get("id") == server.name), None)
