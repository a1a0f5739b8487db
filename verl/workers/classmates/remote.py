"""Classmates on servers that others started (engine `openai`): asked over HTTP, watched, never restarted from here.

One decision: a server is asked about itself to find out whether it is down, once for all requests that wait. If a
request fails on a server that is up, only that request has failed. Nothing waits for a server that is down, and its
first answer brings it back. A server that answers about itself but answers no request hangs: then one request at a time
tries it.

    >>> classmate = RemoteClassmate("Qwen/Qwen3-0.6B", "mapping.json", timeout_s=60)
    >>> reply = await classmate.complete([1, 2, 3], {"temperature": 0.7, "max_tokens": 64, "seed": 1})
    >>> reply.outcome, reply.token_ids
"""

import asyncio
import dataclasses
import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import aiohttp

from verl.classmate.config import ClassmateRewardModelConfig, ReaderSpec
from verl.classmate.outcome import Outcome
from verl.classmate.record import RowRecord
from verl.classmate.reply import Reply
from verl.utils.model_servers import mapping as classmate_mapping
from verl.utils.model_servers.mapping import MappingFile, Server
from verl.utils.model_servers.openai_http import ServerFailed, backoff_s, connections, error_message, json_object, post
from verl.workers.engine_health import Patience, hangs

logger = logging.getLogger(__name__)

_Spec = TypeVar("_Spec", bound=ReaderSpec)

RETRIES = 3
"""Times that a request is sent again after the server, not the request, failed."""

PROBE_INTERVAL_S = 1.0
"""A server that is down is asked about itself this often at most, however many requests wait."""

_CONNECTIONS = 256
"""Most connections to one server; further requests wait in this process."""


