"""Log-probabilities of a text from a server: those of the engine behind it, or an outcome where it tells none."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.tiny import make_tiny_world
from tests.workers.classmates.remote_stub import NAME, Asker, Stub, enter, failing, good
from tests.workers.servers import serving
from verl.classmate.outcome import Outcome
from verl.classmate.reply import Reply
from verl.workers.classmates.remote import RemoteClassmate
from verl.workers.rollout.hf_rollout_server.engine import EngineConfig, HFEngine
from verl.workers.rollout.hf_rollout_server.openai_api import Served, create_app
from verl.workers.rollout.hf_rollout_server.sampling import SamplingParams

pytestmark = pytest.mark.usefixtures("quick")
IDS = [7, 8, 9, 10, 11]
PARAMS = {"temperature": 0.0, "max_tokens": 1, "prompt_logprobs": 0}


def told(client: RemoteClassmate, count: int = 2) -> Reply:
    async def go() -> Reply:
        try:
            return await client.log_probs(IDS, PARAMS, count=count)
        finally:
            await client.close()

    return asyncio.run(go())


@pytest.mark.guards("server generation not implemented in the shipped mode")
def test_they_are_those_of_the_engine_behind_it(mapping: Path, tmp_path: Path) -> None:
    engine = HFEngine.from_config(EngineConfig(model_path=str(make_tiny_world(tmp_path / "world").model)))
    with serving(create_app(Served(engine=engine, names=(NAME,))), name=NAME) as server:
        enter(mapping, server)
        reply = told(RemoteClassmate(NAME, mapping, timeout_s=30))
    params = SamplingParams(**PARAMS, logprob_start_len=3)
    expected = asyncio.run(engine.generate(IDS, params, "directly")).prompt_log_probs
    engine.close()
    assert (reply.outcome, reply.token_ids) == (Outcome.ok, ())
    assert reply.log_probs == pytest.approx(expected, abs=1e-5)


def entry(token: int, value: Any = -1.5) -> dict[str, Any]:
    return {str(token): {"logprob": value, "rank": 1, "decoded_token": "x"}}


def test_vllm_may_tell_of_likelier_tokens_too(asker: Asker, stub: Stub) -> None:
    entries = [None, *({**entry(3, -0.1), **entry(token)} for token in IDS[1:])]
    stub.answer = lambda: good(prompt_logprobs=entries)
    assert told(asker.client).log_probs == (-1.5, -1.5)
    (sent,) = stub.asked
    assert (sent["prompt"], sent["prompt_logprobs"], sent["max_tokens"]) == (IDS, 0, 1)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (good, "must know prompt_logprobs"),
        (lambda: good(prompt_logprobs=None), "must know prompt_logprobs"),
        (lambda: good(prompt_logprobs=[None, entry(11)]), "must know prompt_logprobs"),
        (lambda: good(prompt_logprobs=[None, *map(entry, IDS[:-1])]), "do not tell of the prompt's tokens"),
        (lambda: good(prompt_logprobs=[None] * 5), "do not tell of the prompt's tokens"),
        (lambda: good(prompt_logprobs=[None, *(entry(token, "NaN") for token in IDS[1:])]), "no finite numbers"),
        (lambda: failing(400, "prompt_logprobs is not supported"), "prompt_logprobs is not supported"),
    ],
)
def test_a_server_that_tells_none_has_an_outcome(
    asker: Asker, stub: Stub, answer: Callable[[], Any], says: str
) -> None:
    stub.answer = answer
    reply = told(asker.client)
    assert (reply.outcome, reply.log_probs) == (Outcome.engine_error, ())
    assert says in (reply.error or "")
    assert len(asker.events) == 1, "a person is told once"
