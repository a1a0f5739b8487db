"""Which server a remote classmate has, also when the file that names it changes, and what a run's client asks it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.workers.classmates.remote_stub import NAME, Asker, Stub, config, enter
from tests.workers.servers import serving
from verl.classmate.outcome import Outcome
from verl.classmate.reply import Reply
from verl.utils.model_servers.mapping import Server
from verl.workers.classmate_workers import ClassmateClient
from verl.workers.classmates.remote import with_hosted

pytestmark = pytest.mark.usefixtures("quick")


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