class RemoteClassmate:
    """Asks one classmate's server from one process; its place is looked up in the mapping file for every request."""

    def __init__(
        self,
        model: str,
        mapping_file: str | Path,
        *,
        timeout_s: float,
        called: str = "classmate",
        on_event: Callable[[str], None] = logger.warning,
    ) -> None:
        """Opens nothing.

        Args:
            model: the classmate's name in the config.
            mapping_file: see `classmate_mapping`.
            timeout_s: longest time of one request, with its retries and its wait for a connection.
            called: what a person is told that it is.
            on_event: gets one line when the server goes down, comes back or refuses requests.
        """
        self.model = model
        self.down: str | None = None
        self._label = f"{called} {model}"
        self._mapping = MappingFile(mapping_file)
        self._timeout_s = timeout_s
        self._on_event = on_event
        self._server: Server | None = None
        self._patience = Patience()
        self._trial: asyncio.Future[bool] | None = None
        self._refusals: set[str] = set()
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._probe: asyncio.Task[str | None] | None = None
        self._probed_at = -PROBE_INTERVAL_S

    async def complete(self, prompt_ids: list[int], params: Mapping[str, Any]) -> Reply:
        """One sample.

        Args:
            prompt_ids: in the classmate's own tokens.
            params: sampling parameters under vLLM's names.
        """
        return await self._answered(_Asked(prompt_ids, params, partial(_reply, most=int(params["max_tokens"]))))

    async def log_probs(self, ids: list[int], params: Mapping[str, Any], *, count: int) -> Reply:
        """The log-probabilities of the last `count` tokens of `ids`, behind those before them.

        Args:
            ids: in the classmate's own tokens.
            params: under vLLM's names, with `prompt_logprobs`.
            count: one or more.
        """
        return await self._answered(_Asked(ids, params, partial(_told, ids=ids[-count:])))

    async def _answered(self, asked: "_Asked") -> Reply:
        server = self._locate()
        if server is None:
            self._went_down(f"has no entry in {self._mapping.path}")
            return self._failed(f"{self.model} {self.down}")
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._complete(server, asked, began + self._timeout_s)
        except TimeoutError:
            self._patience.ran_out(began)
            await self._look_after(server)
            return Reply(outcome=Outcome.timeout, error=f"no answer within {self._timeout_s:g} s")

    async def close(self) -> None:
        """Closes the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    @property
    def _hangs(self) -> bool:
        """Whether the server answers no requests, whatever it says of itself."""
        return hangs(self._patience.unanswered)

    async def _complete(self, server: Server, asked: "_Asked", deadline: float) -> Reply:
        if self.down is not None and await self._look_after(server):
            return self._failed(f"{self.model} at {server.url} {self.down}")
        if not self._hangs:
            return await self._ask(server, asked, deadline)
        trial = self._trial
        if trial is None or trial.done() or trial.get_loop() is not asyncio.get_running_loop():
            trial = self._trial = asyncio.get_running_loop().create_future()
            try:
                return await self._ask(server, asked, deadline)
            finally:
                trial.set_result(not self._hangs)
        if not await asyncio.shield(trial):
            return Reply(outcome=Outcome.timeout, error=f"{self.model} at {server.url} {self.down}")
        return await self._ask(server, asked, deadline)

    async def _ask(self, server: Server, asked: "_Asked", deadline: float) -> Reply:
        # What a model's own generation settings would change unasked is said too.
        body = {"repetition_penalty": 1.0, "min_p": 0.0, **asked.params}
        body |= {"model": server.name, "prompt": asked.prompt_ids, "n": 1, "return_token_ids": True}
        for attempt in range(RETRIES + 1):
            try:
                status, content = await post(self._connections(), f"{server.url}/v1/completions", body, key=_key())
            except ServerFailed as failure:
                if failure.status is not None:
                    self._patience.answered()
                wait = backoff_s(attempt, at_least=failure.wait_s)
                if attempt < RETRIES and time.monotonic() + wait < deadline:
                    await asyncio.sleep(wait)
                    continue
                if not failure.busy:
                    await self._look_after(server)
                return self._failed(str(failure))
            self._patience.answered()
            self._came_up(server)
            if status != 200:
                return self._refused(f"refuses requests with status {status} ({error_message(content, key=_key())})")
            try:
                return asked.read(content)
            except ValueError as error:
                return self._refused(f"answers wrongly: {error}")
        raise AssertionError("the last attempt returns")

    def _connections(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            if self._session is not None:
                self._session.detach()  # of a loop that has ended
            self._loop, self._probe = loop, None
            self._session = connections(_CONNECTIONS)
        return self._session

    # State

    def _locate(self) -> Server | None:
        server = self._mapping.find(self.model)
        if server != self._server:
            if self._server is not None and server is not None:
                self.down = None  # another place: nothing is known about it
            self._server = server
            self._patience = Patience()
            self._probe = None
            self._refusals.clear()
        return server

    async def _look_after(self, server: Server) -> bool:
        """Asks the server about itself, or takes the answer of a moment ago; whether it says that it is down."""
        self._connections()
        now = time.monotonic()
        if self._probe is None or (self._probe.done() and now - self._probed_at >= PROBE_INTERVAL_S):
            self._probed_at = now
            self._probe = asyncio.create_task(asyncio.to_thread(classmate_mapping.problem, server))
        # Shielded: a request whose time is over must not take the answer from the others.
        problem = await asyncio.shield(self._probe)
        if server == self._server:
            reason = why_silent(self._patience.unanswered) if problem is None and self._hangs else problem
            if reason is None:
                self._came_up(server)
            else:
                self._went_down(reason)
        return problem is not None

    def _went_down(self, reason: str) -> None:
        if self.down is None:
            self._on_event(f"{self._label} is down: it {reason}")
        self.down = reason

    def _came_up(self, server: Server) -> None:
        if self.down is not None:
            self._on_event(f"{self._label} is back at {server.url}")
        self.down = None

    def _refused(self, reason: str) -> Reply:
        """A failure of the request. The first of a kind is told, since all others will be alike."""
        kind = reason.partition("(")[0]
        if kind not in self._refusals:
            self._refusals.add(kind)
            self._on_event(f"{self._label} {reason}")
        return self._failed(reason)

    def _failed(self, reason: str) -> Reply:
        return Reply(outcome=Outcome.engine_error, error=reason)


def why_silent(unanswered: int) -> str:
    """What is wrong with a server that hangs, as the end of a sentence."""
    return f"answered none of the last {unanswered} requests in their time"


def _key() -> str | None:
    return os.environ.get(classmate_mapping.KEY_VARIABLE) or None


class _Asked(NamedTuple):
    """One request."""

    prompt_ids: list[int]
    params: Mapping[str, Any]
    read: Callable[[bytes], Reply]
    """What is taken from a good answer's content; raises ValueError where it is not there."""


def _choice(content: bytes, *keys: str) -> list[Any]:
    """The values of some keys of a completion's first choice, None where there is none.

    Raises:
        ValueError: it is no completion.
    """
    try:
        choice = json_object(content)["choices"][0]
        return [choice.get(key) for key in keys]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"no completion ({type(error).__name__}: {str(error)[:100]})") from error


def _told(content: bytes, *, ids: Sequence[int]) -> Reply:
    """What a completion tells of the prompt's last tokens, which are `ids`.

    Raises:
        ValueError: naming what is missing or of the wrong type.
    """
    (entries,) = _choice(content, "prompt_logprobs")
    if not isinstance(entries, list) or len(entries) <= len(ids):
        raise ValueError("no prompt_logprobs; the server must know prompt_logprobs in /v1/completions, as vLLM does")
    try:
        pairs = zip(entries[-len(ids) :], ids, strict=True)
        log_probs = [float(entry[str(token)]["logprob"]) for entry, token in pairs]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("prompt_logprobs do not tell of the prompt's tokens") from error
    if not all(map(math.isfinite, log_probs)):
        raise ValueError("prompt_logprobs are no finite numbers")
    return Reply(outcome=Outcome.ok, log_probs=tuple(log_probs))


