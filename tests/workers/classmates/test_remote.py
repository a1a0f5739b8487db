"""Remote classmates on real servers that misbehave: each failure is an outcome, told once, and over when it is."""

import asyncio
import contextlib
import gc
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from omegaconf import OmegaConf

from tests.classmate.rows import record
from tests.workers.servers import serving
from verl.classmate.config import ClassmateRewardModelConfig, from_mapping
from verl.classmate.errors import ClassmateEngineError
from verl.classmate.outcome import Outcome
from verl.classmate.record import RowRecord
from verl.classmate.reply import Reply
from verl.classmate.row import Continuation
from verl.utils.model_servers import openai_http
from verl.utils.model_servers.mapping import Server, changing
from verl.workers.classmate_workers import ClassmateClient, ClassmateGroup, create_classmate_workers
from verl.workers.classmates import remote as classmate_remote
from verl.workers.classmates.remote import RETRIES, RemoteClassmate, RemoteWatch, with_hosted

NAME = "some/model"
IDS = [11, 12, 13]
PARAMS = {"temperature": 0.5, "top_p": 0.9, "top_k": -1, "max_tokens": 8, "seed": 3}


def good(ids: Any = IDS, **choice: Any) -> JSONResponse:
    return JSONResponse({"choices": [{"token_ids": ids, "finish_reason": "stop", **choice}]})


class Stub:
    """A server of one model whose answers are set by the test."""

    def __init__(self) -> None:
        self.answer: Callable[[], Any] = good
        self.asked: list[dict[str, Any]] = []
        self.headers: list[str | None] = []
        self.probes = 0
        self.healthy = True
        self.app = FastAPI()

        @self.app.post("/v1/completions")
        async def completions(request: Request) -> Any:
            self.asked.append(await request.json())
            self.headers.append(request.headers.get("authorization"))
            answer = self.answer()
            return await answer if asyncio.iscoroutine(answer) else answer

        @self.app.get("/v1/models")
        async def models() -> Any:
            self.probes += 1
            return {"data": [{"id": NAME, "max_model_len": 100}]}

        @self.app.get("/health")
        async def health() -> Any:
            return Response(status_code=200 if self.healthy else 503)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
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


def enter(mapping: Path, *servers: Server) -> None:
    """Lets the mapping file name exactly these."""
    with changing(mapping) as there:
        there.clear()
        there.update({server.name: server for server in servers})


class Asker:
    """A client as an agent-loop worker has it, on one event loop for the whole test."""

    def __init__(self, mapping: Path, timeout_s: float = 30.0) -> None:
        self.events: list[str] = []
        self.client = RemoteClassmate(NAME, mapping, timeout_s=timeout_s, on_event=self.events.append)
        self._runner = asyncio.Runner()

    def ask(self, times: int = 1) -> list[Reply]:
        async def run() -> list[Reply]:
            return list(await asyncio.gather(*(self.client.complete([1, 2], PARAMS) for _ in range(times))))

        return self._runner.run(run())

    def close(self) -> None:
        self._runner.run(self.client.close())
        self._runner.close()


@pytest.fixture
def asker(mapping: Path, server: Server) -> Iterator[Asker]:
    enter(mapping, server)
    asker = Asker(mapping)
    yield asker
    asker.close()


def in_turn(*answers: Any) -> Callable[[], Any]:
    """Each answer once, the last one for ever."""
    left = list(answers)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def failing(status: int, message: str = "no", **headers: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "code": status}}, status_code=status, headers=headers)


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


async def _hang() -> Any:
    await asyncio.sleep(3600)


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


