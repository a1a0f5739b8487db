"""The engine "hf" behind HTTP: what a client of vLLM's or OpenAI's interface gets, on a real server and model."""

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.tiny import make_tiny_world
from tests.workers.servers import serving
from verl.utils.model_servers.mapping import Server
from verl.workers.rollout.hf_rollout_server import openai_api
from verl.workers.rollout.hf_rollout_server.engine import EngineConfig, HFEngine
from verl.workers.rollout.hf_rollout_server.openai_api import Served, create_app
from verl.workers.rollout.hf_rollout_server.sampling import SamplingParams

PROMPT = [7, 8, 9, 10]
NAME = "some/model"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HFEngine]:
    model = make_tiny_world(tmp_path_factory.mktemp("world")).model
    engine = HFEngine.from_config(EngineConfig(model_path=str(model), batch_wait_s=0.05))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def server(engine: HFEngine) -> Iterator[Server]:
    with serving(create_app(Served(engine=engine, names=(NAME, "alias"))), name=NAME) as server:
        yield server


def call(server: Server, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Status and content; `body` is sent as it is when it is bytes."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    connection.request(method, path, data, {"Content-Type": "application/json", **headers})
    reply = connection.getresponse()
    content = reply.read()
    connection.close()
    return reply.status, json.loads(content) if content else None


def complete(server: Server, **fields: Any) -> dict[str, Any]:
    status, reply = call(
        server, "POST", "/v1/completions", {"model": NAME, "prompt": PROMPT, "return_token_ids": True, **fields}
    )
    assert status == 200, reply
    return reply


def refused(server: Server, **fields: Any) -> tuple[int, str]:
    status, reply = call(server, "POST", "/v1/completions", {"model": NAME, "prompt": PROMPT, **fields})
    assert set(reply) == {"error"}
    assert set(reply["error"]) == {"message", "type", "param", "code"}
    assert reply["error"]["code"] == status
    return status, reply["error"]["message"]


def test_tokens_are_those_of_the_engine(server: Server, engine: HFEngine) -> None:
    reply = complete(server, max_tokens=12, temperature=0.9, top_p=0.8, top_k=20, seed=3, logprobs=0)
    params = SamplingParams(max_tokens=12, temperature=0.9, top_p=0.8, top_k=20, seed=3)
    expected = asyncio.run(engine.generate(PROMPT, params, "directly"))
    (choice,) = reply["choices"]
    assert choice["token_ids"] == expected.token_ids
    assert choice["prompt_token_ids"] == PROMPT
    assert choice["finish_reason"] == expected.finish_reason
    assert choice["text"] == engine.tokenizer.decode(expected.token_ids, skip_special_tokens=True)
    assert choice["logprobs"]["token_logprobs"] == pytest.approx(expected.log_probs)
    assert len(choice["logprobs"]["tokens"]) == len(choice["logprobs"]["text_offset"]) == len(expected.token_ids)
    assert (reply["object"], reply["model"]) == ("text_completion", NAME)
    count = len(expected.token_ids)
    assert reply["usage"] == {"prompt_tokens": 4, "completion_tokens": count, "total_tokens": 4 + count}


def test_prompts_as_text_as_token_ids_and_several_at_once(server: Server, engine: HFEngine) -> None:
    ids = engine.tokenizer("1+1=")["input_ids"]
    settings = {"temperature": 0, "max_tokens": 5}
    as_text = complete(server, prompt="1+1=", **settings)["choices"][0]
    assert as_text["prompt_token_ids"] == ids
    assert complete(server, prompt=ids, **settings)["choices"][0] == as_text
    several = complete(server, prompt=[ids, PROMPT], **settings)["choices"]
    assert [choice["prompt_token_ids"] for choice in several] == [ids, PROMPT]
    assert [choice["index"] for choice in several] == [0, 1]
    assert several[0]["token_ids"] == as_text["token_ids"]
    texts = complete(server, prompt=["1+1=", "2"], **settings)["choices"]
    assert texts[0]["token_ids"] == as_text["token_ids"]
    without = complete(server, return_token_ids=False, **settings)["choices"][0]
    assert without["token_ids"] is None


def test_n_choices_have_seeds_of_their_own(server: Server) -> None:
    settings = {"max_tokens": 10, "ignore_eos": True}
    choices = complete(server, n=3, seed=5, **settings)["choices"]
    assert len({tuple(choice["token_ids"]) for choice in choices}) == 3
    alone = [complete(server, seed=5 + i, **settings)["choices"][0]["token_ids"] for i in range(3)]
    assert [choice["token_ids"] for choice in choices] == alone
    unseeded = complete(server, n=4, **settings)["choices"]
    assert len({tuple(choice["token_ids"]) for choice in unseeded}) == 4


def test_stops(server: Server, engine: HFEngine) -> None:
    free = complete(server, temperature=0, max_tokens=30, ignore_eos=True)["choices"][0]
    assert free["finish_reason"] == "length"
    token = next(token for token in free["token_ids"] if token not in engine.eos_token_ids)
    by_token = complete(server, temperature=0, max_tokens=30, stop_token_ids=[token])["choices"][0]
    assert (by_token["finish_reason"], by_token["stop_reason"]) == ("stop", token)
    assert by_token["token_ids"][-1] == token
    word = engine.tokenizer.decode([token])
    by_text = complete(server, temperature=0, max_tokens=30, stop=[word])["choices"][0]
    assert (by_text["finish_reason"], by_text["stop_reason"]) == ("stop", word)
    assert word not in by_text["text"], "the text ends before the stop string"
    assert by_text["token_ids"] == by_token["token_ids"], "the tokens end with it"


@pytest.mark.guards("blocking call in an async endpoint")
def test_requests_that_arrive_together_are_one_batch(server: Server, engine: HFEngine) -> None:
    before = engine.batches
    complete(server, prompt=[PROMPT] * 8, n=3, max_tokens=4)
    assert engine.batches == before + 1
    before = engine.batches
    threads = [threading.Thread(target=complete, args=(server,), kwargs={"max_tokens": 40}) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert engine.batches - before < 6


def test_no_limit_of_its_own_fills_the_context(server: Server, engine: HFEngine) -> None:
    choice = complete(server, max_tokens=None, ignore_eos=True)["choices"][0]
    assert len(choice["token_ids"]) == engine.max_model_len - len(PROMPT)


@pytest.mark.parametrize(
    ("fields", "status", "says"),
    [
        ({"prompt": [5] * 100, "max_tokens": 29}, 400, "maximum context length is 128 tokens"),
        ({"prompt": [5] * 200}, 400, "200 in the prompt"),
        ({"prompt": []}, 400, "prompt: is empty"),
        ({"prompt": [[5], []]}, 400, "prompt: is empty"),
        ({"prompt": [-1]}, 400, "prompt: expected text"),
        ({"prompt": [1.5]}, 400, "prompt: expected text"),
        ({"prompt": [True]}, 400, "prompt: expected text"),
        ({"prompt": None}, 400, "prompt: expected text"),
        ({"prompt": [10**6]}, 400, "outside the model's vocabulary"),
        ({"max_tokens": 0}, 400, "max_tokens must be at least 1"),
        ({"max_tokens": "many"}, 400, "max_tokens:"),
        ({"temperature": -1}, 400, "temperature must be 0 or more"),
        ({"top_p": 2}, 400, "top_p must be in (0, 1]"),
        ({"n": 0}, 400, "n:"),
        ({"n": 5000}, 400, "at most 1024 at once"),
        ({"logprobs": 5}, 400, "write 0 or 1"),
        ({"stream": True}, 400, "stream: not supported"),
        ({"echo": True}, 400, "echo: not supported"),
        ({"repetition_penalty": 1.2}, 400, "repetition_penalty=1.2"),
        ({"temprature": 1}, 400, "temprature"),
        ({"model": "another"}, 404, "`another` does not exist"),
    ],
)
def test_what_is_refused(server: Server, fields: dict[str, Any], status: int, says: str) -> None:
    code, message = refused(server, **fields)
    assert code == status
    assert says in message
    assert len(message) < 400


def test_neutral_values_of_what_the_engine_lacks_are_accepted(server: Server) -> None:
    unused = {"stream": False, "echo": False, "best_of": 1, "logit_bias": None, "suffix": None, "user": "me"}
    complete(server, repetition_penalty=1.0, min_p=0.0, presence_penalty=0, frequency_penalty=0.0, **unused)
    assert complete(server, model="alias")["model"] == "alias"


def test_bodies_that_are_no_request(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for body in (b"{", b"[1]", b"\xff", b""):
        status, reply = call(server, "POST", "/v1/completions", body)
        assert (status, reply["error"]["type"]) == (400, "BadRequestError")
    monkeypatch.setattr(openai_api, "MAX_BODY_BYTES", 1000)
    status, reply = call(server, "POST", "/v1/completions", b" " * 5000)
    assert (status, reply["error"]["code"]) == (413, 413)
    status, reply = call(server, "GET", "/v1/completions")
    assert (status, reply["error"]["code"]) == (405, 405)
    assert call(server, "GET", "/v1/nothing")[0] == 404


def test_what_it_says_about_itself(server: Server, engine: HFEngine) -> None:
    assert call(server, "GET", "/health") == (200, None)
    status, reply = call(server, "GET", "/v1/models")
    assert status == 200
    assert [card["id"] for card in reply["data"]] == [NAME, "alias"]
    assert {card["max_model_len"] for card in reply["data"]} == {engine.max_model_len}


def test_a_key_is_asked_for_where_one_is_set(engine: HFEngine) -> None:
    with serving(create_app(Served(engine=engine, names=(NAME,), key="secret")), name=NAME) as server:
        body = {"prompt": PROMPT, "max_tokens": 1}
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
            status, reply = call(server, "POST", "/v1/completions", body, **headers)
            assert (status, reply["error"]["type"]) == (401, "AuthenticationError")
        assert call(server, "GET", "/v1/models")[0] == 401
        assert call(server, "POST", "/v1/completions", body, Authorization="Bearer secret")[0] == 200
        assert call(server, "GET", "/health")[0] == 200


def test_a_client_that_leaves_frees_its_place(
    server: Server, engine: HFEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward, started, left = engine.model.forward, threading.Event(), threading.Event()

    def waiting(*args: Any, **kwargs: Any) -> Any:
        started.set()
        left.wait(30)
        return forward(*args, **kwargs)

    monkeypatch.setattr(engine.model, "forward", waiting)
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    body = json.dumps({"prompt": PROMPT, "max_tokens": 100, "ignore_eos": True})
    connection.request("POST", "/v1/completions", body)
    assert started.wait(30)
    (request,) = engine._waiting._running
    assert connection.sock is not None
    connection.close()
    while not request.aborted:
        threading.Event().wait(0.01)
    left.set()
    engine.wait_idle()
    assert len(request.token_ids) < 100


def test_a_dead_engine_is_not_healthy(tmp_path: Path) -> None:
    model = make_tiny_world(tmp_path).model
    engine = HFEngine.from_config(EngineConfig(model_path=str(model)))
    with serving(create_app(Served(engine=engine, names=(NAME,))), name=NAME) as server:
        engine.close()
        assert call(server, "GET", "/health")[0] == 503
        status, reply = call(server, "POST", "/v1/completions", {"prompt": PROMPT})
        assert (status, reply["error"]["type"]) == (500, "InternalServerError")


def test_a_prompt_is_only_read_and_its_tokens_are_told_of(server: Server, engine: HFEngine) -> None:
    """In vLLM's form: an entry for each token, by its id; none for the first."""
    ids = [7, 8, 9, 10, 11, 12]
    params = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0)
    expected = asyncio.run(engine.generate(ids, params, "directly")).prompt_log_probs
    reply = complete(server, prompt=ids, max_tokens=1, prompt_logprobs=0)
    (choice,) = reply["choices"]
    first, *entries = choice["prompt_logprobs"]
    assert first is None
    assert [list(entry) for entry in entries] == [[str(token)] for token in ids[1:]]
    assert [entry[str(token)]["logprob"] for entry, token in zip(entries, ids[1:], strict=True)] == pytest.approx(
        expected, abs=1e-5
    )
    assert (choice["token_ids"], choice["text"], reply["usage"]["completion_tokens"]) == ([], "", 0)
    part = complete(server, prompt=ids, max_tokens=1, prompt_logprobs=0, logprob_start_len=4)["choices"][0]
    assert part["prompt_logprobs"][:4] == [None] * 4
    assert complete(server)["choices"][0]["prompt_logprobs"] is None