def _reply(content: bytes, *, most: int) -> Reply:
    """The reply in a completion with one choice.

    Raises:
        ValueError: naming what is missing or of the wrong type.
    """
    ids, reason = _choice(content, "token_ids", "finish_reason")
    if ids is None:
        raise ValueError("no token_ids; the server must know return_token_ids, as vLLM 0.10.2 and newer do")
    if not isinstance(ids, list) or not all(type(token) is int and 0 <= token < 2**31 for token in ids):
        raise ValueError("token_ids is no list of token ids")
    if len(ids) > most:
        raise ValueError(f"{len(ids)} tokens where at most {most} were asked for")
    if reason == "abort":
        raise ValueError("the request was aborted")
    return Reply(outcome=Outcome.ok, token_ids=tuple(ids), finish_reason=reason if isinstance(reason, str) else None)


class RemoteWatch:
    """The driver's view of all remote classmates: tells a person, once each, who went down, came back or moved."""

    def __init__(
        self,
        models: Mapping[int, str],
        mapping_file: str | Path,
        *,
        called: str = "classmate",
        on_event: Callable[[str], None] = print,
    ) -> None:
        """Asks nobody.

        Args:
            models: the remote classmates' names by index.
            mapping_file: see `classmate_mapping`.
            called: what a person is told that they are.
            on_event: gets one line per change.
        """
        self._models, self._called = dict(models), called
        self._mapping = MappingFile(mapping_file)
        self._on_event = on_event
        self._servers = {index: self._mapping.find(model) for index, model in self._models.items()}
        self._down: dict[int, str] = {}
        self._silent: dict[int, str] = {}

    def heed(self, rows: Sequence[RowRecord]) -> None:
        """Learns from a step's rows which servers answer no requests; asking them about themselves does not show it."""
        for index in self._models:
            items = [item for row in rows for asked in row.asked[index : index + 1] for item in asked.continuations]
            silent = sum(item.outcome is Outcome.timeout for item in items)
            # A good or bad answer; one that a judge was too slow for is an answer too.
            if any(item.token_length or item.finish_reason or item.log_probs for item in items):
                self._silent.pop(index, None)
            elif hangs(silent):
                self._silent[index] = why_silent(silent)

    def check(self, *, without: frozenset[int] = frozenset()) -> dict[int, str]:
        """Asks every server about itself. Returns why, by index, for each that cannot be asked now or hangs.

        Args:
            without: classmates that nobody waits for any more.
        """
        watched = [index for index in self._models if index not in without]
        if not watched:
            return {}
        with ThreadPoolExecutor(len(watched)) as pool:
            problems = dict(zip(watched, pool.map(self._problem, watched), strict=True))
        for index, problem in problems.items():
            self._tell(index, problem)
        self._down = {index: problem for index, problem in problems.items() if problem is not None}
        return dict(self._down)

    def _problem(self, index: int) -> str | None:
        server = self._mapping.find(self._models[index])
        if server is None:
            return f"has no entry in {self._mapping.path}"
        problem = classmate_mapping.problem(server)
        if problem is not None and index not in self._down:
            # Once more: one lost answer of a busy server is no reason to exclude it or to end the run.
            problem = classmate_mapping.problem(server)
        return problem or self._silent.get(index)

    def _tell(self, index: int, problem: str | None) -> None:
        label = f"{self._called} {index} ({self._models[index]})"
        before, server = self._servers[index], self._mapping.find(self._models[index])
        place = server.url if server is not None else "it"
        if problem is not None and index not in self._down:
            self._on_event(f"{label} is down: {place} {problem}; its rows have no score meanwhile")
        elif problem is None and index in self._down:
            self._on_event(f"{label} is back at {place}")
        elif problem is None and server != before:
            self._on_event(f"{label} moved to {place}")
        self._servers[index] = server


def with_hosted(reward: ClassmateRewardModelConfig) -> ClassmateRewardModelConfig:
    """The config with `classmate_backend: auto` resolved to `openai` for models that the mapping file names.

    Resolved once, at the start: a server that goes or comes later does not change what a run consists of. The file's
    name becomes absolute, since workers may stand in other folders.
    """
    node = reward.classmate_cot_reward_configs
    path = Path(node.host_classmate_name_to_url_json_fn).expanduser().absolute()
    mapping = MappingFile(path)

    def hosted(spec: _Spec) -> _Spec:
        if spec.backend != "auto" or mapping.find(spec.model) is None:
            return spec
        return dataclasses.replace(spec, backend="openai", tensor_parallel_size=None, gpu_memory_utilization=None)

    return dataclasses.replace(
        reward,
        classmates=tuple(map(hosted, reward.classmates)),
        evaluation_classmates=tuple(map(hosted, reward.evaluation_classmates)),
        classmate_cot_reward_configs=dataclasses.replace(node, host_classmate_name_to_url_json_fn=str(path)),
    )
