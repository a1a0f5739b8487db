"""Whether an engine hangs: what it counts, and what becomes of the requests of those who ask one that does."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from verl.classmate.config import from_mapping
from verl.classmate.outcome import Outcome
from verl.classmate.reply import Reply
from verl.workers.classmates import client as classmate_client
from verl.workers.classmates.client import ClassmateClient
from verl.workers.engine_health import UNANSWERED_LIMIT, Patience, hangs
from verl.workers.rollout.replica import TokenOutput

PROMPT = [7, 8]
TOKENS = TokenOutput(token_ids=[5, 2], stop_reason="completed")


async def _never() -> Any:
    await asyncio.Event().wait()


async def _answer() -> TokenOutput:
    return TOKENS


async def _refuse() -> TokenOutput:
    raise ValueError("the prompt is empty")


def test_requests_that_time_out_while_none_is_answered_count() -> None:
    async def run() -> None:
        patience = Patience(0.05)
        for expected in range(1, UNANSWERED_LIMIT + 1):
            with pytest.raises(TimeoutError):
                await patience.wait(_never())
            assert patience.unanswered == expected
        assert hangs(patience.unanswered)
        with pytest.raises(ValueError, match="empty"):
            await patience.wait(_refuse())
        assert hangs(patience.unanswered), "that a request is refused says nothing of what computes"
        assert await patience.wait(_answer()) is TOKENS
        assert patience.unanswered == 0

    asyncio.run(run())


def test_neither_a_slow_request_nor_a_busy_engine_is_a_hang() -> None:
    async def run() -> None:
        patience = Patience(0.05)
        with pytest.raises(TimeoutError):
            await patience.wait(_never())
        assert not hangs(patience.unanswered)
        waiting = [asyncio.ensure_future(patience.wait(_never())) for _ in range(10)]
        await asyncio.sleep(0)
        await patience.wait(_answer())
        await asyncio.gather(*waiting, return_exceptions=True)
        assert patience.unanswered == 0, "one was answered while the others waited"

    asyncio.run(run())


def test_what_runs_out_of_time_is_taken_back() -> None:
    cancelled: list[bool] = []

    async def slow() -> None:
        try:
            await _never()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with pytest.raises(TimeoutError):
        asyncio.run(Patience(0.05).wait(slow()))
    assert cancelled == [True]


def test_without_a_limit_nobody_is_hurried() -> None:
    assert asyncio.run(Patience(None).wait(_answer())) is TOKENS


class Client(ClassmateClient):
    """A client whose engines are played: by name, what a request and what a ping brings."""

    def __init__(
        self,
        engines: dict[str, tuple[Callable[[], Awaitable[Any]], Callable[[], Awaitable[int]]]],
        *,
        timeout: float = 60,
    ) -> None:
        reward = from_mapping(
            {
                "classmates": [{"model": "m", "backend": "hf", "replicas": len(engines)}],
                "classmate_request_timeout": timeout,
                "classmate_ping_timeout": 0.2,
            }
        )
        super().__init__(reward, max_model_len=32)
        self.engines = engines
        self.called: Counter[tuple[str, str]] = Counter()

    async def _call(self, name: str, method: str, arguments: dict[str, Any]) -> Any:
        self.called[name, method] += 1
        generate, ping = self.engines[name]
        return await (ping() if method == "ping" else generate())

    async def ask(self, times: int = 1) -> list[Reply]:
        return await self.sample(0, PROMPT, seeds=range(times), validate=False)


async def _well() -> int:
    return 0


async def _hanging() -> int:
    return UNANSWERED_LIMIT


FIRST, SECOND = "classmate_0", "classmate_0_1"
DEADLINE = 30
"""Half of the request's time limit: who needs longer waited for it."""


def run(coroutine: Any) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, DEADLINE))


@pytest.mark.parametrize(
    ("ping", "said"), [(_never, "no answer to a ping within 0.2 s"), (_hanging, "it let 3 requests in a row run out")]
)
def test_nobody_waits_long_for_an_engine_that_hangs(ping: Any, said: str) -> None:
    client = Client({FIRST: (_never, ping)})

    async def ask() -> None:
        for _ in range(3):
            replies = await client.ask(40)
            assert {reply.outcome for reply in replies} == {Outcome.timeout}
            assert all(said in (reply.error or "") for reply in replies)
            assert all(reply.token_ids == () for reply in replies)

    run(ask())
    assert client.called[FIRST, "generate"] == 40, "who comes later does not ask it"
    assert client.called[FIRST, "ping"] == 1, "one ping answers all who wait"


def test_a_slow_engine_that_answers_pings_is_waited_for() -> None:
    async def slow() -> TokenOutput:
        await asyncio.sleep(1)
        return TOKENS

    client = Client({FIRST: (slow, _well)})
    assert [reply.outcome for reply in run(client.ask(3))] == [Outcome.ok] * 3
    assert client.called[FIRST, "ping"] >= 2
    assert client.called[FIRST, "generate"] == 3


def test_requests_of_an_engine_that_hangs_go_to_the_others() -> None:
    client = Client({FIRST: (_never, _never), SECOND: (_answer, _well)})

    async def ask() -> None:
        assert [reply.outcome for reply in await client.ask(10)] == [Outcome.ok] * 10
        stuck = client.called[FIRST, "generate"]
        assert [reply.outcome for reply in await client.ask(10)] == [Outcome.ok] * 10
        assert client.called[FIRST, "generate"] == stuck, "the other one is asked first"

    run(ask())


def test_an_engine_that_was_restarted_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classmate_client, "DOWN_S", 0.0)
    client = Client({FIRST: (_never, _never)})

    async def ask() -> None:
        assert (await client.ask())[0].outcome is Outcome.timeout
        client._handles[FIRST] = object()  # type: ignore[assignment]
        client.engines[FIRST] = (_never, _never)
        assert (await client.ask())[0].outcome is Outcome.timeout
        assert client.called[FIRST, "generate"] == 1, "it is pinged first"
        assert FIRST not in client._handles, "the name may lead to another actor now"
        client.engines[FIRST] = (_answer, _well)
        assert [reply.outcome for reply in await client.ask(5)] == [Outcome.ok] * 5

    run(ask())


def test_an_answer_during_the_ping_is_taken() -> None:
    async def late() -> TokenOutput:
        await asyncio.sleep(0.15)
        return TOKENS

    client = Client({FIRST: (late, _never)})
    assert run(client.ask())[0].outcome is Outcome.ok


def test_a_request_has_its_time_and_no_more_whatever_pings_say() -> None:
    client = Client({FIRST: (_never, _well)}, timeout=0.5)
    (reply,) = run(client.ask())
    assert (reply.outcome, reply.error) == (Outcome.timeout, "no answer within 0.5 s")