def test_a_server_that_hangs_costs_its_time_once(mapping: Path, server: Server, stub: Stub) -> None:
    enter(mapping, server)
    asker = Asker(mapping, timeout_s=1.5)
    stub.answer, stub.healthy = _hang, False
    replies = asker.ask(4)
    assert [reply.outcome for reply in replies] == [Outcome.timeout] * 4
    assert "1.5 s" in (replies[0].error or "")
    assert len(stub.asked) == 4, "what has had its time is not asked again"
    assert len(asker.events) == 1

    assert [reply.outcome for reply in asker.ask(4)] == [Outcome.engine_error] * 4
    assert len(stub.asked) == 4, "nobody waits for a server that is known to be down"
    assert len(asker.events) == 1, asker.events

    stub.answer, stub.healthy = good, True
    assert [reply.outcome for reply in asker.ask(4)] == [Outcome.ok] * 4
    assert len(asker.events) == 2
    assert "is back" in asker.events[1]
    asker.close()


def test_a_server_that_answers_nothing_costs_its_time_once(mapping: Path, server: Server, stub: Stub) -> None:
    enter(mapping, server)
    asker = Asker(mapping, timeout_s=1.0)
    stub.answer = _hang
    assert [reply.outcome for reply in asker.ask(4)] == [Outcome.timeout] * 4
    assert len(asker.events) == 1
    assert "is down: it answered none of the last 4 requests in their time" in asker.events[0]
    assert len(stub.asked) == 4

    assert [reply.outcome for reply in asker.ask(20)] == [Outcome.timeout] * 20
    assert len(stub.asked) == 5, "one request tries it, the others take what it learns"
    assert len(asker.events) == 1

    stub.answer = good
    assert [reply.outcome for reply in asker.ask(20)] == [Outcome.ok] * 20
    assert "is back" in asker.events[1]
    asker.close()


def test_a_server_that_answers_others_meanwhile_is_busy(mapping: Path, server: Server, stub: Stub) -> None:
    enter(mapping, server)
    asker = Asker(mapping, timeout_s=1.0)
    answers = iter([_hang, _hang, _hang, _hang, good])
    stub.answer = lambda: next(answers)()
    replies = asker.ask(5)
    assert sorted(reply.outcome for reply in replies) == [Outcome.ok] + [Outcome.timeout] * 4
    assert asker.events == []
    asker.close()


def silent_rows(outcome: str, rows: int, tokens: int = 0) -> list[RowRecord]:
    """Rows of one classmate."""
    item = Continuation(
        sample=0, outcome=Outcome(outcome), token_length=tokens, finish_reason="stop" if tokens else None
    )
    return [record([item]) for _ in range(rows)]


@pytest.mark.parametrize("policy", ["restart", "exclude", "raise"])
def test_failure_policies_of_a_server_that_answers_nothing(mapping: Path, stub: Stub, policy: str) -> None:
    """Only rows know it: the server says of itself that all is well."""
    events: list[str] = []
    with serving(stub.app, name=NAME) as server:
        enter(mapping, server)
        classmates = group(mapping, policy, events)
        for harmless in (silent_rows("timeout", 2), silent_rows("engine_error", 9), silent_rows("no_answer", 9, 5), []):
            classmates.heed(harmless)
            classmates.heal()
        classmates.heed(silent_rows("timeout", 9) + silent_rows("no_answer", 1, 5))
        classmates.heal()
        assert events == []
        classmates.heed(silent_rows("timeout", 9))
        if policy == "raise":
            with pytest.raises(ClassmateEngineError, match=r"is down: it answered none of the last 9 requests"):
                classmates.heal()
            return
        classmates.heal()
        classmates.heed(silent_rows("timeout" if policy == "restart" else "excluded", 9))
        classmates.heal()
        assert classmates.excluded == ({0} if policy == "exclude" else set())
        assert len(events) == (2 if policy == "exclude" else 1)
        classmates.heed(silent_rows("ok", 9, 5))
        classmates.heal()
        assert ("is back" in events[-1]) == (policy == "restart")
        classmates.shutdown()


def test_a_slow_answer_is_not_a_dead_server(mapping: Path, server: Server, stub: Stub) -> None:
    enter(mapping, server)
    asker = Asker(mapping, timeout_s=0.3)
    stub.answer = _hang
    assert asker.ask()[0].outcome is Outcome.timeout
    assert asker.events == []
    asker.close()


