"""A remote classmate: its server, the file that names it, and a client that asks it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.classmates.remote_stub import NAME, Asker, Stub, enter
from tests.workers.servers import serving
from verl.utils.model_servers import openai_http
from verl.utils.model_servers.mapping import Server
from verl.workers.classmates import remote as classmate_remote


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wait before a retry or between probes, and no key."""
    monkeypatch.setattr(openai_http, "RETRY_DELAY_S", 0.01)
    monkeypatch.setattr(classmate_remote, "PROBE_INTERVAL_S", 0.0)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def stub() -> Stub:
    return Stub()


@pytest.fixture
def server(stub: Stub) -> Iterator[Server]:
    with serving(stub.app, name=NAME) as server:
        yield server


@pytest.fixture
def mapping(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "mapping.json"


@pytest.fixture
def asker(mapping: Path, server: Server) -> Iterator[Asker]:
    enter(mapping, server)
    asker = Asker(mapping)
    yield asker
    asker.close()
