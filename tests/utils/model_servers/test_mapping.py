"""The mapping file, written by several at once and read by runs, and what is found out about a server."""

import json
import socket
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.responses import JSONResponse, RedirectResponse, Response

from tests.processes import in_processes
from tests.workers.servers import serving
from verl.utils.model_servers import mapping as classmate_mapping
from verl.utils.model_servers.mapping import Server, ask, changing, find, is_this_machine, problem, read


def server(name: str = "a", port: int = 8003) -> Server:
    return Server(name=name, outward_host="node7", local_host="127.0.0.1", port=port)


def test_the_file_holds_what_the_documents_say(tmp_path: Path) -> None:
    path = tmp_path / "new" / "mapping.json"
    assert read(path) == {}
    with changing(path) as servers:
        servers["a"] = server("a")
    assert json.loads(path.read_text()) == {"a": {"outward_host": "node7", "local_host": "127.0.0.1", "port": 8003}}
    assert read(path) == {"a": server("a")}
    assert find(read(path), "b") is None
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["mapping.json", "mapping.json.lock"]


def _add(path: str, name: str) -> None:
    for port in range(1, 5):
        with changing(Path(path)) as servers:
            servers[f"{name}-{port}"] = server(f"{name}-{port}", port)


def test_launchers_do_not_lose_each_others_entries(tmp_path: Path) -> None:
    path = tmp_path / "mapping.json"
    in_processes(_add, [(str(path), name) for name in "abcd"])
    assert len(read(path)) == 16


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"a": 8003}',
        '{"a": {"outward_host": "x", "local_host": "y"}}',
        '{"a": {"outward_host": "x", "local_host": "y", "port": "8003"}}',
        '{"a": {"outward_host": "x", "local_host": "y", "port": true}}',
        '{"a": {"outward_host": "x", "local_host": "y", "port": 70000}}',
        '{"a": {"outward_host": "", "local_host": "y", "port": 1}}',
    ],
)
def test_a_broken_file_is_told_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mapping.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"mapping\.json") as error:
        read(path)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=r"mapping\.json"), changing(path):
        pass
    assert path.read_text() == text, "what cannot be read is not overwritten"


def test_the_host_depends_on_where_one_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_this_machine("localhost")
    assert is_this_machine(socket.gethostname())
    assert not is_this_machine("no-such-host.invalid")
    monkeypatch.setattr(classmate_mapping, "is_this_machine", lambda host: host == "here")
    assert Server(name="a", outward_host="here", local_host="127.0.0.1", port=1).url == "http://127.0.0.1:1"
    assert Server(name="a", outward_host="there", local_host="127.0.0.1", port=1).url == "http://there:1"
    assert Server(name="a", outward_host="here", local_host="::1", port=1).url == "http://[::1]:1"


def test_what_is_found_out_about_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    app, models = FastAPI(), [JSONResponse({"data": [{"id": "a"}]})]

    @app.get("/v1/models")
    async def _() -> Response:
        return models[0]

    with serving(app, name="a") as running:
        assert problem(running) is None, "not every make has /health"
        assert (
            problem(Server(name="b", outward_host="localhost", port=running.port)) == "answers, but serves other models"
        )
        models[0] = JSONResponse({"data": 5})
        assert "something else" in str(problem(running))
        models[0] = Response("<html>")
        assert "does not answer" in str(problem(running))
        monkeypatch.setenv("OPENAI_API_KEY", "secret")
        models[0] = JSONResponse({"error": "wrong key secret"}, status_code=401)
        assert "status 401" in str(problem(running))
        assert "secret" not in str(problem(running))
        models[0] = RedirectResponse(f"http://localhost:{running.port}/elsewhere")
        assert "status 307" in str(problem(running)), "the key goes nowhere else"
    assert "Connection refused" in str(problem(running))
    silent = socket.create_server(("127.0.0.1", 0))
    hanging = Server(name="a", outward_host="localhost", port=silent.getsockname()[1])
    assert "timed out" in str(problem(hanging, timeout=0.1))
    silent.close()
    with pytest.raises(ConnectionError):
        ask(f"{running.url}/v1/models")