def test_down_and_back_are_told_once_each(mapping: Path, stub: Stub) -> None:
    asker = Asker(mapping)
    with serving(stub.app, name=NAME) as server:
        enter(mapping, server)
        assert asker.ask()[0].outcome is Outcome.ok
    for _ in range(2):
        replies = asker.ask(16)
        assert {reply.outcome for reply in replies} == {Outcome.engine_error}
        assert all(reply.token_ids == () for reply in replies)
    assert len(asker.events) == 1
    assert "is down" in asker.events[0]
    with serving(stub.app, name=NAME, port=server.port):
        assert {reply.outcome for reply in asker.ask(16)} == {Outcome.ok}
    assert len(asker.events) == 2
    asker.close()


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


def test_a_server_may_be_added_moved_and_removed(mapping: Path, stub: Stub) -> None:
    asker = Asker(mapping)
    (reply,) = asker.ask()
    assert (reply.outcome, "has no entry" in (reply.error or "")) == (Outcome.engine_error, True)
    other = Stub()
    with serving(stub.app, name=NAME) as first, serving(other.app, name=NAME) as second:
        enter(mapping, first)
        assert asker.ask()[0].outcome is Outcome.ok
        enter(mapping, second)
        assert asker.ask()[0].outcome is Outcome.ok
        assert (len(stub.asked), len(other.asked)) == (1, 1)
        enter(mapping)
        assert asker.ask()[0].outcome is Outcome.engine_error
        mapping.write_text('{"half a fi')
        assert asker.ask()[0].outcome is Outcome.engine_error
        enter_by_hand(mapping, first)
        assert asker.ask()[0].outcome is Outcome.ok
    assert [event.split()[3] for event in asker.events] == ["down:", "back", "down:", "back"]
    asker.close()


def enter_by_hand(mapping: Path, server: Server) -> None:
    entry = {"outward_host": server.outward_host, "local_host": server.local_host, "port": server.port}
    mapping.write_text(json.dumps({server.name: entry}))


def test_a_file_being_written_does_not_take_a_server_away(asker: Asker, mapping: Path) -> None:
    assert asker.ask()[0].outcome is Outcome.ok
    mapping.write_text('{"half a fi')
    assert asker.ask()[0].outcome is Outcome.ok
    assert asker.events == []


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


# The group's and the clients' view


def config(mapping: Path, *models: str, **reward_model: Any) -> ClassmateRewardModelConfig:
    return from_mapping(
        {
            "classmate_cot_reward_configs": {
                "classmate_model_name_or_path_list": list(models),
                "host_classmate_name_to_url_json_fn": str(mapping),
            },
            **reward_model,
        }
    )


