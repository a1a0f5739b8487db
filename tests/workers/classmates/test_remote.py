"""Remote classmates whose answers are bad: each failure is an outcome, tried again so many times, and told once."""

import asyncio
import contextlib
import gc
import socket
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.responses import JSONResponse, Response

from tests.workers.classmates.remote_stub import IDS, NAME, PARAMS, Asker, Stub, enter, failing, good, in_turn
from verl.classmate.outcome import Outcome
from verl.classmate.reply import Reply
from verl.utils.model_servers.mapping import Server
from verl.workers.classmates.remote import RETRIES, RemoteClassmate

pytestmark = pytest.mark.usefixtures("quick")


def test_a_good_answer(asker: Asker, stub: Stub) -> None:
    (reply,) = asker.ask()
    assert reply == Reply(outcome=Outcome.ok, token_ids=tuple(IDS), finish_reason="stop")
    (sent,) = stub.asked
    assert {key: sent[key] for key in PARAMS} == PARAMS
    assert (sent["prompt"], sent["model"], sent["return_token_ids"]) == ([1, 2], NAME, True)
    assert (sent["repetition_penalty"], sent["min_p"]) == (1.0, 0.0), "a model's own file must not change the sampling"
    assert stub.headers == [None]
    assert asker.events == []
    assert stub.probes == 0, "a server that answers is not asked about itself"


async def _cut_off() -> Any:
    async def part() -> AsyncIterator[bytes]:
        yield b'{"choices": [{"token'
        raise ConnectionResetError

    from fastapi.responses import StreamingResponse

    return StreamingResponse(part(), media_type="application/json", headers={"Content-Length": "1000"})


@pytest.mark.parametrize(
    ("answer", "says", "attempts"),
    [
        (lambda: failing(500, "CUDA error"), "status 500 (CUDA error)", RETRIES + 1),
        (lambda: failing(503), "status 503", RETRIES + 1),
        (lambda: failing(429, "slow down"), "status 429 (slow down)", RETRIES + 1),
        (lambda: failing(429, "later", **{"Retry-After": "3600"}), "status 429", 1),
        (lambda: Response("<html>bad gateway</html>", status_code=502), "bad gateway", RETRIES + 1),
        (_cut_off, "", RETRIES + 1),
        (lambda: failing(400, "context length is 5"), "status 400 (context length is 5)", 1),
        (lambda: failing(404, "no such model"), "status 404", 1),
        (lambda: Response(status_code=302, headers={"Location": "http://localhost:1/"}), "status 302", 1),
        (lambda: Response("not json"), "no completion", 1),
        (lambda: Response(b"\xff\xfe"), "no completion", 1),
        (lambda: JSONResponse([]), "no completion", 1),
        (lambda: JSONResponse({"choices": []}), "no completion", 1),
        (lambda: JSONResponse({"choices": [7]}), "no completion", 1),
        (lambda: JSONResponse({"choices": [{"text": "4"}]}), "must know return_token_ids", 1),
        (lambda: good("1 2 3"), "no list of token ids", 1),
        (lambda: good(["1"]), "no list of token ids", 1),
        (lambda: good([1.0]), "no list of token ids", 1),
        (lambda: good([True]), "no list of token ids", 1),
        (lambda: good([-1]), "no list of token ids", 1),
        (lambda: good([2**40]), "no list of token ids", 1),
        (lambda: good([1] * 9), "at most 8", 1),
        (lambda: good([1], finish_reason="abort"), "aborted", 1),
    ],
)
def test_a_bad_answer_is_an_outcome_and_retries_are_bounded(
    asker: Asker, stub: Stub, answer: Callable[[], Any], says: str, attempts: int
) -> None:
    stub.answer = answer
    (reply,) = asker.ask()
    assert (reply.outcome, reply.token_ids) == (Outcome.engine_error, ())
    assert says in (reply.error or "")
    assert "\n" not in (reply.error or "")
    assert len(reply.error or "") < 300
    assert len(stub.asked) == attempts
    assert asker.client.down is None, "the server answers questions about itself: the request failed, not the server"


def test_a_failure_that_passes_is_not_seen(asker: Asker, stub: Stub) -> None:
    stub.answer = in_turn(failing(500), failing(429, **{"Retry-After": "0"}), failing(503), good())
    assert asker.ask()[0].outcome is Outcome.ok
    assert len(stub.asked) == 4
    assert asker.events == []


def test_connections_that_are_reset(mapping: Path, tmp_path: Path) -> None:
    asker = Asker(mapping)
    connections, over = [0], threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def reset() -> None:
        with contextlib.suppress(OSError):
            while not over.is_set():
                connection, _ = listener.accept()
                connections[0] += 1
                connection.recv(10)
                # No lingering: the client gets a reset instead of an end.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                connection.close()

    thread = threading.Thread(target=reset)
    thread.start()
    enter(mapping, Server(name=NAME, outward_host="localhost", port=listener.getsockname()[1]))
    (reply,) = asker.ask()
    assert reply.outcome is Outcome.engine_error
    assert RETRIES + 1 <= connections[0] <= RETRIES + 3, "attempts, and a question about the server"
    assert len(asker.events) == 1
    asker.close()
    over.set()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_refusals_are_told_once(asker: Asker, stub: Stub) -> None:
    stub.answer = lambda: failing(404, f"not here, request {len(stub.asked)}")
    asker.ask(8)
    asker.ask(8)
    assert len(asker.events) == 1
    assert "refuses requests with status 404" in asker.events[0]


def test_the_key_is_sent_when_set_and_never_told(
    asker: Asker, stub: Stub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-very-secret-key")
    assert asker.ask()[0].outcome is Outcome.ok
    assert stub.headers == ["Bearer a-very-secret-key"]
    stub.answer = lambda: failing(401, "Incorrect API key provided: a-very-secret-key")
    (reply,) = asker.ask()
    told = " ".join([*asker.events, reply.error or "", caplog.text])
    assert "401" in told
    assert "secret" not in told


def test_each_event_loop_gets_connections_of_its_own(
    asker: Asker, caplog: pytest.LogCaptureFixture, mapping: Path
) -> None:
    client = RemoteClassmate(NAME, mapping, timeout_s=30)
    for _ in range(3):
        assert asyncio.run(client.complete([1], PARAMS)).outcome is Outcome.ok
    asyncio.run(client.close())
    gc.collect()
    assert caplog.text == ""