def test_auto_takes_a_server_that_the_file_names(mapping: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(mapping, Server(name=NAME, outward_host="localhost", port=1))
    monkeypatch.chdir(mapping.parent)
    reward = with_hosted(config(Path(mapping.name), NAME, "other/model"))
    assert [spec.backend for spec in reward.classmates] == ["openai", "auto"]
    assert reward.classmate_cot_reward_configs.host_classmate_name_to_url_json_fn == str(mapping)
    assert with_hosted(reward) == reward
    enter(mapping)
    assert with_hosted(reward) == reward, "what a run consists of is settled at its start"
    assert [spec.backend for spec in with_hosted(config(mapping, NAME, classmate_backend="hf")).classmates] == ["hf"]


def test_a_folder_is_found_by_its_absolute_path(mapping: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models" / "a").mkdir(parents=True)
    enter(mapping, Server(name=str(tmp_path / "models" / "a"), outward_host="localhost", port=1))
    monkeypatch.chdir(tmp_path)
    assert with_hosted(config(mapping, "models/a")).classmates[0].backend == "openai"


def test_the_client_asks_remote_classmates_once_per_sample(mapping: Path, server: Server, stub: Stub) -> None:
    enter(mapping, server)
    reward = with_hosted(config(mapping, NAME, classmate_generation_configs={"max_new_tokens": 5, "temperature": 0.3}))

    async def run(**how: Any) -> list[Reply]:
        client = ClassmateClient(reward, max_model_len=10)
        replies = await client.sample(0, [1] * 7, seeds=[4, 5], **how)
        await client.close()
        return replies

    replies = asyncio.run(run(validate=False))
    assert [reply.outcome for reply in replies] == [Outcome.ok] * 2
    assert not any("seed" in sent for sent in stub.asked), "vLLM serves seeded requests slowly"
    assert {sent["max_tokens"] for sent in stub.asked} == {3}, "no more than the context leaves"
    assert {sent["temperature"] for sent in stub.asked} == {0.3}
    (reply, _) = asyncio.run(run(validate=True, excluded=frozenset({0})))
    assert reply.outcome is Outcome.excluded
    assert len(stub.asked) == 2


def test_a_requests_time_depends_on_the_engine_unless_given(mapping: Path) -> None:
    assert config(mapping, NAME).request_timeout("hf") == 600
    assert config(mapping, NAME).request_timeout("openai") == 60
    given = config(mapping, NAME, classmate_request_timeout=7.0)
    assert {given.request_timeout(engine) for engine in ("hf", "vllm", "openai")} == {7}


def test_the_driver_tells_each_change_once(mapping: Path, stub: Stub) -> None:
    events: list[str] = []
    other = Stub()
    with serving(stub.app, name=NAME) as first:
        enter(mapping, first)
        watch = RemoteWatch({2: NAME}, mapping, on_event=events.append)
        assert watch.check() == {}
        with serving(other.app, name=NAME) as second:
            enter(mapping, second)
            assert watch.check() == {}
            enter(mapping, first)
            assert watch.check() == {}
        assert len(events) == 2
        assert all("classmate 2 (some/model) moved" in event for event in events)
        events.clear()
    for _ in range(3):
        (reason,) = watch.check().values()
        assert "does not answer" in reason
    assert len(events) == 1
    assert watch.check(without=frozenset({2})) == {}
    with serving(stub.app, name=NAME, port=first.port):
        assert watch.check() == {}
        assert len(events) == 2
        assert "is back" in events[1]
        stub.healthy = False
        assert list(watch.check()) == [2]
    assert len(events) == 3


def group(mapping: Path, policy: str, events: list[str]) -> ClassmateGroup:
    reward = with_hosted(config(mapping, NAME, classmate_backend="openai", classmate_failure_policy=policy))
    data = {"max_prompt_length": 32, "max_response_length": 16}
    whole = OmegaConf.create({"data": data, "trainer": {"device": "cpu"}})
    return create_classmate_workers(whole, reward, on_event=events.append)


@pytest.mark.parametrize("policy", ["restart", "exclude", "raise"])
def test_failure_policies_of_a_server_that_is_down(mapping: Path, stub: Stub, policy: str) -> None:
    events: list[str] = []
    with serving(stub.app, name=NAME) as server:
        enter(mapping, server)
        classmates = group(mapping, policy, events)
        classmates.heal()
        assert events == []
    if policy == "raise":
        with pytest.raises(ClassmateEngineError, match=r"some/model\) is down: it does not answer"):
            classmates.heal()
        return
    classmates.heal()
    classmates.heal()
    assert classmates.restarts == 0
    assert classmates.excluded == ({0} if policy == "exclude" else set())
    assert len(events) == (2 if policy == "exclude" else 1)
    with serving(stub.app, name=NAME, port=server.port):
        classmates.heal()
    assert ("is back" in events[-1]) == (policy == "restart"), "what is excluded stays so"
    classmates.shutdown()


def test_each_event_loop_gets_connections_of_its_own(
    asker: Asker, caplog: pytest.LogCaptureFixture, mapping: Path
) -> None:
    client = RemoteClassmate(NAME, mapping, timeout_s=30)
    for _ in range(3):
        assert asyncio.run(client.complete([1], PARAMS)).outcome is Outcome.ok
    asyncio.run(client.close())
    gc.collect()
    assert caplog.text == ""
